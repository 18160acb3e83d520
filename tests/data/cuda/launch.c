/* Starts a kernel by its symbol: a program that is linked with an object which registers it, by nvcc or by emitter. */
#include <stddef.h>

typedef struct dim3 {
    unsigned x, y, z;
} dim3;

extern int cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream);
#ifdef VARIABLE
extern int cudaMemcpyToSymbol(const void *symbol, const void *source, size_t count, size_t offset, int kind);
extern char scale[];
#endif
extern void axpy(void);

int main(void)
{
    float a = 1.5f;
    void *arguments[4] = {&a, NULL, NULL, NULL};
    dim3 grid = {4, 1, 1}, block = {32, 2, 1};
    union {
        void (*function)(void);
        const void *address;
    } kernel;
    kernel.function = axpy;
#ifdef VARIABLE
    if (cudaMemcpyToSymbol(scale, &a, sizeof a, 0, 1) != 0)
        return 1;
#endif
    return cudaLaunchKernel(kernel.address, grid, block, arguments, 0, NULL);
}
