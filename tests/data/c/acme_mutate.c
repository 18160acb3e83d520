/* acme_mutate PACK CASES: runs what docs/external-codegen.md makes of payloads (a byte that says which form, the length as four
 * bytes, the payload), each in memory of exactly its size; prints how many ran to their end. */

#define main acme_main
#include "acme.c"
#undef main

#include <stdlib.h>

int main(int argc, char **argv)
{
    static uint64_t room[1 << 12];
    static acme one;
    emitter_reader reader;
    emitter_function function;
    unsigned long ran = 0, all = 0;
    unsigned char head[5];
    size_t size;
    FILE *pack = argc == 3 ? fopen(argv[1], "rb") : NULL, *cases = argc == 3 ? fopen(argv[2], "rb") : NULL;
    if (pack == NULL || cases == NULL)
        return 2;
    size = fread(room, 1, sizeof room, pack);
    one.reader = &reader;
    if (emitter_open(&reader, room, size) != EMITTER_OK || emitter_function_find(&reader, "infer", &function) != EMITTER_OK
        || emitter_function_arguments(&reader, &function, one.constants, 2) != EMITTER_OK)
        return 2;
    while (fread(head, 1, 5, cases) == 5) {
        float x[WIDTH] = {-1, 2, 3, 4};
        size_t length = head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16 | (size_t)head[4] << 24;
        unsigned char *payload = (unsigned char *)malloc(length);
        if ((payload == NULL && length > 0) || fread(payload, 1, length, cases) != length)
            return 2;
        one.form.data = payload;
        one.form.size = length;
        ran += (head[0] ? run_graph(&one, x) : run_program(&one, x)) == 0;
        all++;
        free(payload);
    }
    printf("%lu of %lu\n", ran, all);
    return fclose(pack) != 0 || fclose(cases) != 0;
}
