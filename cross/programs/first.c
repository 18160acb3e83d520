/* SPDX-License-Identifier: 0BSD
 * Opens a library, reads the first byte of one tensor, and prints the most memory that the program has had, in KiB.
 *
 *     ./first ./libresnet18.so conv1.weight */

#define EMITTER_LIBRARY
#include "emitter.h"

#include <stdio.h>

/* VmHWM of Linux: unlike ru_maxrss it does not count what the parent had when it started this program. */
static long peak(void)
{
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "VmHWM: %ld", &kib) == 1)
            break;
    if (status != NULL)
        fclose(status);
    return kib;
}

int main(int argc, char **argv)
{
    char message[512];
    emitter_library library;
    emitter_tensor tensor;
    volatile unsigned char byte;

    if (argc != 3)
        return 2;
    if (emitter_library_open(&library, argv[1], message, sizeof message) != EMITTER_OK) {
        fprintf(stderr, "error: %s\n", message);
        return 1;
    }
    if (emitter_find(&library.reader, argv[2], &tensor) != EMITTER_OK || tensor.nbytes == 0)
        return 1;
    byte = *(const unsigned char *)tensor.data;
    (void)byte;
    printf("%ld\n", peak());
    emitter_library_close(&library);
    return 0;
}
