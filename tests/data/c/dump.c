/* SPDX-License-Identifier: 0BSD
 * dump PACK: prints everything that the interface tells about a pack, one item a line, bytes in hexadecimal. */

#include "emitter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void hex(const void *data, size_t size)
{
    const unsigned char *byte = (const unsigned char *)data;
    size_t i;
    for (i = 0; i < size; i++)
        printf("%02x", byte[i]);
}

static void dims(const int64_t *values, int32_t ndim)
{
    int32_t i;
    for (i = 0; i < ndim; i++)
        printf(i ? ",%" PRId64 : "%" PRId64, values[i]);
    printf(" ");
}

static int metadata(const emitter_reader *reader, const emitter_tensor *tensor)
{
    uint32_t i;
    for (i = 0; i < emitter_metadata_count(reader, tensor); i++) {
        emitter_entry entry, found;
        if (emitter_metadata_at(reader, tensor, i, &entry) != EMITTER_OK
            || emitter_metadata_find(reader, tensor, entry.key, &found) != EMITTER_OK || found.value != entry.value)
            return 1;
        printf("  ");
        hex(entry.key, entry.key_length);
        printf("=");
        hex(entry.value, entry.value_length);
        printf("\n");
    }
    return 0;
}

int main(int argc, char **argv)
{
    static uint64_t memory[1 << 16];
    emitter_reader reader;
    emitter_status status;
    size_t size;
    uint32_t i;
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL)
        return 2;
    size = fread(memory, 1, sizeof memory, file);
    (void)fclose(file);
    status = emitter_open(&reader, memory, size);
    if (status == EMITTER_OK)
        status = emitter_validate(&reader);
    if (status == EMITTER_OK)
        status = emitter_check(&reader);
    if (status != EMITTER_OK) {
        printf("%s: %s %" PRIu32 "\n", emitter_status_string(status), reader.where, reader.where_record);
        return 1;
    }
    printf("schema %016" PRIx64 " alignment %" PRIu32 " version %s\n", reader.schema, reader.alignment, emitter_model_version(&reader));
    if (metadata(&reader, NULL) != 0)
        return 1;
    for (i = 0; i < emitter_count(&reader); i++) {
        emitter_tensor at, tensor;
        if (emitter_at(&reader, i, &at) != EMITTER_OK || emitter_find(&reader, at.name, &tensor) != EMITTER_OK || at.name != tensor.name
            || emitter_check_tensor(&tensor) != EMITTER_OK)
            return 1;
        hex(tensor.name, tensor.name_length);
        printf(" %s %d:%d:%d %d ", emitter_dtype_name(tensor.dtype_code, tensor.dtype_bits), tensor.dtype_code, tensor.dtype_bits,
               tensor.dtype_lanes, tensor.encoding);
        dims(tensor.shape, tensor.ndim);
        dims(tensor.strides, tensor.ndim);
        printf("%" PRIu32 " %08" PRIx32 " ", tensor.alignment, tensor.crc32c);
        hex(tensor.data, (size_t)tensor.nbytes);
        printf("\n");
        if (metadata(&reader, &tensor) != 0)
            return 1;
    }
    return 0;
}
