/* Loads the library that is named, runs the network on the image that it reads, and prints the probabilities. */
#include <stdio.h>
#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

typedef void (*infer_function)(const float *, float *);

int main(int argc, char **argv)
{
    float image[144], probabilities[5];
    int i;
    union { void *object; infer_function function; } infer;
    FILE *file = argc > 2 ? fopen(argv[2], "rb") : NULL;
    if (!file || fread(image, 1, sizeof image, file) != sizeof image)
        return 2;
#ifdef _WIN32
    infer.function = (infer_function)(void (*)(void))GetProcAddress(LoadLibraryA(argv[1]), "infer");
#else
    {
        void *library = dlopen(argv[1], RTLD_NOW);
        if (!library)
            return puts(dlerror()), 3;
        infer.object = dlsym(library, "infer");
    }
#endif
    if (!infer.function)
        return 4;
    infer.function(image, probabilities);
    for (i = 0; i < 5; i++)
        printf("%.9g\n", (double)probabilities[i]);
    return 0;
}
