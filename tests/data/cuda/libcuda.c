/* A stand-in for NVIDIA's libcuda: it records every call, and judges images as the driver does as far as that is documented.
 *
 * CUDA_RECORD names the file that lines are appended to; CUDA_SM is the compute capability without its dot, CUDA_DEVICES the number
 * of GPUs. Compiled with -DNO_LIBRARIES it is the driver of CUDA 11. Kernels and variables exist if their name is in the image's
 * bytes. It reads images by itself, on purpose: no code of emitter is in it. */
#include "record.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { OK = 0, INVALID = 1, NO_DEVICE = 100, INVALID_CONTEXT = 201, NO_BINARY = 209, INVALID_IMAGE = 200, NOT_FOUND = 500 };

typedef struct object {
    const unsigned char *image;
    size_t size;
    int number, alive;
} object;

static object objects[4096];
static int object_count, live, context, retained;

static int number_of(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

static int runs(int sm, int ptx)
{
    int here = number_of("CUDA_SM", 86);
    return ptx ? sm <= here : sm / 10 == here / 10 && sm <= here;
}

/* The size of an image, 0 if it is none, and whether one of its programs runs here. */
static size_t judge(const unsigned char *image, const char **format, int *suits)
{
    uint32_t word, arch;
    uint64_t size, payload;
    uint16_t kind;
    size_t at;
    *suits = 0;
    memcpy(&word, image, 4);
    if (word == 0xBA55ED50u) {
        *format = "fatbin";
        memcpy(&size, image + 8, 8);
        for (at = 16; at + 64 <= 16 + size; at += word + payload) {
            memcpy(&kind, image + at, 2);
            memcpy(&word, image + at + 4, 4);
            memcpy(&payload, image + at + 8, 8);
            memcpy(&arch, image + at + 28, 4);
            if (kind <= 2 && runs((int)arch, kind == 1))
                *suits = 1;
        }
        return 16 + (size_t)size;
    }
    if (memcmp(image, "\177ELF", 4) == 0) {
        uint64_t shoff;
        uint16_t count;
        *format = "cubin";
        memcpy(&word, image + 48, 4);
        memcpy(&shoff, image + 40, 8);
        memcpy(&count, image + 60, 2);
        *suits = runs((int)(image[8] >= 8 ? word >> 8 & 0xFF : word & 0xFF), 0);
        return (size_t)shoff + 64u * count;
    }
    *format = "PTX";
    if (strstr((const char *)image, ".version") == NULL || strstr((const char *)image, ".target sm_") == NULL)
        return 0;
    *suits = runs(atoi(strstr((const char *)image, ".target sm_") + 11), 1);
    return strlen((const char *)image);
}

static int load(const char *call, void **handle, const void *image)
{
    const char *format = "?";
    int suits;
    size_t size = judge((const unsigned char *)image, &format, &suits);
    object *made = &objects[object_count];
    if (!context || object_count == 4096)
        return INVALID_CONTEXT;
    if (size == 0 || (uintptr_t)image % 8 != 0) {
        record("%s(%s, %zu bytes) = invalid", call, format, size);
        return INVALID_IMAGE;
    }
    if (!suits) {
        record("%s(%s, %zu bytes) = no binary", call, format, size);
        return NO_BINARY;
    }
    made->image = (const unsigned char *)image;
    made->size = size;
    made->alive = 1;
    made->number = ++object_count;
    live++;
    *handle = made;
    record("%s(%s, %zu bytes, 64-aligned: %d) = %d", call, format, size, (uintptr_t)image % 64 == 0, made->number);
    return OK;
}

static int unload(const char *call, object *made)
{
    if (!made->alive)
        abort(); /* twice */
    made->alive = 0;
    live--;
    record("%s(%d), %d live", call, made->number, live);
    return OK;
}

static int find(const char *call, void **found, object *made, const char *name)
{
    size_t length = strlen(name), at;
    for (at = 0; made->alive && at + length <= made->size; at++)
        if (memcmp(made->image + at, name, length) == 0) {
            *found = (void *)(made->image + at);
            record("%s(%d, %s)", call, made->number, name);
            return OK;
        }
    record("%s(%d, %s) = not found", call, made->number, name);
    return NOT_FOUND;
}

EXPORT int cuInit(unsigned flags)
{
    record("cuInit(%u)", flags);
    return number_of("CUDA_DEVICES", 1) ? OK : NO_DEVICE;
}
EXPORT int cuDeviceGetCount(int *count)
{
    *count = number_of("CUDA_DEVICES", 1);
    return OK;
}
EXPORT int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return OK;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int sm = number_of("CUDA_SM", 86);
    (void)device;
    *value = attribute == 75 ? sm / 10 : attribute == 76 ? sm % 10 : 0;
    return attribute == 75 || attribute == 76 ? OK : INVALID;
}
EXPORT int cuGetErrorName(int code, const char **name)
{
    *name = code == NO_BINARY ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : code == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE"
          : code == INVALID_IMAGE ? "CUDA_ERROR_INVALID_IMAGE" : code == NOT_FOUND ? "CUDA_ERROR_NOT_FOUND" : NULL;
    return *name == NULL;
}
EXPORT int cuCtxGetCurrent(void **current)
{
    *current = context ? &context : NULL;
    return OK;
}
EXPORT int cuDevicePrimaryCtxRetain(void **made, int device)
{
    record("cuDevicePrimaryCtxRetain(%d)", device);
    retained++;
    *made = &context;
    return OK;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
    record("cuDevicePrimaryCtxRelease(%d)", device);
    if (--retained < 0)
        abort();
    context = 0;
    return OK;
}
EXPORT int cuCtxSetCurrent(void *made)
{
    context = made != NULL;
    return OK;
}
#ifndef NO_LIBRARIES
EXPORT int cuLibraryLoadData(void **handle, const void *image, void *a, void **b, unsigned c, void *d, void **e, unsigned f)
{
    if (a != NULL || b != NULL || c != 0 || d != NULL || e != NULL || f != 0)
        return INVALID;
    return load("cuLibraryLoadData", handle, image);
}
EXPORT int cuLibraryUnload(object *made) { return unload("cuLibraryUnload", made); }
EXPORT int cuLibraryGetKernel(void **found, object *made, const char *name) { return find("cuLibraryGetKernel", found, made, name); }
EXPORT int cuLibraryGetGlobal(uint64_t *address, size_t *size, object *made, const char *name)
{
    *address = 0x7000;
    *size = 4;
    return find("cuLibraryGetGlobal", &(void *){NULL}, made, name);
}
#endif
EXPORT int cuModuleLoadData(void **handle, const void *image) { return load("cuModuleLoadData", handle, image); }
EXPORT int cuModuleUnload(object *made) { return unload("cuModuleUnload", made); }
EXPORT int cuModuleGetFunction(void **found, object *made, const char *name) { return find("cuModuleGetFunction", found, made, name); }
EXPORT int cuModuleGetGlobal_v2(uint64_t *address, size_t *size, object *made, const char *name)
{
    *address = 0x7000;
    *size = 4;
    return find("cuModuleGetGlobal", &(void *){NULL}, made, name);
}
/* Memory of the GPU is memory of the host here. */
EXPORT int cuMemAlloc_v2(uint64_t *address, size_t size)
{
    *address = context ? (uint64_t)(uintptr_t)calloc(1, size) : 0;
    return *address ? OK : INVALID_CONTEXT;
}
EXPORT int cuMemFree_v2(uint64_t address)
{
    free((void *)(uintptr_t)address);
    return OK;
}
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size)
{
    memcpy((void *)(uintptr_t)to, from, size);
    return OK;
}
EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size)
{
    memcpy(to, (void *)(uintptr_t)from, size);
    return OK;
}
EXPORT int cuCtxSynchronize(void) { return OK; }
/* With CUDA_COMPUTE, y = a * x + y, for kernels that are called axpy and take (a, x, y, n). */
static void axpy(void **arguments, unsigned threads)
{
    float a = *(float *)arguments[0], *x = *(float **)arguments[1], *y = *(float **)arguments[2];
    int n = *(int *)arguments[3];
    for (int i = 0; i < n && i < (int)threads; i++)
        y[i] = a * x[i] + y[i];
}
EXPORT int cuLaunchKernel(const char *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                          void *stream, void **arguments, void **extra)
{
    record("cuLaunchKernel(%.4s, %u %u %u, %u %u %u, %u, %p, first %d)", kernel, gx, gy, gz, bx, by, bz, shared, stream,
           arguments[0] != NULL ? *(int *)arguments[0] : -1);
    if (getenv("CUDA_COMPUTE") != NULL && memcmp(kernel, "axpy", 4) == 0)
        axpy(arguments, gx * bx);
    return extra == NULL ? OK : INVALID;
}
