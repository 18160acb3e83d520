/* SPDX-License-Identifier: 0BSD
 * dlpack PACK: fills a DLTensor. dlpack.h stands before emitter.h or, with -DLATE, between two inclusions of it. */

#ifdef LATE
#include "emitter.h"
#endif
#include "dlpack/dlpack.h"
#include "emitter.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static uint64_t memory[1 << 13];
    emitter_reader reader;
    emitter_tensor tensor;
    DLTensor out;
    size_t size;
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL)
        return 2;
    size = fread(memory, 1, sizeof memory, file);
    (void)fclose(file);
    if (emitter_open(&reader, memory, size) != EMITTER_OK)
        return 3;
    if (emitter_find(&reader, "conv1.weight", &tensor) != EMITTER_OK || emitter_to_dlpack(&tensor, &out) != EMITTER_OK)
        return 4;
    if (out.data != tensor.data || out.device.device_type != kDLCPU || out.device.device_id != 0 || out.ndim != 2 || out.dtype.code != 2
        || out.dtype.bits != 32 || out.dtype.lanes != 1 || out.shape[0] != 2 || out.shape[1] != 3 || out.strides[0] != 3
        || out.strides[1] != 1 || out.byte_offset != 0)
        return 5;
    if (emitter_find(&reader, "empty", &tensor) != EMITTER_OK || emitter_to_dlpack(&tensor, &out) != EMITTER_OK || out.data != NULL
        || out.shape[1] != 0)
        return 6;
    if (emitter_find(&reader, "scalar", &tensor) != EMITTER_OK || emitter_to_dlpack(&tensor, &out) != EMITTER_OK || out.ndim != 0)
        return 7;
    if (emitter_find(&reader, "blocks", &tensor) != EMITTER_OK || emitter_to_dlpack(&tensor, &out) != EMITTER_ENCODED)
        return 8;
    if (out.data != NULL || out.device.device_type != 0 || out.ndim != 0 || out.shape != NULL || out.dtype.bits != 0)
        return 9;
    memset(&out, 0xaa, sizeof out);
    if (emitter_to_dlpack(NULL, &out) != EMITTER_ARGUMENT || out.data != NULL || out.strides != NULL || out.byte_offset != 0)
        return 10;
    return emitter_to_dlpack(&tensor, NULL) != EMITTER_ARGUMENT;
}
