/* A shared library with kernels of its own, as plugins have them: it starts one by its symbol. */
#include <stddef.h>

typedef struct dim3 {
    unsigned x, y, z;
} dim3;

extern int cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream);
extern void axpy(void);

__attribute__((visibility("default"))) int start(float value)
{
    void *arguments[1] = {&value};
    dim3 one = {1, 1, 1};
    union {
        void (*function)(void);
        const void *address;
    } kernel;
    kernel.function = axpy;
    return cudaLaunchKernel(kernel.address, one, one, arguments, 0, NULL);
}
