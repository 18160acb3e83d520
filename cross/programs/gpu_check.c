/* Starts the kernel axpy by its symbol, which the object that this is linked with registers: reads a, then x and y, float32, from standard
 * input, and writes what y becomes. */
#include <stdio.h>
#include <stdlib.h>

typedef struct dim3 {
    unsigned x, y, z;
} dim3;

extern int cudaMalloc(void **address, size_t size);
extern int cudaMemcpy(void *to, const void *from, size_t size, int kind);
extern int cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream);
extern const char *cudaGetErrorString(int code);
extern void axpy(void);

static void need(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "%s: %s (%d)\n", what, cudaGetErrorString(code), code);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 0;
    size_t size = (size_t)n * sizeof(float);
    float a, *host = malloc(2 * size);
    void *x, *y, *arguments[4] = {&a, &x, &y, &n};
    dim3 grid = {((unsigned)n + 255) / 256, 1, 1}, block = {256, 1, 1};
    union {
        void (*function)(void);
        const void *address;
    } kernel;
    kernel.function = axpy;
    if (host == NULL || fread(&a, sizeof a, 1, stdin) != 1 || fread(host, 2 * size, 1, stdin) != 1)
        return 2;
    need(cudaMalloc(&x, size), "cudaMalloc");
    need(cudaMalloc(&y, size), "cudaMalloc");
    need(cudaMemcpy(x, host, size, 1), "cudaMemcpy");
    need(cudaMemcpy(y, host + n, size, 1), "cudaMemcpy");
    need(cudaLaunchKernel(kernel.address, grid, block, arguments, 0, NULL), "cudaLaunchKernel");
    need(cudaMemcpy(host, y, size, 2), "cudaMemcpy");
    return fwrite(host, size, 1, stdout) != 1;
}
