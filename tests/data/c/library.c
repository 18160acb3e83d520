/* SPDX-License-Identifier: 0BSD
 * library PATH_OR_SONAME ...: opens each library, in order and all at once, and prints the number of packs, then for each pack its first
 * tensor's name and first byte; or the message. A `-` closes the library that was opened last. */

#define EMITTER_LIBRARY
#include "emitter.h"

#include "../../../cross/programs/arguments.h"

int main(int argc, char **argv)
{
    emitter_library libraries[16];
    int i, count = 0;
    argv = utf8_arguments(argc, argv);
    for (i = 1; i < argc && count < 16; i++) {
        char message[512] = "none";
        emitter_reader reader;
        emitter_tensor tensor;
        uint32_t number = 0;
        if (strcmp(argv[i], "-") == 0) {
            emitter_library_close(&libraries[--count]);
            continue;
        }
        if (emitter_library_open(&libraries[count], argv[i], message, sizeof message) != EMITTER_OK) {
            printf("refused: %s\n", message);
            if (libraries[count].handle != NULL || emitter_count(&libraries[count].reader) != 0)
                return 1;
            continue;
        }
        while (emitter_library_pack(&libraries[count], number, &reader) == EMITTER_OK)
            number++;
        if (emitter_at(&libraries[count].reader, 0, &tensor) != EMITTER_OK)
            return 1;
        printf("%u: %s %d\n", (unsigned)number, tensor.name, *(const unsigned char *)tensor.data);
        count++;
    }
    while (count > 0)
        emitter_library_close(&libraries[--count]);
    return 0;
}
