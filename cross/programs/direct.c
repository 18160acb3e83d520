/* SPDX-License-Identifier: 0BSD
 * Prints what a pack holds that is linked with the program: -lNAME, libNAME.a or NAME.o, with the header that emitter wrote.
 *
 *     emitter model.safetensors -o libmodel.so --header model.h
 *     cc -I "$(emitter --include-dir)" -I . -DHEADER='"model.h"' -DNAME=model direct.c -L . -lmodel
 *
 * With HEADER2 and NAME2 there is a second one. With DIRECT the symbols themselves are used, not their accessors. */

#include HEADER
#ifdef HEADER2
#include HEADER2
#endif

#include "print.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#ifdef DIRECT
#define PACK(name) name
#define PACK_SIZE(name) JOIN(name, _size)
#else
#define PACK(name) JOIN(name, _data)()
#define PACK_SIZE(name) JOIN(name, _data_size)()
#endif
#ifndef SCHEMA
#define SCHEMA JOIN(NAME, _SCHEMA)
#endif

static int print_linked(const void *pack, uint64_t size, uint64_t schema)
{
    emitter_reader reader;
    emitter_status status = emitter_open_expect(&reader, pack, (size_t)size, schema);
    if (status != EMITTER_OK) {
        fprintf(stderr, "error: %s\n", emitter_status_string(status));
        return 1;
    }
    return print_pack(&reader);
}

int main(void)
{
    int failed = print_linked(PACK(NAME), PACK_SIZE(NAME), SCHEMA);
#ifdef NAME2
    failed |= print_linked(PACK(NAME2), PACK_SIZE(NAME2), JOIN(NAME2, _SCHEMA));
#endif
    return failed;
}
