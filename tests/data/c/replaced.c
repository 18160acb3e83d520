/* SPDX-License-Identifier: 0BSD
 * replaced FIRST SECOND: opens the first DLL, puts the second in its place while it is loaded, and opens that path again. */

#define EMITTER_LIBRARY
#include "emitter.h"

static void print(const emitter_library *library)
{
    emitter_tensor tensor;
    if (emitter_at(&library->reader, 0, &tensor) == EMITTER_OK)
        printf("%s %d\n", tensor.name, *(const unsigned char *)tensor.data);
}

int main(int argc, char **argv)
{
    emitter_library first, second;
    char message[512], aside[512];
    if (argc != 3 || emitter_library_open(&first, argv[1], message, sizeof message) != EMITTER_OK)
        return 1;
    (void)snprintf(aside, sizeof aside, "%s.old", argv[1]);
    if (!MoveFileA(argv[1], aside) || !MoveFileA(argv[2], argv[1]))
        return 2;
    if (emitter_library_open(&second, argv[1], message, sizeof message) == EMITTER_OK)
        print(&second);
    else
        printf("refused: %s\n", message);
    print(&first);
    emitter_library_close(&second);
    emitter_library_close(&first);
    if (emitter_library_open(&second, argv[1], message, sizeof message) != EMITTER_OK)
        return 3;
    print(&second);
    emitter_library_close(&second);
    return 0;
}
