/* SPDX-License-Identifier: 0BSD
 * Mentions every function, to compile it under the strictest warnings. */

#include "emitter.h"

int main(void)
{
    emitter_reader reader;
    emitter_tensor tensor;
    emitter_entry entry;
    int status = (int)emitter_open(&reader, 0, 0);
    status |= (int)emitter_open_expect(&reader, 0, 0, 1);
    status |= (int)emitter_validate(&reader);
    status |= (int)emitter_at(&reader, 0, &tensor);
    status |= (int)emitter_find(&reader, "a", &tensor);
    status |= (int)emitter_find_length(&reader, "a", 1, &tensor);
    status |= (int)emitter_check_tensor(&tensor);
    status |= (int)emitter_check(&reader);
    status |= (int)emitter_metadata_at(&reader, &tensor, 0, &entry);
    status |= (int)emitter_metadata_find(&reader, 0, "a", &entry);
    status |= (int)emitter_metadata_count(&reader, 0);
    status |= (int)emitter_count(&reader);
    status |= (int)emitter_crc32c("123456789", 9, 0);
    status |= *emitter_model_version(&reader);
    status |= *emitter_status_string(EMITTER_OK);
    status |= *emitter_dtype_name(2, 32);
    return status == 0;
}
