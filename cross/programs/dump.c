/* SPDX-License-Identifier: 0BSD
 * Opens libraries that emitter wrote, all of them before it reads any, and prints what they hold.
 *
 *     cc -D_GNU_SOURCE -I "$(emitter --include-dir)" dump.c -o dump -ldl
 *     ./dump [--global | --stats] ./libresnet18.so ...
 *
 * With --global their symbols are also put where every later library looks first; Windows knows no such place. With --stats it
 * prints what `emitter inspect --tensors --stats` prints of the same files on the host, line for line. */

#define EMITTER_LIBRARY
#include "print.h"

#include "arguments.h"
#include "stats.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int first = 1, i, failed = 0, stats = 0;
    emitter_library *libraries = (emitter_library *)calloc((size_t)argc, sizeof *libraries);
    if (libraries == NULL)
        return 2;
    argv = utf8_arguments(argc, argv);
#ifndef _WIN32
    if (argc > 1 && strcmp(argv[1], "--global") == 0) {
        first = 2;
        for (i = first; i < argc; i++)
            if (dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL) == NULL)
                fprintf(stderr, "error: %s\n", dlerror());
    }
#endif
    if (argc > 1 && strcmp(argv[1], "--stats") == 0) {
        first = 2;
        stats = 1;
    }
    for (i = first; i < argc; i++) {
        char message[512];
        if (emitter_library_open(&libraries[i], argv[i], message, sizeof message) != EMITTER_OK) {
            fprintf(stderr, "error: %s\n", message);
            failed = 1;
        }
    }
    for (i = first; i < argc && !failed; i++)
        failed = stats ? print_stats(&libraries[i].reader) : print_pack(&libraries[i].reader);
    for (i = first; i < argc; i++)
        emitter_library_close(&libraries[i]);
    free(libraries);
    return failed;
}
