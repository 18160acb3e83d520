/* Runs the network of a library of another system, which has the CPU's calling convention in common with this one.
 *
 * tests/flat.py lays it out: base, entry, size, number of bindings (8 bytes each); the memory from the base on; for
 * each binding the offset of the pointer (8 bytes) and a name (24 bytes).
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static void *address_of(const char *name)
{
    if (!strcmp(name, "expf"))
        return (void *)expf;
    if (!strcmp(name, "memset"))
        return (void *)memset;
    if (!strcmp(name, "memcpy"))
        return (void *)memcpy;
    return NULL;
}

int main(int argc, char **argv)
{
    struct { uint64_t base, entry, size, bindings; } head;
    struct { uint64_t at; char name[24]; } binding;
    union { void *object; void (*function)(const float *, float *); } infer;
    float image[144], probabilities[5];
    FILE *file = argc > 2 ? fopen(argv[1], "rb") : NULL, *in = argc > 2 ? fopen(argv[2], "rb") : NULL;
    char *memory;
    int i;
    if (!file || !in || fread(image, 1, sizeof image, in) != sizeof image || fread(&head, sizeof head, 1, file) != 1)
        return 2;
    memory = mmap((void *)(uintptr_t)head.base, head.size, PROT_READ | PROT_WRITE | PROT_EXEC,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != (char *)(uintptr_t)head.base || fread(memory, 1, head.size, file) != head.size)
        return 3;
    while (head.bindings--) {
        void *address;
        if (fread(&binding, sizeof binding, 1, file) != 1 || binding.at > head.size - sizeof address)
            return 4;
        address = address_of(binding.name);
        if (!address)
            return printf("unknown: %s\n", binding.name), 5;
        memcpy(memory + binding.at, &address, sizeof address);
    }
    __builtin___clear_cache(memory, memory + head.size);
    infer.object = memory + head.entry;
    infer.function(image, probabilities);
    for (i = 0; i < 5; i++)
        printf("%.9g\n", (double)probabilities[i]);
    return 0;
}
