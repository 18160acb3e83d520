/* SPDX-License-Identifier: 0BSD
 * What emitter.h looks at in files of other systems before it loads them, run on this one.
 *
 *     formats pe MACHINE MAGIC FILE ...    prints the message, or the offsets of the packs as the loaded image would have them
 *     formats macho CPUTYPE FILE ...       the same
 *     formats mutate FORMAT A B FILE N     changes and cuts the file N times: nothing may be read outside of anything
 *
 * The files have every section at the offset that is its address. */

#define EMITTER_LIBRARY
#define EMITTER0_EVERY_FORMAT_
#include "emitter.h"

static unsigned long a, b;
static int is_pe;

static emitter_status check(const char *path, unsigned char *proof, const emitter0_words_ *words)
{
    emitter0_file_ file;
    emitter_status status = emitter0_file_open_(&file, path, 0, words);
    if (status != EMITTER_OK)
        return status;
    status = is_pe ? emitter0_check_pe_(&file, (unsigned)a, (unsigned)b, proof, words)
                   : emitter0_check_macho_(&file, (uint32_t)a, proof, words);
    emitter0_file_close_(&file);
    return status;
}

static int show(const char *path)
{
    char message[256];
    unsigned char proof[EMITTER0_SIZEOF_HEADER_];
    emitter0_words_ words = {message, sizeof message, path};
    emitter0_file_ file;
    const unsigned char *image;
    uint32_t number;
    if (check(path, proof, &words) != EMITTER_OK) {
        printf("%s\n", message);
        return 0;
    }
    if (emitter0_file_open_(&file, path, 0, &words) != EMITTER_OK)
        return 1;
    image = (const unsigned char *)emitter0_map_(&file);
    for (number = 0; image != NULL; number++) {
        emitter0_walk_ walk = {NULL, 0, 0, NULL, 0}, again = {NULL, 0, 1, NULL, 0};
        walk.skip = number;
        if (is_pe)
            emitter0_walk_pe_(&walk, image);
        else
            emitter0_walk_macho_(&walk, image);
        if (walk.pack == NULL)
            break;
        again.symbol = walk.pack;
        if (is_pe)
            emitter0_walk_pe_(&again, image);
        else
            emitter0_walk_macho_(&again, image);
        if (again.pack != walk.pack || (number == 0 && memcmp(walk.pack, proof, sizeof proof) != 0))
            return 1;
        printf("%ld:%lu ", (long)(walk.pack - image), (unsigned long)walk.size);
    }
    printf("\n");
    emitter0_unmap_(image, (size_t)file.size);
    emitter0_file_close_(&file);
    return 0;
}

static uint32_t random_number(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static int mutate(const char *path, long count)
{
    static unsigned char good[1 << 16];
    char message[64];
    unsigned char proof[EMITTER0_SIZEOF_HEADER_];
    emitter0_words_ words = {message, sizeof message, path};
    long refused = 0;
    int fd = open(path, O_RDWR);
    const ssize_t size = read(fd, good, sizeof good);
    if (size <= 512)
        return 1;
    while (count-- > 0) {
        unsigned edits = random_number() % 4;
        while (edits-- > 0) {
            static const unsigned char edges[8] = {0, 1, 0x7f, 0x80, 0xff, 0xfe, 4, 0x10};
            const unsigned char byte = random_number() % 2 ? edges[random_number() % 8] : (unsigned char)random_number();
            if (pwrite(fd, &byte, 1, random_number() % 512) != 1)
                return 1;
        }
        if (random_number() % 4 == 0 && ftruncate(fd, random_number() % (uint32_t)size) != 0)
            return 1;
        refused += check(path, proof, &words) != EMITTER_OK;
        if (pwrite(fd, good, (size_t)size, 0) != size)
            return 1;
    }
    printf("%ld refused\n", refused);
    return close(fd);
}

int main(int argc, char **argv)
{
    const int mutates = argc > 1 && strcmp(argv[1], "mutate") == 0;
    int i = mutates ? 3 : 2;
    if (argc < 4)
        return 2;
    is_pe = strcmp(argv[i - 1], "pe") == 0;
    a = strtoul(argv[i++], NULL, 0);
    if (is_pe || mutates)
        b = strtoul(argv[i++], NULL, 0);
    if (mutates)
        return mutate(argv[i], atol(argv[i + 1]));
    for (; i < argc; i++)
        if (show(argv[i]) != 0)
            return 1;
    return 0;
}
