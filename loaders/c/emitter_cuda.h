/* SPDX-License-Identifier: 0BSD
 *
 * emitter_cuda.h: loads the CUDA programs of a pack through the driver of the machine. It needs emitter.h beside it, and no part of
 * the CUDA toolkit: libcuda is found at run time, and nothing is linked.
 *
 * Copyright (C) the emitter authors
 *
 * Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted.
 *
 * THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED
 * WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR
 * CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT,
 * NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.
 *
 *     emitter_cuda cuda;
 *     emitter_cuda_program *program = NULL;
 *     void *kernel = NULL;
 *     if (emitter_cuda_open(&cuda, NULL, 0) != EMITTER_CUDA_OK
 *         || emitter_cuda_load(&cuda, &reader, "kernels", &program) != EMITTER_CUDA_OK
 *         || emitter_cuda_kernel(program, "axpy", &kernel) != EMITTER_CUDA_OK)
 *         fprintf(stderr, "%s\n", cuda.message);
 *
 * C99 or C++11. Functions are `static inline`. An emitter_cuda must not move once it is open, and is used by one thread at a time.
 * Handles are the driver's own: a kernel is a CUfunction for cuLaunchKernel. emitter_cuda_symbol finds any other function of it.
 */

#ifndef EMITTER0_CUDA_H
#define EMITTER0_CUDA_H

#include "emitter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
#define EMITTER0_CUDA_CALL_ __stdcall
#else
#include <dlfcn.h>
#define EMITTER0_CUDA_CALL_
#endif

#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum emitter0_cuda_status {
    EMITTER0_CUDA_OK = 0,
    EMITTER0_CUDA_NO_DRIVER = 1, /* libcuda is not there, or too old */
    EMITTER0_CUDA_NO_DEVICE = 2, /* there is no such GPU */
    EMITTER0_CUDA_NO_MODULE = 3, /* the pack has no module of that name, or it is no CUDA program */
    EMITTER0_CUDA_NO_IMAGE = 4,  /* no image of the program suits the GPU */
    EMITTER0_CUDA_REFUSED = 5,   /* the driver refuses; `result` has its code */
    EMITTER0_CUDA_NO_SYMBOL = 6, /* the program has no such kernel or variable */
    EMITTER0_CUDA_MEMORY = 7
} emitter0_cuda_status;

struct emitter0_cuda;

/* A program in the driver. It is shared: loaded once, and unloaded when it was given back as often as it was asked for. */
typedef struct emitter0_cuda_program {
    struct emitter0_cuda *cuda;
    void *handle; /* CUlibrary, or CUmodule before CUDA 12 */
    const void *image_;
    unsigned long count_;
    struct emitter0_cuda_program *next_;
} emitter0_cuda_program;

/* The driver and one GPU. `sm` is its compute capability without the dot, and `place` says so to emitter_module_select. `message`
 * says what is wrong after a call that failed, and `result` is the driver's own code, or 0. */
typedef struct emitter0_cuda {
    char sm[16];
    emitter0_fact place[1];
    int result;
    char message[512];
    void *library_;
    void *context_;
    int device_;
    int has_libraries_;
    emitter0_cuda_program *programs_;
} emitter0_cuda;

/* Return a function of the driver, such as "cuMemAlloc_v2", or null. */
static inline void *emitter0_cuda_symbol(const emitter0_cuda *cuda, const char *name)
{
#if defined(_WIN32)
    FARPROC found = GetProcAddress((HMODULE)cuda->library_, name);
    void *address = NULL;
    memcpy(&address, &found, sizeof address);
    return address;
#else
    return dlsym(cuda->library_, name);
#endif
}

/* ISO C has no conversion from an object's address to a function's. */
#define EMITTER0_CUDA_FUNCTION_(type, variable, cuda, name)                                                                            \
    type variable = NULL;                                                                                                              \
    do {                                                                                                                               \
        void *address_ = emitter0_cuda_symbol(cuda, name);                                                                             \
        memcpy(&variable, &address_, sizeof variable);                                                                                 \
    } while (0)

static inline emitter0_cuda_status emitter0_cuda_fail_(emitter0_cuda *cuda, emitter0_cuda_status status, const char *what,
                                                       const char *detail)
{
    (void)snprintf(cuda->message, sizeof cuda->message, "%s: %s", what, detail);
    return status;
}

/* Say why the driver refuses, with its name for the code. */
static inline emitter0_cuda_status emitter0_cuda_refused_(emitter0_cuda *cuda, emitter0_cuda_status status, const char *what, int result)
{
    typedef int(EMITTER0_CUDA_CALL_ * get_name)(int, const char **);
    const char *name = NULL;
    EMITTER0_CUDA_FUNCTION_(get_name, function, cuda, "cuGetErrorName");
    cuda->result = result;
    if (function == NULL || function(result, &name) != 0 || name == NULL)
        name = "an error without a name";
    (void)snprintf(cuda->message, sizeof cuda->message, "%s: %s (%d)", what, name, result);
    return status;
}

/* Call a function of one pointer or number less often than its type is spelt: each returns a CUresult, or -1 if it is not there. */
static inline int emitter0_cuda_call_int_(const emitter0_cuda *cuda, const char *name, int argument)
{
    typedef int(EMITTER0_CUDA_CALL_ * type)(int);
    EMITTER0_CUDA_FUNCTION_(type, function, cuda, name);
    return function == NULL ? -1 : function(argument);
}

static inline int emitter0_cuda_call_pointer_(const emitter0_cuda *cuda, const char *name, void *argument)
{
    typedef int(EMITTER0_CUDA_CALL_ * type)(void *);
    EMITTER0_CUDA_FUNCTION_(type, function, cuda, name);
    return function == NULL ? -1 : function(argument);
}

static inline int emitter0_cuda_attribute_(const emitter0_cuda *cuda, int attribute, int *value)
{
    typedef int(EMITTER0_CUDA_CALL_ * type)(int *, int, int);
    EMITTER0_CUDA_FUNCTION_(type, function, cuda, "cuDeviceGetAttribute");
    return function == NULL ? -1 : function(value, attribute, cuda->device_);
}

static inline emitter0_cuda_status emitter0_cuda_find_device_(emitter0_cuda *cuda, int device)
{
    typedef int(EMITTER0_CUDA_CALL_ * get)(int *, int);
    int result, major = 0, minor = 0, count = 0;
    EMITTER0_CUDA_FUNCTION_(get, get_device, cuda, "cuDeviceGet");
    result = emitter0_cuda_call_int_(cuda, "cuInit", 0);
    if (result == 0)
        result = emitter0_cuda_call_pointer_(cuda, "cuDeviceGetCount", &count);
    if (result == 0 && (device < 0 || device >= count)) {
        (void)snprintf(cuda->message, sizeof cuda->message, "there is no GPU %d: the driver knows %d, counted from 0", device, count);
        return EMITTER0_CUDA_NO_DEVICE;
    }
    if (result == 0)
        result = get_device == NULL ? -1 : get_device(&cuda->device_, device);
    if (result == 0)
        result = emitter0_cuda_attribute_(cuda, 75, &major); /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
    if (result == 0)
        result = emitter0_cuda_attribute_(cuda, 76, &minor); /* ..._MINOR */
    if (result == -1)
        return emitter0_cuda_fail_(cuda, EMITTER0_CUDA_NO_DRIVER, "the CUDA driver", "not one: functions are missing");
    if (result != 0)
        return emitter0_cuda_refused_(cuda, EMITTER0_CUDA_NO_DEVICE, "the CUDA driver finds no GPU", result);
    (void)snprintf(cuda->sm, sizeof cuda->sm, "%d%d", major, minor);
    return EMITTER0_CUDA_OK;
}

/* Let go of the driver. */
static inline void emitter0_cuda_let_go_(emitter0_cuda *cuda)
{
#if defined(_WIN32)
    (void)FreeLibrary((HMODULE)cuda->library_);
#else
    (void)dlclose(cuda->library_);
#endif
    cuda->library_ = NULL;
}

/* Find the driver (`path`, or null for the system's own) and the GPU of number `device`, from 0. */
static inline emitter0_cuda_status emitter0_cuda_open(emitter0_cuda *cuda, const char *path, int device)
{
    emitter0_cuda_status status;
    memset(cuda, 0, sizeof *cuda);
    cuda->place[0].key = "sm";
    cuda->place[0].value = cuda->sm;
#if defined(_WIN32)
    cuda->library_ = (void *)LoadLibraryA(path != NULL ? path : "nvcuda.dll");
    if (cuda->library_ == NULL)
        return emitter0_cuda_fail_(cuda, EMITTER0_CUDA_NO_DRIVER, "there is no CUDA driver here", "nvcuda.dll was not found");
#else
    cuda->library_ = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (cuda->library_ == NULL && path == NULL)
        cuda->library_ = dlopen("libcuda.so", RTLD_NOW | RTLD_LOCAL);
    if (cuda->library_ == NULL) {
        const char *error = dlerror();
        return emitter0_cuda_fail_(cuda, EMITTER0_CUDA_NO_DRIVER, "there is no CUDA driver here", error != NULL ? error : "dlopen failed");
    }
#endif
    cuda->has_libraries_ = emitter0_cuda_symbol(cuda, "cuLibraryLoadData") != NULL; /* since CUDA 12.0 */
    status = emitter0_cuda_find_device_(cuda, device);
    if (status != EMITTER0_CUDA_OK)
        emitter0_cuda_let_go_(cuda);
    return status;
}

/* Make the GPU's primary context current where the thread has none, as the CUDA runtime does. emitter_cuda_load does it. */
static inline emitter0_cuda_status emitter0_cuda_need_context(emitter0_cuda *cuda)
{
    typedef int(EMITTER0_CUDA_CALL_ * retain)(void **, int);
    void *current = NULL;
    int result = emitter0_cuda_call_pointer_(cuda, "cuCtxGetCurrent", (void *)&current);
    EMITTER0_CUDA_FUNCTION_(retain, function, cuda, "cuDevicePrimaryCtxRetain");
    if (result == 0 && current != NULL)
        return EMITTER0_CUDA_OK;
    if (result == 0 && cuda->context_ == NULL)
        result = function == NULL ? -1 : function(&cuda->context_, cuda->device_);
    if (result == 0)
        result = emitter0_cuda_call_pointer_(cuda, "cuCtxSetCurrent", cuda->context_);
    return result == 0 ? EMITTER0_CUDA_OK
                       : emitter0_cuda_refused_(cuda, EMITTER0_CUDA_REFUSED, "the GPU gives no context", result);
}

/* Say what the module has code for, and that it does not suit. */
static inline emitter0_cuda_status emitter0_cuda_no_image_(emitter0_cuda *cuda, const emitter0_reader *reader,
                                                           const emitter0_module *module)
{
    const char *images = "GPUs that it does not name";
    emitter0_entry entry;
    uint32_t i;
    for (i = 0; i < module->metadata_count; i++)
        if (emitter0_module_metadata(reader, module, i, &entry) == EMITTER0_OK && strcmp(entry.key, "device.images") == 0)
            images = entry.value;
    (void)snprintf(cuda->message, sizeof cuda->message,
                   "module '%.80s': no image of the program suits this GPU: expected code for sm_%s, or PTX for it or an older one, "
                   "found %.200s",
                   module->name, cuda->sm, images);
    return EMITTER0_CUDA_NO_IMAGE;
}

static inline int emitter0_cuda_load_data_(const emitter0_cuda *cuda, void **handle, const void *image)
{
    typedef int(EMITTER0_CUDA_CALL_ * of_library)(void **, const void *, void *, void **, unsigned, void *, void **, unsigned);
    typedef int(EMITTER0_CUDA_CALL_ * of_module)(void **, const void *);
    if (cuda->has_libraries_) {
        EMITTER0_CUDA_FUNCTION_(of_library, function, cuda, "cuLibraryLoadData");
        return function == NULL ? -1 : function(handle, image, NULL, NULL, 0, NULL, NULL, 0);
    } else {
        EMITTER0_CUDA_FUNCTION_(of_module, function, cuda, "cuModuleLoadData");
        return function == NULL ? -1 : function(handle, image);
    }
}

/* Load the form of the module `name` that suits the GPU best, or share it if it is loaded. The pack must outlive the program. */
static inline emitter0_cuda_status emitter0_cuda_load(emitter0_cuda *cuda, const emitter0_reader *reader, const char *name,
                                                      emitter0_cuda_program **out)
{
    emitter0_module module;
    emitter0_alternative form;
    emitter0_cuda_program *program;
    emitter0_cuda_status status;
    int result;
    *out = NULL;
    cuda->result = 0;
    if (emitter0_module_find(reader, name, &module) != EMITTER0_OK)
        return emitter0_cuda_fail_(cuda, EMITTER0_CUDA_NO_MODULE, "the pack has no module of this name", name);
    if (emitter0_module_select(reader, &module, cuda->place, 1, &form) != EMITTER0_OK)
        return emitter0_cuda_no_image_(cuda, reader, &module);
    if (strcmp(form.kind, "cuda-relocatable") == 0)
        return emitter0_cuda_fail_(cuda, EMITTER0_CUDA_NO_IMAGE, name, "it has to be linked before it runs: nvcc -dlink -fatbin");
    if (strcmp(form.kind, "cuda") != 0 || form.size < 4)
        return emitter0_cuda_fail_(cuda, EMITTER0_CUDA_NO_MODULE, name, "no CUDA program");
    for (program = cuda->programs_; program != NULL; program = program->next_)
        if (program->image_ == form.data) {
            program->count_++;
            *out = program;
            return EMITTER0_CUDA_OK;
        }
    /* PTX is a text: emitter puts a NUL behind it, which the driver reads up to. */
    if (memcmp(form.data, "\177ELF", 4) != 0 && memcmp(form.data, "\120\355\125\272", 4) != 0
        && (((const char *)form.data + form.size >= (const char *)reader->base + reader->size)
            || ((const char *)form.data)[form.size] != '\0'))
        return emitter0_cuda_fail_(cuda, EMITTER0_CUDA_NO_IMAGE, name, "the text is not ended by a NUL: emit it again");
    status = emitter0_cuda_need_context(cuda);
    if (status != EMITTER0_CUDA_OK)
        return status;
    program = (emitter0_cuda_program *)calloc(1, sizeof *program);
    if (program == NULL)
        return emitter0_cuda_fail_(cuda, EMITTER0_CUDA_MEMORY, name, "out of memory");
    result = emitter0_cuda_load_data_(cuda, &program->handle, form.data);
    if (result != 0) {
        free(program);
        return emitter0_cuda_refused_(cuda, EMITTER0_CUDA_REFUSED, name, result);
    }
    program->cuda = cuda;
    program->image_ = form.data;
    program->count_ = 1;
    program->next_ = cuda->programs_;
    cuda->programs_ = program;
    *out = program;
    return EMITTER0_CUDA_OK;
}

/* Give a program back. The driver unloads it when all who loaded it have. */
static inline void emitter0_cuda_unload(emitter0_cuda_program *program)
{
    emitter0_cuda_program **link;
    if (program == NULL || --program->count_ > 0)
        return;
    for (link = &program->cuda->programs_; *link != NULL; link = &(*link)->next_)
        if (*link == program) {
            *link = program->next_;
            break;
        }
    (void)emitter0_cuda_call_pointer_(program->cuda, program->cuda->has_libraries_ ? "cuLibraryUnload" : "cuModuleUnload",
                                      program->handle);
    free(program);
}

/* Find a kernel: a handle for cuLaunchKernel. */
static inline emitter0_cuda_status emitter0_cuda_kernel(emitter0_cuda_program *program, const char *name, void **out)
{
    typedef int(EMITTER0_CUDA_CALL_ * type)(void **, void *, const char *);
    emitter0_cuda *cuda = program->cuda;
    int result;
    EMITTER0_CUDA_FUNCTION_(type, function, cuda, cuda->has_libraries_ ? "cuLibraryGetKernel" : "cuModuleGetFunction");
    *out = NULL;
    result = function == NULL ? -1 : function(out, program->handle, name);
    return result == 0 ? EMITTER0_CUDA_OK : emitter0_cuda_refused_(cuda, EMITTER0_CUDA_NO_SYMBOL, name, result);
}

/* Find a __device__ or __constant__ variable: its address on the GPU and its size in bytes. */
static inline emitter0_cuda_status emitter0_cuda_variable(emitter0_cuda_program *program, const char *name, uint64_t *address,
                                                          size_t *size)
{
    typedef int(EMITTER0_CUDA_CALL_ * type)(uint64_t *, size_t *, void *, const char *);
    emitter0_cuda *cuda = program->cuda;
    int result;
    EMITTER0_CUDA_FUNCTION_(type, function, cuda, cuda->has_libraries_ ? "cuLibraryGetGlobal" : "cuModuleGetGlobal_v2");
    *address = 0;
    *size = 0;
    result = function == NULL ? -1 : function(address, size, program->handle, name);
    return result == 0 ? EMITTER0_CUDA_OK : emitter0_cuda_refused_(cuda, EMITTER0_CUDA_NO_SYMBOL, name, result);
}

/* Unload what is still loaded, and let go of the GPU and the driver. */
static inline void emitter0_cuda_close(emitter0_cuda *cuda)
{
    while (cuda->programs_ != NULL) {
        cuda->programs_->count_ = 1;
        emitter0_cuda_unload(cuda->programs_);
    }
    if (cuda->library_ == NULL)
        return;
    if (cuda->context_ != NULL)
        (void)emitter0_cuda_call_int_(cuda, "cuDevicePrimaryCtxRelease_v2", cuda->device_);
    emitter0_cuda_let_go_(cuda);
    cuda->context_ = NULL;
}

#ifdef __cplusplus
}
#endif

#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

/* The names without a number, those of the version that is included first. */
#ifndef emitter_cuda
#define EMITTER_CUDA_OK EMITTER0_CUDA_OK
#define EMITTER_CUDA_NO_DRIVER EMITTER0_CUDA_NO_DRIVER
#define EMITTER_CUDA_NO_DEVICE EMITTER0_CUDA_NO_DEVICE
#define EMITTER_CUDA_NO_MODULE EMITTER0_CUDA_NO_MODULE
#define EMITTER_CUDA_NO_IMAGE EMITTER0_CUDA_NO_IMAGE
#define EMITTER_CUDA_REFUSED EMITTER0_CUDA_REFUSED
#define EMITTER_CUDA_NO_SYMBOL EMITTER0_CUDA_NO_SYMBOL
#define EMITTER_CUDA_MEMORY EMITTER0_CUDA_MEMORY
#define emitter_cuda emitter0_cuda
#define emitter_cuda_close emitter0_cuda_close
#define emitter_cuda_kernel emitter0_cuda_kernel
#define emitter_cuda_load emitter0_cuda_load
#define emitter_cuda_need_context emitter0_cuda_need_context
#define emitter_cuda_open emitter0_cuda_open
#define emitter_cuda_program emitter0_cuda_program
#define emitter_cuda_status emitter0_cuda_status
#define emitter_cuda_symbol emitter0_cuda_symbol
#define emitter_cuda_unload emitter0_cuda_unload
#define emitter_cuda_variable emitter0_cuda_variable
#endif

#endif /* EMITTER0_CUDA_H */
