/* Prints the modules of a pack, and what loaders that only say their names make of them; or judges many damaged packs.
 *
 *     modules PACK [KEY=VALUE ...]
 *     modules PACK --damage START END      for each byte of that range and each of some values: 1 if the pack is valid, 0 if not
 *     modules PACK --words START END       the same for each word of 32 bits
 */
#include "emitter.h"

#ifdef WITH_DLPACK
#include <dlpack/dlpack.h>
#define SAME(theirs, ours, name) typedef char same_##name[offsetof(DLTensor, theirs) == offsetof(emitter_dltensor, ours) ? 1 : -1]
typedef char same_size[sizeof(DLTensor) == sizeof(emitter_dltensor) ? 1 : -1];
SAME(data, data, data);
SAME(device.device_type, device_type, device_type);
SAME(device.device_id, device_id, device_id);
SAME(ndim, ndim, ndim);
SAME(dtype.code, dtype_code, code);
SAME(dtype.bits, dtype_bits, bits);
SAME(dtype.lanes, dtype_lanes, lanes);
SAME(shape, shape, shape);
SAME(strides, strides, strides);
SAME(byte_offset, byte_offset, byte_offset);
#endif

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char *memory; /* the pack, aligned */
static size_t size;

static int read_pack(const char *path)
{
    static uint64_t room[1 << 16];
    FILE *file = fopen(path, "rb");
    size_t at;
    if (file == NULL)
        return 0;
    at = (size_t)(64 - ((uintptr_t)room & 63u)) & 63u;
    memory = (unsigned char *)room + at;
    size = fread(memory, 1, sizeof room - 64, file);
    return fclose(file) == 0 && size > 0;
}

static int build(const emitter_module_source *source, void **handle)
{
    uint32_t i;
    printf("build %s: %s %" PRIu32, source->module.name, source->alternative.kind, source->alternative.schema_version);
    for (i = 0; i < source->module.import_count; i++)
        printf(" <- %s", (const char *)emitter_source_import(source, i));
    printf("%s\n", emitter_source_import(source, i) == NULL ? "" : " and more");
    *handle = (void *)(uintptr_t)source->module.name;
    return strcmp(source->module.name, (const char *)source->context) == 0;
}

static void destroy(void *handle, void *context)
{
    (void)context;
    printf("destroy %s\n", (const char *)handle);
}

static void print_module(const emitter_reader *reader, const emitter_module *module)
{
    uint32_t i, j;
    printf("module %" PRIu32 " %s\n", module->index, module->name);
    for (i = 0; i < module->alternative_count; i++) {
        emitter_alternative one;
        if (emitter_module_alternative(reader, module, i, &one) != EMITTER_OK)
            exit(3);
        printf("  alternative %" PRIu32 ": %s %" PRIu32 ", %" PRIu64 " bytes at %zu, crc %s\n", one.index, one.kind, one.schema_version,
               one.size, (size_t)((const unsigned char *)one.data - memory),
               emitter_crc32c(one.data, (size_t)one.size, 0) == one.crc32c ? "right" : "wrong");
    }
    for (i = 0; i < module->import_count; i++) {
        emitter_module child;
        if (emitter_module_import(reader, module, i, &child) != EMITTER_OK)
            exit(3);
        printf("  import %s\n", child.name);
    }
    for (i = 0; i < module->function_count; i++) {
        emitter_function function;
        emitter_dltensor arguments[8];
        if (emitter_module_function(reader, module, i, &function) != EMITTER_OK
            || emitter_function_arguments(reader, &function, arguments, 8) != EMITTER_OK)
            exit(3);
        printf("  function %s:", function.name);
        for (j = 0; j < function.argument_count; j++) {
            emitter_tensor tensor;
            if (emitter_function_argument(reader, &function, j, &tensor) != EMITTER_OK || tensor.data != arguments[j].data
                || tensor.shape != arguments[j].shape)
                exit(3);
            printf(" %s[%d]@%zu", tensor.name, (int)arguments[j].ndim, (size_t)((const unsigned char *)tensor.data - memory));
        }
        printf("\n");
    }
    for (i = 0; i < module->metadata_count; i++) {
        emitter_entry entry;
        if (emitter_module_metadata(reader, module, i, &entry) != EMITTER_OK)
            exit(3);
        printf("  metadata %s=%s\n", entry.key, entry.value);
    }
}

static int print_all(const emitter_reader *reader, int count, char **facts)
{
    static const char *const kinds[] = {"graph", "tensorrt", "cuda", "raw", "library"};
    static emitter_module_slot slots[64];
    static emitter_fact place[16];
    static char text[1000], cut[20];
    emitter_module_loader loaders[5];
    emitter_modules modules;
    emitter_module module;
    emitter_alternative chosen;
    const char *unbuildable = "", *unknown = "";
    size_t known = 0, length, facts_known = 0;
    uint32_t i;
    int argument;
    for (argument = 0; argument < count; argument++) {
        char *equals = strchr(facts[argument], '=');
        if (equals == NULL)
            return 2;
        *equals = 0;
        if (strcmp(facts[argument], "!unbuildable") == 0)
            unbuildable = equals + 1;
        else if (strcmp(facts[argument], "!unknown") == 0)
            unknown = equals + 1;
        else {
            place[facts_known].key = facts[argument];
            place[facts_known++].value = equals + 1;
        }
    }
    for (i = 0; emitter_module_at(reader, i, &module) == EMITTER_OK; i++)
        print_module(reader, &module);
    printf("%" PRIu32 " modules\n", emitter_module_count(reader));
    if (emitter_module_find(reader, "engine", &module) == EMITTER_OK) {
        emitter_status status = emitter_module_select(reader, &module, place, facts_known, &chosen);
        printf("select %d\n", status == EMITTER_OK ? (int)chosen.index : -(int)status);
    }
    for (i = 0; i < 5; i++)
        if (strcmp(kinds[i], unknown) != 0) {
            loaders[known].kind = kinds[i];
            loaders[known].schema_version_min = 1;
            loaders[known].schema_version_max = i == 0 && unknown[0] == '1' ? 1 : 2;
            loaders[known].build = build;
            loaders[known++].destroy = destroy;
        }
    memset(&modules, 0, sizeof modules);
    modules.reader = reader;
    modules.loaders = loaders;
    modules.loader_count = known;
    modules.place = place;
    modules.place_count = facts_known;
    modules.slots = slots;
    modules.context = (void *)(uintptr_t)unbuildable;
    for (argument = 0; argument < 2; argument++) {
        emitter_status status = argument == 0 ? emitter_modules_build(&modules, module.index) : emitter_modules_build_all(&modules);
        if (status != EMITTER_OK) {
            length = emitter_modules_explain(&modules, text, sizeof text);
            printf("%s\n", text);
            if (length != strlen(text) || emitter_modules_explain(&modules, cut, sizeof cut) != length || strncmp(cut, text, 19) != 0
                || strlen(cut) != 19)
                return 3;
        }
    }
    emitter_modules_destroy(&modules);
    return 0;
}

static int build_quietly(const emitter_module_source *source, void **handle)
{
    emitter_function function;
    emitter_dltensor arguments[8];
    uint32_t i;
    *handle = (void *)(uintptr_t)source->alternative.data;
    for (i = 0; i <= source->module.import_count && i < 64; i++)
        if (emitter_source_import(source, i) == source)
            return 1;
    for (i = 0; i < source->module.function_count && i < 64; i++)
        if (emitter_module_function(source->reader, &source->module, i, &function) == EMITTER_OK)
            (void)emitter_function_arguments(source->reader, &function, arguments, 8);
    return 0;
}

/* Build all that can be built of a pack that nobody has validated, and ask why not. */
static unsigned build_any(const emitter_reader *reader, const emitter_fact *place, size_t count)
{
    static const emitter_module_loader loaders[] = {
        {"graph", 1, 2, build_quietly, NULL}, {"tensorrt", 1, 2, build_quietly, NULL}, {"cuda", 1, 2, build_quietly, NULL},
        {"raw", 1, 2, build_quietly, NULL},   {"library", 1, 2, build_quietly, NULL},
    };
    emitter_module_slot slots[64];
    emitter_modules modules;
    char why[200];
    unsigned sum = 0;
    uint32_t i;
    if (emitter_module_count(reader) > 64)
        return 0;
    memset(slots, 0, sizeof slots);
    memset(&modules, 0, sizeof modules);
    modules.reader = reader;
    modules.loaders = loaders;
    modules.loader_count = 5;
    modules.place = place;
    modules.place_count = count;
    modules.slots = slots;
    for (i = 0; i <= emitter_module_count(reader); i++)
        if (emitter_modules_build(&modules, i) != EMITTER_OK)
            sum += (unsigned)emitter_modules_explain(&modules, why, sizeof why);
    if (emitter_modules_build_all(&modules) != EMITTER_OK)
        sum += (unsigned)emitter_modules_explain(&modules, why, sizeof why);
    emitter_modules_destroy(&modules);
    return sum;
}

/* Read everything, whatever validation says: nothing may leave the pack. */
static unsigned read_all(const emitter_reader *reader)
{
    static const emitter_fact place[] = {{"sm", "87"}, {"tensorrt", "10.5"}, {"driver", "600"}};
    unsigned sum = 0;
    uint32_t i, j, k;
    emitter_module module, child;
    emitter_alternative one;
    emitter_function function;
    emitter_tensor tensor;
    emitter_entry entry;
    for (i = 0; i < emitter_module_count(reader); i++) {
        if (emitter_module_at(reader, i, &module) != EMITTER_OK)
            continue;
        sum += (unsigned char)module.name[module.name_length];
        for (j = 0; j < module.alternative_count && j < 64; j++)
            if (emitter_module_alternative(reader, &module, j, &one) == EMITTER_OK && one.size > 0)
                sum += emitter_crc32c(one.data, (size_t)one.size, 0) + (unsigned char)one.kind[one.kind_length];
        for (j = 0; j < module.import_count && j < 64; j++)
            sum += (unsigned)emitter_module_import(reader, &module, j, &child);
        for (j = 0; j < module.function_count && j < 64; j++)
            if (emitter_module_function(reader, &module, j, &function) == EMITTER_OK)
                for (k = 0; k < function.argument_count && k < 64; k++)
                    if (emitter_function_argument(reader, &function, k, &tensor) == EMITTER_OK && tensor.nbytes > 0)
                        sum += *(const unsigned char *)tensor.data;
        for (j = 0; j < module.metadata_count && j < 64; j++)
            sum += (unsigned)emitter_module_metadata(reader, &module, j, &entry);
        sum += (unsigned)emitter_module_select(reader, &module, place, 3, &one);
    }
    sum += (unsigned)emitter_function_find(reader, "infer", &function) + (unsigned)emitter_module_find(reader, "graph", &module);
    return sum + build_any(reader, place, 3) + build_any(reader, NULL, 0);
}

/* Make the checksums right again, print whether the pack is valid, and read it. */
static unsigned judge(void)
{
    emitter_reader reader;
    uint32_t index_size, crc, zero = 0;
    memcpy(&index_size, memory + 32, 4);
    crc = emitter_crc32c(memory + 128, index_size - 128, 0);
    memcpy(memory + 36, &crc, 4);
    memcpy(memory + 20, &zero, 4);
    crc = emitter_crc32c(memory, 128, 0);
    memcpy(memory + 20, &crc, 4);
    if (emitter_open(&reader, memory, size) != EMITTER_OK) {
        putchar('0');
        return 0;
    }
    putchar(emitter_validate(&reader) == EMITTER_OK ? '1' : '0');
    return read_all(&reader);
}

static unsigned damage_bytes(size_t start, size_t end)
{
    static const unsigned char fixed[] = {0, 1, 255};
    size_t at;
    unsigned i, sum = 0;
    for (at = start; at < end; at++) {
        unsigned char before = memory[at];
        for (i = 0; i < 5; i++) {
            memory[at] = (unsigned char)(i < 3 ? fixed[i] : i == 3 ? before ^ 1u : before ^ 0x80u);
            sum += judge();
        }
        memory[at] = before;
    }
    return sum;
}

/* Each word as each small number (every index, count and circle of a small pack), and at the limits of the pack and of 32 bits. */
static unsigned damage_words(size_t start, size_t end)
{
    static const uint32_t fixed[] = {0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu};
    size_t at;
    unsigned i, sum = 0;
    for (at = start; at < end; at += 4) {
        uint32_t before, index_size, value;
        memcpy(&before, memory + at, 4);
        memcpy(&index_size, memory + 32, 4);
        for (i = 0; i < 24; i++) {
            value = i < 16 ? i : i < 20 ? fixed[i - 16] : i == 20 ? before + 1 : i == 21 ? before - 1 : i == 22 ? index_size : (uint32_t)size;
            memcpy(memory + at, &value, 4);
            sum += judge();
        }
        memcpy(memory + at, &before, 4);
    }
    return sum;
}

int main(int argc, char **argv)
{
    emitter_reader reader;
    if (argc < 2 || !read_pack(argv[1]))
        return 2;
    if (argc == 5 && argv[2][0] == '-') {
        size_t start = (size_t)strtoul(argv[3], NULL, 10), end = (size_t)strtoul(argv[4], NULL, 10);
        fprintf(stderr, "%u\n", strcmp(argv[2], "--damage") == 0 ? damage_bytes(start, end) : damage_words(start, end));
        return 0;
    }
    if (emitter_open(&reader, memory, size) != EMITTER_OK || emitter_validate(&reader) != EMITTER_OK) {
        fprintf(stderr, "%s %" PRIu32 "\n", reader.where, reader.where_record);
        return 1;
    }
    return print_all(&reader, argc - 2, argv + 2);
}
