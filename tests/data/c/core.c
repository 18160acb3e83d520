/* SPDX-License-Identifier: 0BSD
 * A program without a C library: it links only if the core calls nothing. */

#define EMITTER_IMPLEMENTATION
#include "emitter.h"

void _start(void);
void _start(void)
{
    for (;;) {
    }
}
