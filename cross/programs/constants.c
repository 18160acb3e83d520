/* SPDX-License-Identifier: 0BSD
 * Gives functions that a code generator wrote their constants: __init_NAME for each function NAME of the modules of a library, with
 * the tensors that the function takes, in order. Nothing is copied, and nothing is allocated here.
 *
 *     cc -D_GNU_SOURCE -I "$(emitter --include-dir)" constants.c -o constants -ldl
 *     ./constants lazily ./libm.so sm=87 tensorrt=10.3.0
 *     ./constants eagerly ./libm.so sm=87 tensorrt=10.3.0
 *
 * With -DHEADER='"m.h"' -DNAME=m the pack is linked with the program, and no path is given; there need not be an operating system then.
 * What stands between the two lines is what a code generator writes; the rest serves every one of them. */

#ifndef HEADER
#define EMITTER_LIBRARY
#endif
#include "emitter.h"
#ifdef HEADER
#include HEADER
#endif

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------- */

static const emitter_dltensor *plan_constants, *infer_constants, *calibrate_constants, *kernel_constants;

static int __init_plan(const emitter_dltensor *constants, int count)
{
    plan_constants = constants;
    return count == 2 ? 0 : 1;
}

static int __init_infer(const emitter_dltensor *constants, int count)
{
    infer_constants = constants;
    return count == 3 ? 0 : 1;
}

static int __init_calibrate(const emitter_dltensor *constants, int count)
{
    calibrate_constants = constants;
    return count == 1 && constants[0].ndim == 0 ? 0 : 1;
}

static int __init_kernel(const emitter_dltensor *constants, int count)
{
    kernel_constants = constants;
    return count == 1 ? 0 : 1;
}

typedef struct generated_function {
    const char *name;
    int (*init)(const emitter_dltensor *constants, int count);
    emitter_dltensor *constants; /* room for them: the generator knows how many they are */
    size_t capacity;
} generated_function;

static emitter_dltensor plan_room[2], infer_room[3], calibrate_room[1], kernel_room[1];

static const generated_function generated[] = {
    {"plan", __init_plan, plan_room, 2},
    {"infer", __init_infer, infer_room, 3},
    {"calibrate", __init_calibrate, calibrate_room, 1},
    {"kernel", __init_kernel, kernel_room, 1},
};

/* b: double[4], w: float[3][4]. Returns b[0] + ... + b[3] + w[0][0] + ... + w[2][3]. */
static double infer(void)
{
    const double *b = (const double *)infer_constants[0].data;
    const float *w = (const float *)infer_constants[1].data;
    double sum = 0;
    int i;
    for (i = 0; i < 4; i++)
        sum += b[i];
    for (i = 0; i < 12; i++)
        sum += w[i];
    return sum;
}

/* ---------------------------------------------------------------- */

/* A loader of modules of any kind: it initialises the functions that the module has. */
static int build(const emitter_module_source *source, void **handle)
{
    uint32_t i;
    size_t j;
    printf("build %s: %s %" PRIu32 "\n", source->module.name, source->alternative.kind, source->alternative.schema_version);
    *handle = (void *)(uintptr_t)source->alternative.data;
    for (i = 0; i < source->module.function_count; i++) {
        emitter_function function;
        if (emitter_module_function(source->reader, &source->module, i, &function) != EMITTER_OK)
            return 1;
        for (j = 0; j < sizeof generated / sizeof *generated; j++)
            if (strcmp(generated[j].name, function.name) == 0) {
                const generated_function *one = &generated[j];
                if (emitter_function_arguments(source->reader, &function, one->constants, one->capacity) != EMITTER_OK
                    || one->init(one->constants, (int)function.argument_count) != 0)
                    return 1;
                printf("__init_%s of %" PRIu32 "\n", function.name, function.argument_count);
            }
    }
    return 0;
}

/* Where an address is in the pack: what is not in it was copied. */
static long at(const emitter_reader *reader, const void *address)
{
    uintptr_t base = (uintptr_t)reader->base, place = (uintptr_t)address;
    return place >= base && place - base <= reader->size ? (long)(place - base) : -1;
}

static int print_modules(const emitter_reader *reader)
{
    emitter_module module;
    uint32_t i, j, k;
    for (i = 0; i < emitter_module_count(reader); i++) {
        if (emitter_module_at(reader, i, &module) != EMITTER_OK)
            return 1;
        printf("module %s\n", module.name);
        for (j = 0; j < module.alternative_count; j++) {
            emitter_alternative one;
            if (emitter_module_alternative(reader, &module, j, &one) != EMITTER_OK)
                return 1;
            printf("  %s %" PRIu32 ": %lu bytes at %ld, crc32c 0x%08" PRIx32 "\n", one.kind, one.schema_version, (unsigned long)one.size,
                   at(reader, one.data), emitter_crc32c(one.data, (size_t)one.size, 0));
        }
        for (j = 0; j < module.function_count; j++) {
            emitter_function function;
            emitter_tensor tensor;
            if (emitter_module_function(reader, &module, j, &function) != EMITTER_OK)
                return 1;
            printf("  function %s:", function.name);
            for (k = 0; k < function.argument_count; k++) {
                if (emitter_function_argument(reader, &function, k, &tensor) != EMITTER_OK)
                    return 1;
                printf(" %s at %ld", tensor.name, at(reader, tensor.data));
            }
            printf("\n");
        }
    }
    return 0;
}

static int run(const emitter_reader *reader, int eager, const emitter_fact *place, size_t count)
{
    static const char *const kinds[] = {"graph", "tensorrt", "cuda", "raw", "library"};
    static emitter_module_loader loaders[5];
    static emitter_module_slot slots[16];
    static char why[500];
    emitter_modules modules;
    emitter_function function;
    emitter_status status;
    size_t i;
    if (emitter_module_count(reader) > 16 || print_modules(reader) != 0)
        return 1;
    for (i = 0; i < 5; i++) {
        loaders[i].kind = kinds[i];
        loaders[i].schema_version_min = 1;
        loaders[i].schema_version_max = 2;
        loaders[i].build = build;
    }
    memset(&modules, 0, sizeof modules);
    modules.reader = reader;
    modules.loaders = loaders;
    modules.loader_count = 5;
    modules.place = place;
    modules.place_count = count;
    modules.slots = slots;
    if (eager) {
        status = emitter_modules_build_all(&modules);
    } else {
        /* On first use: the module that has the function, and what it imports. */
        if (emitter_function_find(reader, "infer", &function) != EMITTER_OK)
            return 1;
        status = emitter_modules_build(&modules, function.module);
    }
    if (status != EMITTER_OK) {
        (void)emitter_modules_explain(&modules, why, sizeof why);
        printf("%s\n", why);
        return 1;
    }
    printf("infer %ld\n", (long)infer());
    /* Constants that several functions take are the same memory, that of the file. */
    printf("shared %d\n", infer_constants[1].data == infer_constants[2].data && infer_constants[1].data == plan_constants[0].data
                              && infer_constants[0].data == plan_constants[1].data
                              && (!eager || kernel_constants[0].data == infer_constants[1].data));
    printf("engine at %ld, kernel %s\n", at(reader, slots[emitter_module_count(reader) - 2].handle),
           kernel_constants == NULL ? "not built" : "built");
    emitter_modules_destroy(&modules);
    return 0;
}

int main(int argc, char **argv)
{
    static emitter_fact place[8];
    size_t count = 0;
    int i, first, eager = argc > 1 && strcmp(argv[1], "eagerly") == 0, failed;
#ifdef HEADER
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
    emitter_reader reader;
    first = argc < 2 ? argc : 2; /* without an operating system there are no arguments */
#else
    emitter_library library;
    char message[512];
    first = 3;
#endif
    if (argc < first || argc - first > 8)
        return 2;
    for (i = first; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (equals == NULL)
            return 2;
        *equals = 0;
        place[count].key = argv[i];
        place[count++].value = equals + 1;
    }
#ifdef HEADER
    if (emitter_open_expect(&reader, JOIN(NAME, _data)(), (size_t)JOIN(NAME, _data_size)(), JOIN(NAME, _SCHEMA)) != EMITTER_OK)
        return 2;
    failed = run(&reader, eager, place, count);
#else
    if (emitter_library_open(&library, argv[2], message, sizeof message) != EMITTER_OK) {
        fprintf(stderr, "error: %s\n", message);
        return 2;
    }
    failed = run(&library.reader, eager, place, count);
    emitter_library_close(&library);
#endif
    return failed;
}
