/* SPDX-License-Identifier: 0BSD
 * mutate PACK SEED ROUNDS: damages a pack in every field and at random, and reads everything that is still to be had, from memory that
 * ends where the pack ends. Built with sanitizers, it dies of the first access outside. Prints how many packs were accepted. */

#include "emitter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;
static unsigned long accepted, refused;

static void touch(const void *data, size_t size)
{
    const unsigned char *byte = (const unsigned char *)data;
    size_t i;
    for (i = 0; i < size; i++)
        sink += byte[i];
}

static void read_metadata(const emitter_reader *reader, const emitter_tensor *tensor)
{
    emitter_entry entry;
    uint32_t i;
    for (i = 0; i < emitter_metadata_count(reader, tensor) && i < 100; i++)
        if (emitter_metadata_at(reader, tensor, i, &entry) == EMITTER_OK) {
            touch(entry.key, (size_t)entry.key_length + 1);
            touch(entry.value, (size_t)entry.value_length + 1);
        }
    (void)emitter_metadata_find(reader, tensor, "license", &entry);
}

static void read_all(emitter_reader *reader)
{
    static const char *const names[] = {"", "a", "conv1.weight", "conv1.weigh", "zz", "\xff"};
    emitter_tensor tensor, found;
    uint32_t i;
    touch(emitter_model_version(reader), strlen(emitter_model_version(reader)));
    read_metadata(reader, NULL);
    for (i = 0; i < sizeof names / sizeof *names; i++)
        if (emitter_find(reader, names[i], &tensor) == EMITTER_OK)
            touch(tensor.data, (size_t)tensor.nbytes);
    for (i = 0; i < emitter_count(reader) && i < 100; i++) {
        int32_t dim;
        uint64_t elements = 1, bits;
        if (emitter_at(reader, i, &tensor) != EMITTER_OK)
            continue;
        touch(tensor.name, (size_t)tensor.name_length + 1);
        touch(tensor.data, (size_t)tensor.nbytes);
        for (dim = 0; dim < tensor.ndim; dim++) {
            sink += (uint64_t)tensor.strides[dim];
            elements *= (uint64_t)tensor.shape[dim];
        }
        /* What a program computes from shape and dtype may be read too. */
        bits = (uint64_t)tensor.dtype_bits * tensor.dtype_lanes;
        if (tensor.encoding == 0)
            touch(tensor.data, (size_t)((elements * bits + 7) / 8));
        if (emitter_find(reader, tensor.name, &found) == EMITTER_OK && strcmp(tensor.name, found.name) != 0)
            abort();
        (void)emitter_check_tensor(&tensor);
        read_metadata(reader, &tensor);
    }
    (void)emitter_check(reader);
}

/* Put both checksums of the index right where they are, so that what lies behind them is reached. */
static void seal(unsigned char *pack, size_t size)
{
    uint32_t header_size, index_size, crc;
    if (size < 128)
        return;
    memcpy(&header_size, pack + 16, 4);
    memcpy(&index_size, pack + 32, 4);
    if (header_size < 128 || header_size > size)
        return;
    if (index_size >= header_size && index_size <= size) {
        crc = emitter_crc32c(pack + header_size, index_size - header_size, 0);
        memcpy(pack + 36, &crc, 4);
    }
    memset(pack + 20, 0, 4);
    crc = emitter_crc32c(pack, header_size, 0);
    memcpy(pack + 20, &crc, 4);
}

static void attempt(const unsigned char *pack, size_t size, int sealed)
{
    emitter_reader reader;
    unsigned char *copy = (unsigned char *)malloc(size ? size : 1); /* as long as the pack, so that a sanitizer sees its end */
    if (copy == NULL)
        exit(2);
    memcpy(copy, pack, size);
    if (sealed)
        seal(copy, size);
    if (emitter_open(&reader, copy, size) == EMITTER_OK) {
        read_all(&reader);
        if (emitter_validate(&reader) == EMITTER_OK) {
            emitter_tensor tensor;
            uint32_t i;
            for (i = 0; i < emitter_count(&reader); i++)
                if (emitter_at(&reader, i, &tensor) != EMITTER_OK || emitter_find(&reader, tensor.name, &tensor) != EMITTER_OK)
                    abort(); /* a valid pack has no tensor that cannot be found */
            accepted++;
        } else {
            refused++;
        }
    } else {
        if (emitter_count(&reader) != 0)
            abort();
        read_all(&reader);
        refused++;
    }
    free(copy);
}

static uint64_t state;

static uint32_t next(uint32_t below) /* xorshift64* */
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)((state * UINT64_C(2685821657736338717)) >> 32) % below;
}

int main(int argc, char **argv)
{
    static unsigned char pack[1 << 16], damaged[1 << 16];
    uint64_t interesting[] = {0, 1, 2, 3, 7, 8, 64, 0x7f, 0x80, 0xff, 0xffff, 0x10000, 0x7fffffff, 0x80000000u, 0xfffffff8u, 0xffffffffu,
                              UINT64_C(0x100000000), UINT64_C(0x7ffffffffffffff8), UINT64_C(0x7fffffffffffffff),
                              UINT64_C(0x8000000000000000), UINT64_C(0xffffffffffffffff), 0, 0, 0, 0};
    const size_t known = sizeof interesting / sizeof *interesting;
    size_t size, index_size, at, i, width;
    uint32_t word;
    unsigned long round, rounds;
    FILE *file = argc == 4 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL)
        return 2;
    size = fread(pack, 1, sizeof pack, file);
    (void)fclose(file);
    state = strtoull(argv[2], NULL, 10) | 1;
    rounds = strtoul(argv[3], NULL, 10);
    memcpy(&word, pack + 32, 4);
    index_size = word;
    interesting[known - 1] = size;
    interesting[known - 2] = size - 1;
    interesting[known - 3] = index_size;
    interesting[known - 4] = index_size - 1;

    attempt(pack, size, 0);
    if (accepted != 1)
        return 1;
    for (at = 0; at < size; at++) { /* every truncation; every bit of the index, unsealed: a checksum finds each */
        attempt(pack, at, 0);
        attempt(pack, at, 1);
        for (i = 0; i < 8 && at < index_size; i++) {
            memcpy(damaged, pack, size);
            damaged[at] = (unsigned char)(damaged[at] ^ 1u << i);
            attempt(damaged, size, 0);
        }
    }
    if (accepted != 1)
        return 1;
    for (width = 1; width <= 8; width *= 2) /* every field, whatever its width, sealed */
        for (at = 0; at + width <= index_size; at += width)
            for (i = 0; i < known; i++) {
                memcpy(damaged, pack, size);
                if (width == 1)
                    damaged[at] = (unsigned char)interesting[i];
                else if (width == 2) {
                    uint16_t value = (uint16_t)interesting[i];
                    memcpy(damaged + at, &value, 2);
                } else if (width == 4) {
                    uint32_t value = (uint32_t)interesting[i];
                    memcpy(damaged + at, &value, 4);
                } else {
                    memcpy(damaged + at, &interesting[i], 8);
                }
                attempt(damaged, size, 1);
            }
    for (round = 0; round < rounds; round++) { /* several fields at once */
        uint32_t changes = 1 + next(6);
        memcpy(damaged, pack, size);
        while (changes-- > 0) {
            uint32_t value = next(2) ? next(0xffffffffu) : next(2) ? next((uint32_t)size + 16) : (uint32_t)interesting[next((uint32_t)known)];
            width = (size_t)1 << next(3);
            at = next((uint32_t)(index_size / width)) * width;
            memcpy(damaged + at, &value, width);
        }
        attempt(damaged, size, 1);
    }
    printf("%lu accepted, %lu refused\n", accepted, refused);
    return 0;
}
