/* SPDX-License-Identifier: 0BSD
 * Two versions of the interface in one source file: the second is emitter.h with its number changed to 1. The short names are those of
 * the first. */

#include "emitter.h"
#include "emitter1.h"

#include <stdio.h>

int main(void)
{
    static const uint64_t memory[2] = {0, 0};
    emitter_reader reader;
    emitter0_reader first;
    emitter1_reader second;
    if (emitter_open(&reader, memory, sizeof memory) != EMITTER_NOT_A_PACK)
        return 1;
    if (emitter0_open(&first, memory, sizeof memory) != EMITTER0_NOT_A_PACK)
        return 1;
    if (emitter1_open(&second, memory, sizeof memory) != EMITTER1_NOT_A_PACK)
        return 1;
    return EMITTER_INTERFACE;
}
