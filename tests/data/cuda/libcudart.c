/* A stand-in for NVIDIA's libcudart: it records the calls with which objects register programs, and starts of kernels by symbol.
 *
 * CUDA_RECORD names the file that lines are appended to. A fatbin that is not one, a handle that is not registered, a kernel that is
 * unknown or a second unregistration end the process. */
#include "record.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

typedef struct binary {
    int number, alive, ended;
} binary;

typedef struct symbol {
    const void *address;
    char name[100];
    binary *owner;
} symbol;

static binary binaries[4096];
static symbol symbols[4096];
static int binary_count, symbol_count;

static void need(int condition, const char *what)
{
    if (!condition) {
        record("abort: %s", what);
        abort();
    }
}

static void keep(const void *address, const char *name, binary *owner)
{
    need(symbol_count < 4096, "too many symbols");
    symbols[symbol_count].address = address;
    snprintf(symbols[symbol_count].name, sizeof symbols[0].name, "%s", name);
    symbols[symbol_count++].owner = owner;
}

/* Return the name that a live binary registered for an address. */
static const char *name_of(const void *address)
{
    int i;
    for (i = symbol_count - 1; i >= 0; i--)
        if (symbols[i].address == address && symbols[i].owner->alive)
            return symbols[i].name;
    return NULL;
}

EXPORT void **__cudaRegisterFatBinary(const void *wrapper)
{
    int32_t head[2];
    uint32_t magic;
    uint64_t size, sum = 0, i;
    const unsigned char *data;
    binary *made = &binaries[binary_count];
    memcpy(head, wrapper, sizeof head);
    memcpy(&data, (const char *)wrapper + 8, sizeof data);
    need(head[0] == 0x466243B1 && head[1] == 1, "the wrapper's magic");
    memcpy(&magic, data, 4);
    memcpy(&size, data + 8, 8);
    need(magic == 0xBA55ED50u && (uintptr_t)data % 8 == 0, "the fatbin");
    for (i = 0; i < 16 + size; i++)
        sum = sum * 31 + data[i];
    made->number = ++binary_count;
    made->alive = 1;
    record("__cudaRegisterFatBinary(%llu bytes, %016llx) = %d", (unsigned long long)(16 + size), (unsigned long long)sum, made->number);
    return (void **)made;
}

EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *a, void *b, void *c,
                                   void *d, int *e)
{
    binary *owner = (binary *)handle;
    need(owner->alive && !owner->ended, "a function of a binary that is not open");
    need(a == NULL && b == NULL && c == NULL && d == NULL && e == NULL && host != NULL, "arguments of a function");
    keep(host, name, owner);
    record("__cudaRegisterFunction(%d, %s, %s, %d)", owner->number, device, name, limit);
}

EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t size, int constant, int global)
{
    binary *owner = (binary *)handle;
    need(owner->alive && !owner->ended, "a variable of a binary that is not open");
    memset(host, 0, size); /* the shadow is there, and can be written */
    keep(host, name, owner);
    record("__cudaRegisterVar(%d, %s, %s, %d, %zu, %d, %d)", owner->number, device, name, external, size, constant, global);
}

EXPORT void __cudaRegisterFatBinaryEnd(void **handle)
{
    binary *owner = (binary *)handle;
    need(owner->alive && !owner->ended, "the end of a binary that is not open");
    owner->ended = 1;
    record("__cudaRegisterFatBinaryEnd(%d)", owner->number);
}

EXPORT void __cudaUnregisterFatBinary(void **handle)
{
    binary *owner = (binary *)handle;
    int i, live = 0;
    need(owner >= binaries && owner < binaries + binary_count && owner->alive, "an unregistration of what is not registered");
    owner->alive = 0;
    for (i = 0; i < binary_count; i++)
        live += binaries[i].alive;
    record("__cudaUnregisterFatBinary(%d), %d live", owner->number, live);
    while (symbol_count > 0 && !symbols[symbol_count - 1].owner->alive)
        symbol_count--;
    if (live == 0 && binary_count > 4000)
        binary_count = 0; /* room for the next ones */
}

typedef struct dim3 {
    unsigned x, y, z;
} dim3;

EXPORT int cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream)
{
    const char *name = name_of(host);
    need(name != NULL, "a kernel that is not registered");
    record("cudaLaunchKernel(%s, %u %u %u, %u %u %u, %g, %zu, %s)", name, grid.x, grid.y, grid.z, block.x, block.y, block.z,
           (double)*(float *)arguments[0], shared, stream == NULL ? "(nil)" : "a stream");
    if (getenv("CUDA_COMPUTE") != NULL && strcmp(name, "axpy") == 0) { /* y = a * x + y */
        float a = *(float *)arguments[0], *x = *(float **)arguments[1], *y = *(float **)arguments[2];
        int i, n = *(int *)arguments[3], threads = (int)(grid.x * block.x);
        for (i = 0; i < n && i < threads; i++)
            y[i] = a * x[i] + y[i];
    }
    return 0;
}

/* Memory of the GPU is memory of the host here. */
EXPORT int cudaMalloc(void **address, size_t size)
{
    *address = calloc(1, size);
    return *address == NULL;
}
EXPORT int cudaMemcpy(void *to, const void *from, size_t size, int kind)
{
    memcpy(to, from, size);
    return kind != 1 && kind != 2;
}
EXPORT const char *cudaGetErrorString(int code)
{
    (void)code;
    return "an error";
}

EXPORT int cudaMemcpyToSymbol(const void *host, const void *source, size_t count, size_t offset, int kind)
{
    const char *name = name_of(host);
    need(name != NULL, "a variable that is not registered");
    record("cudaMemcpyToSymbol(%s, %g, %zu, %zu, %d)", name, (double)*(const float *)source, count, offset, kind);
    return 0;
}

/* What nvcc's own host code refers to beside. */
EXPORT int __cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream)
{
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
EXPORT int __cudaGetKernel(const void **kernel, const void *host)
{
    *kernel = host;
    return 0;
}
EXPORT unsigned __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    (void)grid, (void)block, (void)shared, (void)stream;
    return 1;
}
EXPORT int cudaGetLastError(void) { return 0; }
EXPORT char __cudaInitModule(void **handle)
{
    (void)handle;
    return 0;
}
