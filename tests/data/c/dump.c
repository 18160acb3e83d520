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

static void entry_line(const emitter_entry *entry)
{
    printf("  ");
    hex(entry->key, entry->key_length);
    printf("=");
    hex(entry->value, entry->value_length);
    printf("\n");
}

static int metadata(const emitter_reader *reader, const emitter_tensor *tensor)
{
    uint32_t i;
    for (i = 0; i < emitter_metadata_count(reader, tensor); i++) {
        emitter_entry entry, found;
        if (emitter_metadata_at(reader, tensor, i, &entry) != EMITTER_OK
            || emitter_metadata_find(reader, tensor, entry.key, &found) != EMITTER_OK || found.value != entry.value)
            return 1;
        entry_line(&entry);
    }
    return 0;
}

static int module_lines(const emitter_reader *reader, const emitter_module *module)
{
    static const emitter_fact places[3][2] = {{{"sm", "87"}, {"tensorrt", "10.3"}}, {{"driver", "551"}, {"sm", "90"}}, {{"", ""}, {"", ""}}};
    emitter_alternative one;
    emitter_module child;
    emitter_function function;
    emitter_tensor tensor;
    emitter_entry entry;
    uint32_t i, j;
    printf("module %s\n", module->name);
    for (i = 0; i < module->alternative_count; i++) {
        if (emitter_module_alternative(reader, module, i, &one) != EMITTER_OK)
            return 1;
        printf("  %s %" PRIu32 " %" PRIu32 " %08" PRIx32 " ", one.kind, one.schema_version, one.alignment, one.crc32c);
        hex(one.data, (size_t)one.size);
        printf("\n");
    }
    for (i = 0; i < 3; i++) {
        if (emitter_module_select(reader, module, places[i], i < 2 ? 2 : 0, &one) != EMITTER_OK)
            return 1;
        printf("  chosen %" PRIu32 "\n", one.index);
    }
    for (i = 0; i < module->import_count; i++) {
        if (emitter_module_import(reader, module, i, &child) != EMITTER_OK)
            return 1;
        printf("  import %s\n", child.name);
    }
    for (i = 0; i < module->function_count; i++) {
        if (emitter_module_function(reader, module, i, &function) != EMITTER_OK)
            return 1;
        printf("  function %s:", function.name);
        for (j = 0; j < function.argument_count; j++) {
            if (emitter_function_argument(reader, &function, j, &tensor) != EMITTER_OK)
                return 1;
            printf(" %s", tensor.name);
        }
        printf("\n");
    }
    for (i = 0; i < module->metadata_count; i++) {
        if (emitter_module_metadata(reader, module, i, &entry) != EMITTER_OK)
            return 1;
        entry_line(&entry);
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
    for (i = 0; i < emitter_module_count(&reader); i++) {
        emitter_module module;
        if (emitter_module_at(&reader, i, &module) != EMITTER_OK || module_lines(&reader, &module) != 0)
            return 1;
    }
    return 0;
}
