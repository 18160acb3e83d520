/* SPDX-License-Identifier: 0BSD
 * Prints what a pack holds that was written to memory by itself, not linked with the program: a .pack at a flash address.
 *
 *     emitter --target thumbv7em-none-eabihf model.safetensors -o model.pack
 *     arm-none-eabi-gcc ... -I "$(emitter --include-dir)" -DADDRESS=0x21000000 -DCAPACITY=0x100000 flash.c
 *
 * CAPACITY is how much of that memory may be read; the pack itself says how much of it is the pack. */

#include "print.h"

int main(void)
{
    emitter_reader reader;
    emitter_status status = emitter_open(&reader, (const void *)(uintptr_t)ADDRESS, (size_t)CAPACITY);
    if (status != EMITTER_OK) {
        fprintf(stderr, "error: %s\n", emitter_status_string(status));
        return 1;
    }
    return print_pack(&reader);
}
