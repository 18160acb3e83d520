/* SPDX-License-Identifier: 0BSD
 * Prints what a pack holds that is linked with the program: -lNAME, libNAME.a or NAME.o, with the header that emitter wrote.
 *
 *     emitter model.safetensors -o libmodel.so --header model.h
 *     cc -I "$(emitter --include-dir)" -I . -DHEADER='"model.h"' -DPACK=model -DPACK_SIZE=model_size -DSCHEMA=model_SCHEMA direct.c -L . -lmodel
 *
 * With HEADER2, PACK2 and PACK2_SIZE there is a second one. */

#include "print.h"

#include HEADER /* after other headers: the symbols may be macros, and theirs must not have the same names */
#ifdef HEADER2
#include HEADER2
#endif

static int print_linked(const void *pack, uint64_t size, uint64_t schema)
{
    emitter_reader reader;
    emitter_status status;
    if (pack == NULL) {
        fprintf(stderr, "error: the symbol is NULL\n");
        return 1;
    }
    status = schema ? emitter_open_expect(&reader, pack, (size_t)size, schema) : emitter_open(&reader, pack, (size_t)size);
    if (status != EMITTER_OK) {
        fprintf(stderr, "error: %s\n", emitter_status_string(status));
        return 1;
    }
    return print_pack(&reader);
}

int main(void)
{
    int failed = print_linked(PACK, PACK_SIZE, SCHEMA);
#ifdef PACK2
    failed |= print_linked(PACK2, PACK2_SIZE, 0);
#endif
    return failed;
}
