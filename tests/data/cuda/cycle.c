/* Opens two libraries, starts a kernel of each, and closes them, TIMES times; the last time they stay open: A B TIMES. Fails if memory
 * of the heap goes with each of them. */
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int use(const char *path, float value, void **handle)
{
    int (*start)(float);
    void *found;
    *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    found = dlsym(*handle, "start");
    memcpy(&start, &found, sizeof start);
    return start(value);
}

int main(int argc, char **argv)
{
    int i, times = argc > 3 ? atoi(argv[3]) : 0;
    size_t used = 0;
    for (i = 0; i < times; i++) {
        void *a, *b;
        if (use(argv[1], 1.0f, &a) != 0 || use(argv[2], 2.0f, &b) != 0)
            return 1;
        if (i + 1 < times && (dlclose(a) != 0 || dlclose(b) != 0))
            return 1;
        if (i == times / 10)
            used = mallinfo2().uordblks;
        if (i + 2 == times && mallinfo2().uordblks > used + 4096) {
            fprintf(stderr, "%zu bytes of heap are lost\n", mallinfo2().uordblks - used);
            return 1;
        }
    }
    return 0;
}
