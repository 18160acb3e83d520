/* SPDX-License-Identifier: 0BSD
 * Prints what a pack holds, a line a tensor: dtype, shape, alignment in memory, CRC-32C of the data as they are read here, name. */

#ifndef PRINT_H
#define PRINT_H

#include <inttypes.h>
#include <stdio.h>

#include "emitter.h"

/* Return 0, or 1 after saying on standard error what is wrong with the pack. */
static int print_pack(emitter_reader *reader)
{
    uint32_t i;
    int32_t dim;
    emitter_status status = emitter_validate(reader);
    if (status != EMITTER_OK) {
        fprintf(stderr, "error: %s: %s\n", emitter_status_string(status), reader->where);
        return 1;
    }
    for (i = 0; i < emitter_count(reader); i++) {
        emitter_tensor tensor, found;
        status = emitter_at(reader, i, &tensor);
        if (status == EMITTER_OK)
            status = emitter_find(reader, tensor.name, &found);
        if (status == EMITTER_OK)
            status = emitter_check_tensor(&found);
        if (status != EMITTER_OK) {
            fprintf(stderr, "error: %s: %s\n", tensor.name, emitter_status_string(status));
            return 1;
        }
        printf("%s [", emitter_dtype_name(found.dtype_code, found.dtype_bits));
        for (dim = 0; dim < found.ndim; dim++)
            printf(dim ? ",%" PRId64 : "%" PRId64, found.shape[dim]);
        printf("] %s 0x%08" PRIx32 " %s\n", (uintptr_t)found.data % found.alignment ? "MISALIGNED" : "aligned",
               emitter_crc32c(found.data, (size_t)found.nbytes, 0), found.name);
    }
    return 0;
}

#endif
