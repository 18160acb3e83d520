/* SPDX-License-Identifier: 0BSD
 * Measures inside a process, and prints seconds:
 *
 *     lookup LIBRARY open      load the library, find a tensor, read its first byte
 *     lookup LIBRARY lookup    find one tensor by name, the mean over all tensors in a shuffled order */

#define EMITTER_LIBRARY
#include "emitter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOKUPS 1000000u

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    char message[512];
    emitter_library library;
    emitter_tensor tensor;
    double start = now(), elapsed;
    uint32_t i, count, step = 2654435761u;
    const char **names;
    uint64_t sum = 0;

    if (argc != 3)
        return 2;
    if (emitter_library_open(&library, argv[1], message, sizeof message) != EMITTER_OK) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    count = emitter_count(&library.reader);
    if (emitter_at(&library.reader, count / 2, &tensor) != EMITTER_OK
        || emitter_find(&library.reader, tensor.name, &tensor) != EMITTER_OK)
        return 1;
    sum += *(const unsigned char *)tensor.data;
    elapsed = now() - start;

    if (strcmp(argv[2], "lookup") == 0) {
        names = (const char **)malloc(count * sizeof *names);
        if (names == NULL)
            return 1;
        for (i = 0; i < count; i++) {
            if (emitter_at(&library.reader, i, &tensor) != EMITTER_OK)
                return 1;
            names[i] = tensor.name;
        }
        start = now();
        for (i = 0; i < LOOKUPS; i++) {
            if (emitter_find(&library.reader, names[i * step % count], &tensor) != EMITTER_OK)
                return 1;
            sum += (uintptr_t)tensor.data;
        }
        elapsed = (now() - start) / LOOKUPS;
        free(names);
    }
    /* The sum is printed so that no lookup can be left out. */
    printf("%.9f %llu\n", elapsed, (unsigned long long)sum);
    emitter_library_close(&library);
    return 0;
}
