/* SPDX-License-Identifier: 0BSD
 *
 * emitter.h: finds the tensors of a pack in memory. docs/pack-format.md is the normative text of what is read here.
 *
 * Copyright (C) the emitter authors
 *
 * Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted.
 *
 * THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED
 * WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR
 * CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT,
 * NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.
 *
 *     emitter_reader reader;
 *     emitter_tensor weight;
 *     if (emitter_open(&reader, resnet18_data(), resnet18_data_size()) == EMITTER_OK
 *         && emitter_find(&reader, "conv1.weight", &weight) == EMITTER_OK)
 *         use((const float *)weight.data, weight.shape, weight.ndim);
 *
 * C99 or C++11. The core allocates nothing, calls nothing (no libc) and writes to nothing but what the caller passes. A reader may
 * be used by several threads once it is open. Everything that it gives points into the pack, which must outlive it.
 *
 * Defined before this file is included:
 *   nothing                 the functions are `static inline`
 *   EMITTER_IMPLEMENTATION  in one file of a program: they are defined here as external symbols (for ctypes, Rust, ...)
 *   EMITTER_EXTERN          in other files: they are declared, and defined by that one
 *   EMITTER_API             what external declarations begin with, for instance __attribute__((visibility("default")))
 *   EMITTER_LIBRARY         adds emitter_library_open for POSIX systems with ELF, Apple's systems and Windows. With glibc, include this
 *                           file before any other, or compile with -D_GNU_SOURCE; older C libraries want -ldl. 32-bit programs want
 *                           -D_FILE_OFFSET_BITS=64, or the C library refuses files of 2 GiB and more, or with an inode number of
 *                           more than 32 bits (EOVERFLOW)
 * emitter_to_dlpack exists if dlpack.h was included before.
 *
 * Names carry the number of the interface (emitter0_find), so that several versions of this file live in one program. The names
 * without it (emitter_find) are those of the version that a source file includes first. Names that end in `_` are private.
 */

#ifndef EMITTER0_H
#define EMITTER0_H

#if defined(EMITTER_LIBRARY) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* dl_iterate_phdr, dladdr */
#endif

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

#if defined(__GNUC__)
#define EMITTER0_PREFETCH_(address) __builtin_prefetch(address)
#define EMITTER0_ALWAYS_INLINE_ __attribute__((always_inline))
#else
#define EMITTER0_PREFETCH_(address) ((void)(address))
#define EMITTER0_ALWAYS_INLINE_
#endif

/* Packs are bytes to the compiler. They are read through the types below, which may alias them. */
#if defined(__GNUC__)
#define EMITTER0_MAY_ALIAS_ __attribute__((may_alias))
#else
#define EMITTER0_MAY_ALIAS_
#endif

#if defined(EMITTER_IMPLEMENTATION) || defined(EMITTER_EXTERN)
#ifndef EMITTER_API
#define EMITTER_API
#endif
#define EMITTER0_FUNCTION_ EMITTER_API
#else
#define EMITTER0_FUNCTION_ static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The records of a pack, as docs/pack-format.md has them ---- */

/* generated: records */
#define EMITTER0_MAGIC_ {0x89, 0x45, 0x4d, 0x54, 0x0d, 0x0a, 0x1a, 0x0a}
#define EMITTER0_BYTE_ORDER_MARK_ 0x01020304u
#define EMITTER0_FOREIGN_MARK_ 0x04030201u
#define EMITTER0_VERSION_MAJOR_ 1
#define EMITTER0_KNOWN_INCOMPATIBLE_ 0u
#define EMITTER0_FEATURE_SIDECAR_ 1u
#define EMITTER0_SIDECAR_PINNED_ 1u
#define EMITTER0_HEADER_CRC_OFFSET_ 20u
#define EMITTER0_MAX_HEADER_ 65536u
#define EMITTER0_MAX_TABLES_ 1024u
#define EMITTER0_MAX_NAME_ 65535u
#define EMITTER0_MAX_NDIM_ 64u
#define EMITTER0_MAX_ALIGNMENT_ 2097152u
#define EMITTER0_KIND_PAYLOAD_ 1u
#define EMITTER0_KIND_TENSOR_ 2u
#define EMITTER0_KIND_METADATA_ 3u
#define EMITTER0_KIND_DIM_ 4u
#define EMITTER0_KIND_STRING_ 5u
#define EMITTER0_KIND_SIDECAR_ 6u
#define EMITTER0_KIND_MODULE_ 7u
#define EMITTER0_KIND_ALTERNATIVE_ 8u
#define EMITTER0_KIND_CONDITION_ 9u
#define EMITTER0_KIND_IMPORT_ 10u
#define EMITTER0_KIND_FUNCTION_ 11u
#define EMITTER0_KIND_ARGUMENT_ 12u
#define EMITTER0_SIZEOF_HEADER_ 128u
#define EMITTER0_SIZEOF_TABLE_ 16u
#define EMITTER0_SIZEOF_PAYLOAD_ 24u
#define EMITTER0_SIZEOF_TENSOR_ 40u
#define EMITTER0_SIZEOF_METADATA_ 16u
#define EMITTER0_SIZEOF_DIM_ 8u
#define EMITTER0_SIZEOF_STRING_ 1u
#define EMITTER0_SIZEOF_SIDECAR_ 56u
#define EMITTER0_SIZEOF_MODULE_ 40u
#define EMITTER0_SIZEOF_ALTERNATIVE_ 24u
#define EMITTER0_SIZEOF_CONDITION_ 32u
#define EMITTER0_SIZEOF_IMPORT_ 8u
#define EMITTER0_SIZEOF_FUNCTION_ 16u
#define EMITTER0_SIZEOF_ARGUMENT_ 8u

/* The first bytes of a pack. */
struct EMITTER0_MAY_ALIAS_ emitter0_header_record {
    uint8_t magic[8]; /* 89 45 4D 54 0D 0A 1A 0A */
    uint32_t byte_order; /* 0x01020304 in the pack's byte order */
    uint16_t version_major; /* readers take this one and those before it, and refuse a later one */
    uint16_t version_minor; /* informative */
    uint32_t header_size; /* bytes of this header; a multiple of 8, at most 65536; later versions may append */
    uint32_t header_crc32c; /* CRC-32C of the first header_size bytes, with this field taken as zero */
    uint64_t total_size; /* bytes of the pack, up to the end of the last payload or, without one, of the index */
    uint32_t index_size; /* bytes before the payloads: header, directory and tables; a multiple of 8 */
    uint32_t index_crc32c; /* CRC-32C of the bytes from header_size up to index_size */
    uint64_t compatible_features; /* feature bits that a reader may ignore */
    uint64_t incompatible_features; /* feature bits that a reader must know, or refuse the pack */
    uint64_t schema_hash; /* see Schema hash */
    uint32_t model_version_offset; /* offset of the user's version string in the pack */
    uint32_t model_version_length; /* its bytes, without the NUL; 0 to 65535 */
    uint32_t metadata_first; /* first metadata record of the package */
    uint32_t metadata_count; /* metadata records of the package */
    uint32_t directory_offset; /* offset of the directory; a multiple of 8 */
    uint32_t directory_count; /* directory entries; at most 1024 */
    uint32_t directory_record_size; /* bytes of a directory entry; a multiple of 8, at least 16 */
    uint32_t alignment; /* the largest alignment of a payload, at least 8: the pack's first byte is aligned to it in memory */
    uint8_t reserved[32]; /* zero */
};
typedef char emitter0_header_size_[sizeof(struct emitter0_header_record) == 128 ? 1 : -1];

/* One entry of the directory: where a table is. A reader skips kinds that it does not know; a kind occurs once. */
struct EMITTER0_MAY_ALIAS_ emitter0_table_record {
    uint32_t kind; /* which table */
    uint32_t record_size; /* bytes from one record to the next; a later version may append fields */
    uint32_t offset; /* offset of the first record in the pack; a multiple of 8 */
    uint32_t count; /* records */
};
typedef char emitter0_table_size_[sizeof(struct emitter0_table_record) == 16 ? 1 : -1];

/* A run of bytes after the index. Offsets do not descend, nothing overlaps; equal payloads may be stored once. */
struct EMITTER0_MAY_ALIAS_ emitter0_payload_record {
    uint64_t offset; /* offset in the pack, not below index_size; a multiple of alignment */
    uint64_t size; /* bytes */
    uint32_t alignment; /* a power of two, at most 2097152 */
    uint32_t crc32c; /* CRC-32C of the bytes */
};
typedef char emitter0_payload_size_[sizeof(struct emitter0_payload_record) == 24 ? 1 : -1];

/* A named tensor. Sorted by the bytes of the name, ascending; names are unique. */
struct EMITTER0_MAY_ALIAS_ emitter0_tensor_record {
    uint32_t name_offset; /* offset of the name in the pack: UTF-8, followed by a NUL */
    uint32_t name_length; /* its bytes, without the NUL; 1 to 65535 */
    uint8_t dtype_code; /* DLDataTypeCode of DLPack */
    uint8_t dtype_bits; /* bits of one lane; not 0 */
    uint16_t dtype_lanes; /* lanes of one element; not 0 */
    uint16_t encoding; /* 0: elements of the dtype; else a block format, see Encodings */
    uint16_t ndim; /* dimensions; 0 to 64 */
    uint32_t payload; /* index of its payload record */
    uint32_t shape_offset; /* offset of int64[ndim] in the pack, a multiple of 8; 0 if ndim is 0 */
    uint32_t strides_offset; /* the same for the strides, in elements */
    uint32_t metadata_first; /* first metadata record of the tensor */
    uint32_t metadata_count; /* metadata records of the tensor */
    uint8_t reserved[4]; /* zero */
};
typedef char emitter0_tensor_size_[sizeof(struct emitter0_tensor_record) == 40 ? 1 : -1];

/* A key and a value: UTF-8, followed by a NUL. Within one owner sorted by the bytes of the key; keys are unique. */
struct EMITTER0_MAY_ALIAS_ emitter0_metadata_record {
    uint32_t key_offset; /* offset of the key in the pack */
    uint32_t key_length; /* its bytes, without the NUL; 1 to 65535 */
    uint32_t value_offset; /* offset of the value in the pack */
    uint32_t value_length; /* its bytes, without the NUL; 0 or more, as many as fit the index */
};
typedef char emitter0_metadata_size_[sizeof(struct emitter0_metadata_record) == 16 ? 1 : -1];

/* Where the payloads are: in the pack of another file, in the folder of the file that holds this one. See Sidecar. */
struct EMITTER0_MAY_ALIAS_ emitter0_sidecar_record {
    uint32_t name_offset; /* offset of the file's name in the pack: UTF-8, followed by a NUL */
    uint32_t name_length; /* its bytes, without the NUL; 1 to 65535 */
    uint32_t flags; /* bit 0: pinned; the others are zero */
    uint8_t reserved[4]; /* zero */
    uint64_t size; /* pinned: bytes of the file; else 0 */
    uint8_t sha256[32]; /* pinned: SHA-256 of the file; else zero */
};
typedef char emitter0_sidecar_size_[sizeof(struct emitter0_sidecar_record) == 56 ? 1 : -1];

/* A module. The first is the root; a module stands before those that it imports, and each but the root is imported. */
struct EMITTER0_MAY_ALIAS_ emitter0_module_record {
    uint32_t name_offset; /* offset of the name in the pack: UTF-8, followed by a NUL; names are unique */
    uint32_t name_length; /* its bytes, without the NUL; 1 to 65535 */
    uint32_t alternative_first; /* first alternative of the module */
    uint32_t alternative_count; /* its alternatives, at least 1, in the order in which they are tried */
    uint32_t import_first; /* first import of the module */
    uint32_t import_count; /* its imports, in order; none twice */
    uint32_t function_first; /* first function of the module */
    uint32_t function_count; /* its functions */
    uint32_t metadata_first; /* first metadata record of the module */
    uint32_t metadata_count; /* metadata records of the module */
};
typedef char emitter0_module_size_[sizeof(struct emitter0_module_record) == 40 ? 1 : -1];

/* One form of a module. Those of one module stand together, in the order of the modules. */
struct EMITTER0_MAY_ALIAS_ emitter0_alternative_record {
    uint32_t kind_offset; /* offset of the kind in the pack: UTF-8, followed by a NUL */
    uint32_t kind_length; /* its bytes, without the NUL; 1 to 65535 */
    uint32_t schema_version; /* version of what the bytes mean, as the kind defines it */
    uint32_t payload; /* index of its payload record */
    uint32_t condition_first; /* first condition of the alternative */
    uint32_t condition_count; /* its conditions: all must hold */
};
typedef char emitter0_alternative_size_[sizeof(struct emitter0_alternative_record) == 24 ? 1 : -1];

/* What the place of loading must say of a key. In an alternative sorted by the bytes of the key. See Conditions. */
struct EMITTER0_MAY_ALIAS_ emitter0_condition_record {
    uint32_t key_offset; /* offset of the key in the pack: UTF-8, followed by a NUL */
    uint32_t key_length; /* its bytes, without the NUL; 1 to 65535 */
    uint32_t comparison; /* 1: the text; 2: at least value; 3: also below upper */
    uint32_t value_offset; /* offset of the value in the pack: UTF-8, followed by a NUL */
    uint32_t value_length; /* its bytes, without the NUL; 1 to 65535 */
    uint32_t upper_offset; /* offset of the upper version in the pack; 0 for the other comparisons */
    uint32_t upper_length; /* its bytes, without the NUL; 0 for the other comparisons */
    uint8_t reserved[4]; /* zero */
};
typedef char emitter0_condition_size_[sizeof(struct emitter0_condition_record) == 32 ? 1 : -1];

/* A module that another one imports. Those of one module stand together, in the order of the modules. */
struct EMITTER0_MAY_ALIAS_ emitter0_import_record {
    uint32_t module; /* index of the imported module, greater than that of the importing one */
    uint8_t reserved[4]; /* zero */
};
typedef char emitter0_import_size_[sizeof(struct emitter0_import_record) == 8 ? 1 : -1];

/* A function of a module. Within one module sorted by the bytes of the name; names are unique in the pack. */
struct EMITTER0_MAY_ALIAS_ emitter0_function_record {
    uint32_t name_offset; /* offset of the name in the pack: UTF-8, followed by a NUL */
    uint32_t name_length; /* its bytes, without the NUL; 1 to 65535 */
    uint32_t argument_first; /* first argument of the function */
    uint32_t argument_count; /* tensors that it takes, in order */
};
typedef char emitter0_function_size_[sizeof(struct emitter0_function_record) == 16 ? 1 : -1];

/* A tensor that a function takes. Those of one function stand together, in the order of the functions. */
struct EMITTER0_MAY_ALIAS_ emitter0_argument_record {
    uint32_t tensor; /* index of the tensor record */
    uint8_t reserved[4]; /* zero */
};
typedef char emitter0_argument_size_[sizeof(struct emitter0_argument_record) == 8 ? 1 : -1];

/* DLDataTypeCode of DLPack */
enum emitter0_dtype_code {
    EMITTER0_DTYPE_INT = 0,
    EMITTER0_DTYPE_UINT = 1,
    EMITTER0_DTYPE_FLOAT = 2,
    EMITTER0_DTYPE_OPAQUE_HANDLE = 3,
    EMITTER0_DTYPE_BFLOAT = 4,
    EMITTER0_DTYPE_COMPLEX = 5,
    EMITTER0_DTYPE_BOOL = 6,
    EMITTER0_DTYPE_FLOAT8_E3M4 = 7,
    EMITTER0_DTYPE_FLOAT8_E4M3 = 8,
    EMITTER0_DTYPE_FLOAT8_E4M3B11FNUZ = 9,
    EMITTER0_DTYPE_FLOAT8_E4M3FN = 10,
    EMITTER0_DTYPE_FLOAT8_E4M3FNUZ = 11,
    EMITTER0_DTYPE_FLOAT8_E5M2 = 12,
    EMITTER0_DTYPE_FLOAT8_E5M2FNUZ = 13,
    EMITTER0_DTYPE_FLOAT8_E8M0FNU = 14,
    EMITTER0_DTYPE_FLOAT6_E2M3FN = 15,
    EMITTER0_DTYPE_FLOAT6_E3M2FN = 16,
    EMITTER0_DTYPE_FLOAT4_E2M1FN = 17
};
/* end of generated: records */

/* ---- Types ---- */

typedef enum emitter0_status {
    EMITTER0_OK = 0,
    EMITTER0_ARGUMENT = 1,           /* a null pointer was passed */
    EMITTER0_NOT_A_PACK = 2,         /* the magic is missing, or was broken by a transfer in text mode */
    EMITTER0_TRUNCATED = 3,          /* fewer bytes than the pack says that it has */
    EMITTER0_FOREIGN_BYTE_ORDER = 4, /* made for a machine of the other byte order */
    EMITTER0_VERSION = 5,            /* a later major version of the format */
    EMITTER0_FEATURE = 6,            /* needs features that this reader lacks: see unknown_features */
    EMITTER0_MISALIGNED = 7,         /* the pack is not 8-aligned in memory, or the data not aligned for the C++ type */
    EMITTER0_CHECKSUM = 8,           /* the bytes differ from those that were written */
    EMITTER0_MALFORMED = 9,          /* breaks a rule of the format: see where */
    EMITTER0_SCHEMA = 10,            /* tensors of other names, types or shapes than expected */
    EMITTER0_NOT_FOUND = 11,         /* no such name or index */
    EMITTER0_DTYPE = 12,             /* the tensor has another element type */
    EMITTER0_ENCODED = 13,           /* the tensor's bytes are a block format, not elements of its dtype */
    EMITTER0_LIBRARY_ERROR = 14,     /* a library was refused: see the message */
    EMITTER0_SIDECAR = 15,           /* the payloads are in another file: emitter_library_open finds it */
    EMITTER0_NO_ALTERNATIVE = 16,    /* no form of the module fits the place where it is loaded */
    EMITTER0_NO_LOADER = 17,         /* no loader was given for modules of that kind */
    EMITTER0_SCHEMA_VERSION = 18,    /* the loader of the kind does not know the module's schema version */
    EMITTER0_MODULE_FAILED = 19      /* the loader of the kind could not build the module */
} emitter0_status;

/* Private: where a table of the pack is. */
typedef struct emitter0_table_ {
    uint32_t offset, count, record_size;
} emitter0_table_;

/* An open pack. The first group is for callers to read; after a refusal it says why. */
typedef struct emitter0_reader {
    const char *where;         /* the field that broke a rule, as "tensor.shape_offset", or "" */
    uint32_t where_record;     /* the number of its record */
    uint32_t alignment;        /* what the pack's first byte should be aligned to; data are aligned as promised if it is */
    uint64_t unknown_features; /* the incompatible feature bits that this reader lacks */
    uint64_t schema;           /* the schema hash */
    uint64_t size;             /* bytes of the pack */
    const unsigned char *base;
    uint32_t index_size, index_crc32c, header_size;
    uint32_t model_version_offset, metadata_first, metadata_count;
    emitter0_table_ payload, tensor, metadata, dim, string, sidecar, module, alternative, condition, imported, function, argument;
} emitter0_reader;

/* A tensor. `data` is `nbytes` long and aligned to `alignment` bytes; shape and strides (in elements, row-major) have `ndim` values
 * and are null if that is 0. Elements of less than a byte are packed, least significant bits first. `name` ends with a NUL. */
typedef struct emitter0_tensor {
    const void *data;
    uint64_t nbytes;
    const char *name;
    const int64_t *shape;
    const int64_t *strides;
    uint32_t name_length;
    uint32_t alignment;
    uint32_t crc32c;
    uint32_t metadata_first;
    uint32_t metadata_count;
    int32_t ndim;
    uint16_t dtype_lanes;
    uint16_t encoding; /* 0: elements of the dtype; else a block format, and the bytes do not follow from the shape */
    uint8_t dtype_code; /* EMITTER_DTYPE_..., the DLDataTypeCode of DLPack */
    uint8_t dtype_bits;
} emitter0_tensor;

/* A metadata entry. Both strings are UTF-8 and end with a NUL. */
typedef struct emitter0_entry {
    const char *key;
    const char *value;
    uint32_t key_length;
    uint32_t value_length;
} emitter0_entry;

/* A module: bytes for some runtime in one form or several, what it imports, and its functions. Module 0 is the root, and a module
 * imports modules of greater numbers only. `name` ends with a NUL, as do all strings here. */
typedef struct emitter0_module {
    const char *name;
    uint32_t name_length;
    uint32_t index;
    uint32_t alternative_first, alternative_count;
    uint32_t import_first, import_count;
    uint32_t function_first, function_count;
    uint32_t metadata_first, metadata_count;
} emitter0_module;

/* One form of a module: `size` bytes, aligned to `alignment`, for the runtime `kind`. `index` is its number within the module. */
typedef struct emitter0_alternative {
    const void *data;
    uint64_t size;
    const char *kind;
    uint32_t kind_length;
    uint32_t schema_version;
    uint32_t alignment;
    uint32_t crc32c;
    uint32_t index;
    uint32_t condition_first, condition_count;
} emitter0_alternative;

/* A function of the module of number `module`, and how many tensors it takes. */
typedef struct emitter0_function {
    const char *name;
    uint32_t name_length;
    uint32_t module;
    uint32_t argument_first, argument_count;
} emitter0_function;

/* What the place of loading says of itself, such as {"sm", "87"}: what alternatives have conditions on. */
typedef struct emitter0_fact {
    const char *key;
    const char *value;
} emitter0_fact;

/* The DLTensor of DLPack 1.x, field by field: cast a pointer to it where dlpack.h is used. */
typedef struct emitter0_dltensor {
    void *data; /* read-only: DLTensor has no word for it */
    int32_t device_type; /* 1: kDLCPU */
    int32_t device_id;
    int32_t ndim;
    uint8_t dtype_code;
    uint8_t dtype_bits;
    uint16_t dtype_lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} emitter0_dltensor;

/* A module as it is built: memory of the caller, one for each module, all zero at first. */
typedef struct emitter0_module_slot {
    void *handle; /* what the loader made of it */
    unsigned char built;
    unsigned char wanted_;
} emitter0_module_slot;

/* What a loader builds a module from. */
typedef struct emitter0_module_source {
    const emitter0_reader *reader;
    const emitter0_module_slot *slots;
    void *context; /* of emitter_modules */
    emitter0_module module;
    emitter0_alternative alternative; /* the one that fits */
} emitter0_module_source;

/* The loader of modules of one kind, of the schema versions from `schema_version_min` to `schema_version_max`. */
typedef struct emitter0_module_loader {
    const char *kind;
    uint32_t schema_version_min, schema_version_max;
    int (*build)(const emitter0_module_source *source, void **handle); /* 0 if it is built */
    void (*destroy)(void *handle, void *context);                     /* or null */
} emitter0_module_loader;

/* The modules of a pack, as loaders build them. The caller fills the first group. */
typedef struct emitter0_modules {
    const emitter0_reader *reader;
    const emitter0_module_loader *loaders;
    size_t loader_count;
    const emitter0_fact *place;
    size_t place_count;
    emitter0_module_slot *slots; /* emitter_module_count(reader) of them */
    void *context;               /* the loaders get it */
    emitter0_status status;      /* of the last call that failed, for emitter_modules_explain */
    uint32_t failed;             /* the module that it failed at */
} emitter0_modules;

/* ---- Functions. What they fill (`out`, a reader, a library) is written on failure too, whatever failed: all zero, but for what a
 * reader says of a refusal. ---- */

/* Open the pack at `base`, of which `size` bytes may be read (more than the pack has is fine). `base` is 8-aligned. O(1): looks at
 * the header and the directory alone. A reader that was refused holds no tensors. */
EMITTER0_FUNCTION_ emitter0_status emitter0_open(emitter0_reader *reader, const void *base, size_t size);

/* The same, and refuse tensors of another schema than a program was written for: NAME_SCHEMA of the generated header. */
EMITTER0_FUNCTION_ emitter0_status emitter0_open_expect(emitter0_reader *reader, const void *base, size_t size, uint64_t schema);

/* Check every rule of the format, and the index checksum: O(size of the index). The other functions are safe without it: they check
 * what they use, and return EMITTER_MALFORMED. */
EMITTER0_FUNCTION_ emitter0_status emitter0_validate(emitter0_reader *reader);

/* Tensors, in ascending order of the bytes of their names. */
EMITTER0_FUNCTION_ uint32_t emitter0_count(const emitter0_reader *reader);
EMITTER0_FUNCTION_ emitter0_status emitter0_at(const emitter0_reader *reader, uint32_t index, emitter0_tensor *out);
EMITTER0_FUNCTION_ emitter0_status emitter0_find(const emitter0_reader *reader, const char *name, emitter0_tensor *out);
EMITTER0_FUNCTION_ emitter0_status emitter0_find_length(const emitter0_reader *reader, const char *name, size_t length,
                                                        emitter0_tensor *out);

/* Compare the data of one tensor, or of all, with the checksums that were written: EMITTER_CHECKSUM if they differ. */
EMITTER0_FUNCTION_ emitter0_status emitter0_check_tensor(const emitter0_tensor *tensor);
EMITTER0_FUNCTION_ emitter0_status emitter0_check(emitter0_reader *reader);

/* Metadata of a tensor, or of the package if `tensor` is null, in ascending order of the bytes of the keys. */
EMITTER0_FUNCTION_ uint32_t emitter0_metadata_count(const emitter0_reader *reader, const emitter0_tensor *tensor);
EMITTER0_FUNCTION_ emitter0_status emitter0_metadata_at(const emitter0_reader *reader, const emitter0_tensor *tensor, uint32_t index,
                                                        emitter0_entry *out);
EMITTER0_FUNCTION_ emitter0_status emitter0_metadata_find(const emitter0_reader *reader, const emitter0_tensor *tensor, const char *key,
                                                          emitter0_entry *out);

/* Modules by number, from 0, or by name; what they consist of, by number from 0. */
EMITTER0_FUNCTION_ uint32_t emitter0_module_count(const emitter0_reader *reader);
EMITTER0_FUNCTION_ emitter0_status emitter0_module_at(const emitter0_reader *reader, uint32_t index, emitter0_module *out);
EMITTER0_FUNCTION_ emitter0_status emitter0_module_find(const emitter0_reader *reader, const char *name, emitter0_module *out);
EMITTER0_FUNCTION_ emitter0_status emitter0_module_alternative(const emitter0_reader *reader, const emitter0_module *module,
                                                               uint32_t index, emitter0_alternative *out);
EMITTER0_FUNCTION_ emitter0_status emitter0_module_import(const emitter0_reader *reader, const emitter0_module *module, uint32_t index,
                                                          emitter0_module *out);
EMITTER0_FUNCTION_ emitter0_status emitter0_module_function(const emitter0_reader *reader, const emitter0_module *module,
                                                            uint32_t index, emitter0_function *out);
EMITTER0_FUNCTION_ emitter0_status emitter0_module_metadata(const emitter0_reader *reader, const emitter0_module *module,
                                                            uint32_t index, emitter0_entry *out);

/* The first alternative whose conditions all hold at the place of `count` facts; EMITTER_NO_ALTERNATIVE if there is none. */
EMITTER0_FUNCTION_ emitter0_status emitter0_module_select(const emitter0_reader *reader, const emitter0_module *module,
                                                          const emitter0_fact *place, size_t count, emitter0_alternative *out);

/* The function of that name, of whatever module: names are unique in the pack. Then the tensors that it takes, in order; and all of
 * them as DLTensors, of which `capacity` can be filled (EMITTER_ARGUMENT if that is less than argument_count). */
EMITTER0_FUNCTION_ emitter0_status emitter0_function_find(const emitter0_reader *reader, const char *name, emitter0_function *out);
EMITTER0_FUNCTION_ emitter0_status emitter0_function_argument(const emitter0_reader *reader, const emitter0_function *function,
                                                              uint32_t index, emitter0_tensor *out);
EMITTER0_FUNCTION_ emitter0_status emitter0_function_arguments(const emitter0_reader *reader, const emitter0_function *function,
                                                               emitter0_dltensor *out, size_t capacity);

/* A tensor as a DLTensor over the same memory; EMITTER_ENCODED for a block format. */
EMITTER0_FUNCTION_ emitter0_status emitter0_dltensor_of(const emitter0_tensor *tensor, emitter0_dltensor *out);

/* Build module `index`, after all that it imports, each once; or all modules. Handles are in `slots`. On failure `status` and `failed`
 * say where it ended, what was built stays built, and the next call goes on from there. */
EMITTER0_FUNCTION_ emitter0_status emitter0_modules_build(emitter0_modules *modules, uint32_t index);
EMITTER0_FUNCTION_ emitter0_status emitter0_modules_build_all(emitter0_modules *modules);

/* Destroy what was built, each module before what it imports. */
EMITTER0_FUNCTION_ void emitter0_modules_destroy(emitter0_modules *modules);

/* For loaders: what was made of import `index` of the module that is built; null if there is no such import. */
EMITTER0_FUNCTION_ void *emitter0_source_import(const emitter0_module_source *source, uint32_t index);

/* Say in `text` (of `size` bytes, ended with a NUL) why the last call failed: with the kind and the schema version that nobody loads,
 * or why each alternative does not fit. Returns the bytes that the whole text has, without the NUL. */
EMITTER0_FUNCTION_ size_t emitter0_modules_explain(const emitter0_modules *modules, char *text, size_t size);

/* The user's version string; "" if there is none. */
EMITTER0_FUNCTION_ const char *emitter0_model_version(const emitter0_reader *reader);

/* One clause in English. */
EMITTER0_FUNCTION_ const char *emitter0_status_string(emitter0_status status);

/* The name of an element type of one lane, as "float32"; "unknown" if it has none. */
EMITTER0_FUNCTION_ const char *emitter0_dtype_name(unsigned code, unsigned bits);

/* CRC-32C of the bytes that `crc` (0 at first) covers, followed by these. */
EMITTER0_FUNCTION_ uint32_t emitter0_crc32c(const void *data, size_t size, uint32_t crc);

#ifdef EMITTER_LIBRARY
/* A shared library that holds a pack, and the reader of the pack. */
typedef struct emitter0_library {
    emitter0_reader reader;
    void *handle; /* of dlopen or LoadLibrary */
    const void *symbol; /* the pack in it: emitter_pack */
    const void *sidecar; /* the mapped file that holds the payloads, null if the library itself does */
    size_t sidecar_size;
} emitter0_library;

/* Load a library. A path (it contains a slash; on Windows it is UTF-8, and may have a backslash or a colon) is opened once: that file is
 * checked (a file of another CPU or a truncated one is refused, where the system fails without saying why or dies of SIGBUS) and that
 * file is loaded. A bare name is searched for by the system's loader, and its pack checked. On failure `message` (of `message_size`
 * bytes, or null) says why. A library whose payloads are in a file beside it opens as any other. A file that is truncated AFTER it was
 * loaded still kills the process when its pages are read: replace libraries by renaming. */
EMITTER0_FUNCTION_ emitter0_status emitter0_library_open(emitter0_library *library, const char *path_or_soname, char *message,
                                                         size_t message_size);

/* Open the pack of number `index` in a library that holds several, in the order of their notes, or of their sections where a format has
 * no notes; EMITTER_NOT_FOUND after the last. */
EMITTER0_FUNCTION_ emitter0_status emitter0_library_pack(const emitter0_library *library, uint32_t index, emitter0_reader *reader);

/* Unload. Everything that was read from the pack is gone (musl keeps libraries loaded for ever). */
EMITTER0_FUNCTION_ void emitter0_library_close(emitter0_library *library);
#endif

#ifdef __cplusplus
}
#endif

#if defined(EMITTER_IMPLEMENTATION) || !defined(EMITTER_EXTERN)

#ifdef __cplusplus
extern "C" {
#endif

/* ---- CRC-32C (Castagnoli, RFC 3720 appendix B.4) ---- */

typedef uint32_t EMITTER0_MAY_ALIAS_ emitter0_word32_;
typedef uint64_t EMITTER0_MAY_ALIAS_ emitter0_word64_;

#if defined(__x86_64__) && defined(__SSE4_2__)
#define EMITTER0_CRC_WORD_ emitter0_word64_
#define EMITTER0_CRC_STEP_(crc, word) ((uint32_t)__builtin_ia32_crc32di((crc), (word)))
#elif defined(__i386__) && defined(__SSE4_2__)
#define EMITTER0_CRC_WORD_ emitter0_word32_
#define EMITTER0_CRC_STEP_(crc, word) ((uint32_t)__builtin_ia32_crc32si((crc), (word)))
#elif defined(__ARM_FEATURE_CRC32) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#if defined(__aarch64__) && defined(__clang__)
#define EMITTER0_CRC_WORD_ emitter0_word64_
#define EMITTER0_CRC_STEP_(crc, word) ((uint32_t)__builtin_arm_crc32cd((crc), (word)))
#elif defined(__aarch64__)
#define EMITTER0_CRC_WORD_ emitter0_word64_
#define EMITTER0_CRC_STEP_(crc, word) ((uint32_t)__builtin_aarch64_crc32cx((crc), (word)))
#else
#define EMITTER0_CRC_WORD_ emitter0_word32_
#define EMITTER0_CRC_STEP_(crc, word) ((uint32_t)__builtin_arm_crc32cw((crc), (word)))
#endif
#endif

/* [k][n] is the register after the nibble n, followed by k nibbles of zero: eight lookups that do not wait for each other, per four
 * bytes, from 512 bytes of table. */
static inline uint32_t emitter0_crc_nibble_(unsigned position, uint32_t nibble)
{
    static const uint32_t table[8][16] = {
        /* generated: crc */
        {0x00000000u, 0x105ec76fu, 0x20bd8edeu, 0x30e349b1u, 0x417b1dbcu, 0x5125dad3u, 0x61c69362u, 0x7198540du,
         0x82f63b78u, 0x92a8fc17u, 0xa24bb5a6u, 0xb21572c9u, 0xc38d26c4u, 0xd3d3e1abu, 0xe330a81au, 0xf36e6f75u},
        {0x00000000u, 0xf26b8303u, 0xe13b70f7u, 0x1350f3f4u, 0xc79a971fu, 0x35f1141cu, 0x26a1e7e8u, 0xd4ca64ebu,
         0x8ad958cfu, 0x78b2dbccu, 0x6be22838u, 0x9989ab3bu, 0x4d43cfd0u, 0xbf284cd3u, 0xac78bf27u, 0x5e133c24u},
        {0x00000000u, 0x3fc5f181u, 0x7f8be302u, 0x404e1283u, 0xff17c604u, 0xc0d23785u, 0x809c2506u, 0xbf59d487u,
         0xfbc3faf9u, 0xc4060b78u, 0x844819fbu, 0xbb8de87au, 0x04d43cfdu, 0x3b11cd7cu, 0x7b5fdfffu, 0x449a2e7eu},
        {0x00000000u, 0x13a29877u, 0x274530eeu, 0x34e7a899u, 0x4e8a61dcu, 0x5d28f9abu, 0x69cf5132u, 0x7a6dc945u,
         0x9d14c3b8u, 0x8eb65bcfu, 0xba51f356u, 0xa9f36b21u, 0xd39ea264u, 0xc03c3a13u, 0xf4db928au, 0xe7790afdu},
        {0x00000000u, 0x70a27d8au, 0xe144fb14u, 0x91e6869eu, 0xc76580d9u, 0xb7c7fd53u, 0x26217bcdu, 0x56830647u,
         0x8b277743u, 0xfb850ac9u, 0x6a638c57u, 0x1ac1f1ddu, 0x4c42f79au, 0x3ce08a10u, 0xad060c8eu, 0xdda47104u},
        {0x00000000u, 0xa541927eu, 0x4f6f520du, 0xea2ec073u, 0x9edea41au, 0x3b9f3664u, 0xd1b1f617u, 0x74f06469u,
         0x38513ec5u, 0x9d10acbbu, 0x773e6cc8u, 0xd27ffeb6u, 0xa68f9adfu, 0x03ce08a1u, 0xe9e0c8d2u, 0x4ca15aacu},
        {0x00000000u, 0xe964b13du, 0xd725148bu, 0x3e41a5b6u, 0xaba65fe7u, 0x42c2eedau, 0x7c834b6cu, 0x95e7fa51u,
         0x52a0c93fu, 0xbbc47802u, 0x8585ddb4u, 0x6ce16c89u, 0xf90696d8u, 0x106227e5u, 0x2e238253u, 0xc747336eu},
        {0x00000000u, 0xdd45aab8u, 0xbf672381u, 0x62228939u, 0x7b2231f3u, 0xa6679b4bu, 0xc4451272u, 0x1900b8cau,
         0xf64463e6u, 0x2b01c95eu, 0x49234067u, 0x9466eadfu, 0x8d665215u, 0x5023f8adu, 0x32017194u, 0xef44db2cu},
        /* end of generated: crc */
    };
    return table[position][nibble & 15u];
}

static inline uint32_t emitter0_crc_byte_(uint32_t crc, unsigned char byte)
{
    crc ^= byte;
    return (crc >> 8) ^ emitter0_crc_nibble_(1, crc) ^ emitter0_crc_nibble_(0, crc >> 4);
}

EMITTER0_FUNCTION_ uint32_t emitter0_crc32c(const void *data, size_t size, uint32_t crc)
{
    const unsigned char *byte = (const unsigned char *)data;
    crc = ~crc;
#ifdef EMITTER0_CRC_WORD_
    while (size > 0 && ((uintptr_t)byte & (sizeof(EMITTER0_CRC_WORD_) - 1)) != 0) {
        crc = emitter0_crc_byte_(crc, *byte++);
        size--;
    }
    while (size >= sizeof(EMITTER0_CRC_WORD_)) {
        crc = EMITTER0_CRC_STEP_(crc, *(const EMITTER0_CRC_WORD_ *)(const void *)byte);
        byte += sizeof(EMITTER0_CRC_WORD_);
        size -= sizeof(EMITTER0_CRC_WORD_);
    }
#else
    while (size >= 4) {
        crc ^= (uint32_t)byte[0] | (uint32_t)byte[1] << 8 | (uint32_t)byte[2] << 16 | (uint32_t)byte[3] << 24;
        crc = emitter0_crc_nibble_(7, crc) ^ emitter0_crc_nibble_(6, crc >> 4) ^ emitter0_crc_nibble_(5, crc >> 8)
            ^ emitter0_crc_nibble_(4, crc >> 12) ^ emitter0_crc_nibble_(3, crc >> 16) ^ emitter0_crc_nibble_(2, crc >> 20)
            ^ emitter0_crc_nibble_(1, crc >> 24) ^ emitter0_crc_nibble_(0, crc >> 28);
        byte += 4;
        size -= 4;
    }
#endif
    while (size > 0) {
        crc = emitter0_crc_byte_(crc, *byte++);
        size--;
    }
    return ~crc;
}

/* ---- Small helpers ---- */

static inline emitter0_status emitter0_refuse_(emitter0_reader *reader, emitter0_status status, const char *where, uint32_t record)
{
    reader->where = where;
    reader->where_record = record;
    return status;
}

static inline const unsigned char *emitter0_record_(const emitter0_reader *reader, const emitter0_table_ *table, uint32_t index)
{
    return reader->base + ((size_t)table->offset + (size_t)index * table->record_size);
}

static inline const struct emitter0_tensor_record *emitter0_tensor_record_(const emitter0_reader *reader, uint32_t index)
{
    return (const struct emitter0_tensor_record *)(const void *)emitter0_record_(reader, &reader->tensor, index);
}

static inline const struct emitter0_payload_record *emitter0_payload_record_(const emitter0_reader *reader, uint32_t index)
{
    return (const struct emitter0_payload_record *)(const void *)emitter0_record_(reader, &reader->payload, index);
}

/* The string at `offset` of the pack, or null if it is not within the pool with a NUL behind it, or begins inside a character. */
static inline const char *emitter0_string_(const emitter0_reader *reader, uint32_t offset, uint32_t length)
{
    const unsigned char *text;
    uint32_t start = offset - reader->string.offset;
    if (offset < reader->string.offset || start >= reader->string.count || length >= reader->string.count - start)
        return NULL;
    text = reader->base + offset;
    return text[length] == 0 && (text[0] & 0xc0u) != 0x80u ? (const char *)text : NULL;
}

static inline int emitter0_holds_nul_(const char *text, uint32_t length)
{
    uint32_t i = 0;
    while (i < length && text[i] != 0)
        i++;
    return i < length;
}

/* As memcmp, then the shorter first. */
static inline int emitter0_compare_(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t i = 0, common = a_length < b_length ? a_length : b_length;
    while (i < common && a[i] == b[i])
        i++;
    if (i < common)
        return (unsigned char)a[i] < (unsigned char)b[i] ? -1 : 1;
    return a_length == b_length ? 0 : a_length < b_length ? -1 : 1;
}

static inline int emitter0_power_of_two_(uint32_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* int64[ndim] at `offset` of the pack, or null if it is not within the pool. */
static inline const emitter0_word64_ *emitter0_dims_(const emitter0_reader *reader, uint32_t offset, uint32_t ndim)
{
    uint32_t start = offset - reader->dim.offset;
    if (offset < reader->dim.offset || (start & 7u) != 0 || start / 8 > reader->dim.count || ndim > reader->dim.count - start / 8)
        return NULL;
    return (const emitter0_word64_ *)(const void *)(reader->base + offset);
}

/* a * b for numbers below 2^63; false if the product is not. Without a 128-bit type or a division, which would need a library. */
static inline int emitter0_multiply_(uint64_t a, uint64_t b, uint64_t *product)
{
    const uint64_t word = 0xffffffffu;
    uint64_t middle, low = (a & word) * (b & word);
    if (a > word && b > word)
        return 0;
    middle = (a >> 32) * (b & word) + (b >> 32) * (a & word);
    if (middle > 0x7fffffffu || low > (uint64_t)INT64_MAX - (middle << 32))
        return 0;
    *product = (middle << 32) + low;
    return 1;
}

/* Whether `elements` (below 2^63) of `bits` bits (below 2^24) fill `size` bytes, with zero bits up to the last whole byte. */
static inline int emitter0_fills_(uint64_t elements, uint32_t bits, uint64_t size)
{
    uint64_t eights = elements >> 3;
    uint64_t high = (eights >> 32) * bits;
    uint64_t low = (eights & 0xffffffffu) * bits + ((elements & 7u) * bits + 7) / 8;
    return high <= 0x7fffffffu && (high << 32) + low == size;
}

/* ---- Opening ---- */

static inline void emitter0_clear_table_(emitter0_table_ *table)
{
    table->offset = 0;
    table->count = 0;
    table->record_size = 0;
}

static inline void emitter0_clear_reader_(emitter0_reader *reader)
{
    reader->where = "";
    reader->where_record = 0;
    reader->alignment = 0;
    reader->unknown_features = 0;
    reader->schema = 0;
    reader->size = 0;
    reader->base = NULL;
    reader->index_size = 0;
    reader->index_crc32c = 0;
    reader->header_size = 0;
    reader->model_version_offset = 0;
    reader->metadata_first = 0;
    reader->metadata_count = 0;
    emitter0_clear_table_(&reader->payload);
    emitter0_clear_table_(&reader->tensor);
    emitter0_clear_table_(&reader->metadata);
    emitter0_clear_table_(&reader->dim);
    emitter0_clear_table_(&reader->string);
    emitter0_clear_table_(&reader->sidecar);
    emitter0_clear_table_(&reader->module);
    emitter0_clear_table_(&reader->alternative);
    emitter0_clear_table_(&reader->condition);
    emitter0_clear_table_(&reader->imported);
    emitter0_clear_table_(&reader->function);
    emitter0_clear_table_(&reader->argument);
}

/* Whether the records of a table are long enough: exactly as this version has them where they are read as an array. */
static inline int emitter0_record_size_fits_(uint32_t kind, uint32_t size)
{
    static const unsigned char known[13] = {0,
                                            EMITTER0_SIZEOF_PAYLOAD_,
                                            EMITTER0_SIZEOF_TENSOR_,
                                            EMITTER0_SIZEOF_METADATA_,
                                            EMITTER0_SIZEOF_DIM_,
                                            EMITTER0_SIZEOF_STRING_,
                                            EMITTER0_SIZEOF_SIDECAR_,
                                            EMITTER0_SIZEOF_MODULE_,
                                            EMITTER0_SIZEOF_ALTERNATIVE_,
                                            EMITTER0_SIZEOF_CONDITION_,
                                            EMITTER0_SIZEOF_IMPORT_,
                                            EMITTER0_SIZEOF_FUNCTION_,
                                            EMITTER0_SIZEOF_ARGUMENT_};
    return kind == EMITTER0_KIND_DIM_ || kind == EMITTER0_KIND_STRING_ ? size == known[kind] : size >= known[kind] && size % 8 == 0;
}

/* Find the tables. One that is not there is empty. */
static inline emitter0_status emitter0_open_directory_(emitter0_reader *reader, const struct emitter0_header_record *header)
{
    uint32_t i, found = 0;
    if (header->directory_record_size < EMITTER0_SIZEOF_TABLE_ || header->directory_record_size % 8 != 0)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.directory_record_size", 0);
    if (header->directory_count > EMITTER0_MAX_TABLES_)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.directory_count", 0);
    if (header->directory_offset % 8 != 0 || header->directory_offset < header->header_size
        || header->directory_offset > header->index_size
        || (uint64_t)header->directory_count * header->directory_record_size > header->index_size - header->directory_offset)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.directory_offset", 0);
    for (i = 0; i < header->directory_count; i++) {
        const struct emitter0_table_record *entry = (const struct emitter0_table_record *)(const void *)(
            reader->base + header->directory_offset + (size_t)i * header->directory_record_size);
        emitter0_table_ *table = NULL;
        switch (entry->kind) {
        case EMITTER0_KIND_PAYLOAD_: table = &reader->payload; break;
        case EMITTER0_KIND_TENSOR_: table = &reader->tensor; break;
        case EMITTER0_KIND_METADATA_: table = &reader->metadata; break;
        case EMITTER0_KIND_DIM_: table = &reader->dim; break;
        case EMITTER0_KIND_STRING_: table = &reader->string; break;
        case EMITTER0_KIND_SIDECAR_: table = &reader->sidecar; break;
        case EMITTER0_KIND_MODULE_: table = &reader->module; break;
        case EMITTER0_KIND_ALTERNATIVE_: table = &reader->alternative; break;
        case EMITTER0_KIND_CONDITION_: table = &reader->condition; break;
        case EMITTER0_KIND_IMPORT_: table = &reader->imported; break;
        case EMITTER0_KIND_FUNCTION_: table = &reader->function; break;
        case EMITTER0_KIND_ARGUMENT_: table = &reader->argument; break;
        default: break; /* from a later version */
        }
        if (entry->offset % 8 != 0 || entry->offset < header->header_size || entry->offset > header->index_size
            || (uint64_t)entry->count * entry->record_size > header->index_size - entry->offset)
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, "table.offset", i);
        if (table == NULL)
            continue;
        if ((found >> entry->kind & 1u) != 0)
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, "table.kind", i);
        if (!emitter0_record_size_fits_(entry->kind, entry->record_size))
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, "table.record_size", i);
        found |= (uint32_t)1 << entry->kind;
        table->offset = entry->offset;
        table->count = entry->count;
        table->record_size = entry->record_size;
    }
    return EMITTER0_OK;
}

/* Look at the header, in the order in which its fields can be trusted. */
static inline emitter0_status emitter0_open_header_(emitter0_reader *reader, size_t size)
{
    static const unsigned char magic[8] = EMITTER0_MAGIC_, zero[4] = {0, 0, 0, 0};
    const struct emitter0_header_record *header = (const struct emitter0_header_record *)(const void *)reader->base;
    const unsigned char *base = reader->base;
    emitter0_status status;
    uint32_t crc;
    size_t i;
    for (i = 0; i < 8 && i < size; i++)
        if (base[i] != magic[i])
            return emitter0_refuse_(reader, EMITTER0_NOT_A_PACK, "header.magic", 0);
    if (size < EMITTER0_SIZEOF_HEADER_)
        return emitter0_refuse_(reader, EMITTER0_TRUNCATED, "header", 0);
    if (header->byte_order == EMITTER0_FOREIGN_MARK_)
        return emitter0_refuse_(reader, EMITTER0_FOREIGN_BYTE_ORDER, "header.byte_order", 0);
    if (header->byte_order != EMITTER0_BYTE_ORDER_MARK_)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.byte_order", 0);
    if (header->version_major > EMITTER0_VERSION_MAJOR_)
        return emitter0_refuse_(reader, EMITTER0_VERSION, "header.version_major", 0);
    if (header->header_size < EMITTER0_SIZEOF_HEADER_ || header->header_size > EMITTER0_MAX_HEADER_ || header->header_size % 8 != 0)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.header_size", 0);
    if (header->header_size > size)
        return emitter0_refuse_(reader, EMITTER0_TRUNCATED, "header", 0);
    crc = emitter0_crc32c(base, EMITTER0_HEADER_CRC_OFFSET_, 0);
    crc = emitter0_crc32c(zero, 4, crc);
    crc = emitter0_crc32c(base + EMITTER0_HEADER_CRC_OFFSET_ + 4, header->header_size - EMITTER0_HEADER_CRC_OFFSET_ - 4, crc);
    if (crc != header->header_crc32c)
        return emitter0_refuse_(reader, EMITTER0_CHECKSUM, "header.header_crc32c", 0);
    reader->unknown_features = header->incompatible_features & ~(uint64_t)(EMITTER0_KNOWN_INCOMPATIBLE_ | EMITTER0_FEATURE_SIDECAR_);
    if (reader->unknown_features != 0)
        return emitter0_refuse_(reader, EMITTER0_FEATURE, "header.incompatible_features", 0);
    for (i = 0; i < sizeof header->reserved; i++)
        if (header->reserved[i] != 0)
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.reserved", 0);
    if (header->index_size % 8 != 0 || header->index_size < header->header_size || header->index_size > header->total_size)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.index_size", 0);
    if (header->total_size > (uint64_t)INT64_MAX)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.total_size", 0);
    if (header->total_size > size)
        return emitter0_refuse_(reader, EMITTER0_TRUNCATED, "header.total_size", 0);
    if (!emitter0_power_of_two_(header->alignment) || header->alignment < 8 || header->alignment > EMITTER0_MAX_ALIGNMENT_)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.alignment", 0);
    status = emitter0_open_directory_(reader, header);
    if (status != EMITTER0_OK)
        return status;
    if (reader->sidecar.count != ((header->incompatible_features & EMITTER0_FEATURE_SIDECAR_) != 0 ? 1u : 0u))
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.incompatible_features", 0);
    if (header->model_version_length > EMITTER0_MAX_NAME_
        || emitter0_string_(reader, header->model_version_offset, header->model_version_length) == NULL)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.model_version_offset", 0);
    if ((uint64_t)header->metadata_first + header->metadata_count > reader->metadata.count)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.metadata_first", 0);
    reader->alignment = header->alignment;
    reader->schema = header->schema_hash;
    reader->size = header->total_size;
    reader->index_size = header->index_size;
    reader->index_crc32c = header->index_crc32c;
    reader->header_size = header->header_size;
    reader->model_version_offset = header->model_version_offset;
    reader->metadata_first = header->metadata_first;
    reader->metadata_count = header->metadata_count;
    return EMITTER0_OK;
}

/* Open a pack of either kind: one whose payloads are in another file has one record in the table `sidecar`. */
static inline emitter0_status emitter0_open_any_(emitter0_reader *reader, const void *base, size_t size)
{
    emitter0_status status;
    if (reader == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_reader_(reader);
    if (base == NULL)
        return EMITTER0_ARGUMENT;
    if (((uintptr_t)base & 7u) != 0)
        return EMITTER0_MISALIGNED;
    reader->base = (const unsigned char *)base;
    status = emitter0_open_header_(reader, size);
    if (status != EMITTER0_OK) {
        const char *where = reader->where;
        uint32_t record = reader->where_record;
        uint64_t features = reader->unknown_features;
        emitter0_clear_reader_(reader);
        reader->unknown_features = features;
        return emitter0_refuse_(reader, status, where, record);
    }
    return EMITTER0_OK;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_open(emitter0_reader *reader, const void *base, size_t size)
{
    emitter0_status status = emitter0_open_any_(reader, base, size);
    if (status == EMITTER0_OK && reader->sidecar.count != 0) {
        emitter0_clear_reader_(reader);
        reader->unknown_features = EMITTER0_FEATURE_SIDECAR_;
        return emitter0_refuse_(reader, EMITTER0_SIDECAR, "header.incompatible_features", 0);
    }
    return status;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_open_expect(emitter0_reader *reader, const void *base, size_t size, uint64_t schema)
{
    emitter0_status status = emitter0_open(reader, base, size);
    if (status == EMITTER0_OK && reader->schema != schema) {
        uint64_t actual = reader->schema;
        emitter0_clear_reader_(reader);
        reader->schema = actual;
        return emitter0_refuse_(reader, EMITTER0_SCHEMA, "header.schema_hash", 0);
    }
    return status;
}

/* ---- Tensors ---- */

static inline void emitter0_clear_tensor_(emitter0_tensor *tensor)
{
    tensor->data = NULL;
    tensor->nbytes = 0;
    tensor->name = NULL;
    tensor->shape = NULL;
    tensor->strides = NULL;
    tensor->name_length = 0;
    tensor->alignment = 0;
    tensor->crc32c = 0;
    tensor->metadata_first = 0;
    tensor->metadata_count = 0;
    tensor->ndim = 0;
    tensor->dtype_lanes = 0;
    tensor->encoding = 0;
    tensor->dtype_code = 0;
    tensor->dtype_bits = 0;
}

/* The field of a payload record that breaks a rule, or null. */
static inline const char *emitter0_payload_fault_(const emitter0_reader *reader, const struct emitter0_payload_record *payload)
{
    if (!emitter0_power_of_two_(payload->alignment) || payload->alignment > reader->alignment)
        return "payload.alignment";
    if (payload->offset < reader->index_size || payload->offset > reader->size || (payload->offset & (payload->alignment - 1)) != 0)
        return "payload.offset";
    return payload->size > reader->size - payload->offset ? "payload.size" : NULL;
}

/* Shape and strides of a tensor record: the number of elements, or the field that breaks a rule. */
static inline const char *emitter0_shape_fault_(const emitter0_reader *reader, const struct emitter0_tensor_record *record,
                                                const emitter0_word64_ **shape, const emitter0_word64_ **strides, uint64_t *elements)
{
    uint64_t step = 1;
    uint32_t i;
    int empty = 0;
    *shape = NULL;
    *strides = NULL;
    *elements = 1;
    if (record->ndim > EMITTER0_MAX_NDIM_)
        return "tensor.ndim";
    if (record->ndim == 0)
        return record->shape_offset != 0 ? "tensor.shape_offset" : record->strides_offset != 0 ? "tensor.strides_offset" : NULL;
    *shape = emitter0_dims_(reader, record->shape_offset, record->ndim);
    if (*shape == NULL)
        return "tensor.shape_offset";
    *strides = emitter0_dims_(reader, record->strides_offset, record->ndim);
    if (*strides == NULL)
        return "tensor.strides_offset";
    for (i = record->ndim; i-- > 0;) {
        uint64_t extent = (*shape)[i];
        if ((*strides)[i] != step)
            return "tensor.strides";
        empty |= extent == 0;
        if (extent > (uint64_t)INT64_MAX || (extent > 1 && !emitter0_multiply_(step, extent, &step)))
            return "tensor.shape";
    }
    *elements = empty ? 0 : step;
    return NULL;
}

/* Fill `out` from record `index`, which exists; or the field that breaks a rule. */
static inline const char *emitter0_tensor_fault_(const emitter0_reader *reader, uint32_t index, emitter0_tensor *out)
{
    const struct emitter0_tensor_record *record = emitter0_tensor_record_(reader, index);
    const struct emitter0_payload_record *payload;
    const emitter0_word64_ *shape, *strides;
    const char *fault, *name = emitter0_string_(reader, record->name_offset, record->name_length);
    uint64_t elements;
    if (name == NULL)
        return "tensor.name_offset";
    if (record->name_length == 0 || record->name_length > EMITTER0_MAX_NAME_)
        return "tensor.name_length";
    if (record->payload >= reader->payload.count)
        return "tensor.payload";
    payload = emitter0_payload_record_(reader, record->payload);
    fault = emitter0_payload_fault_(reader, payload);
    if (fault == NULL)
        fault = emitter0_shape_fault_(reader, record, &shape, &strides, &elements);
    if (fault != NULL)
        return fault;
    if (record->dtype_bits == 0)
        return "tensor.dtype_bits";
    if (record->dtype_lanes == 0)
        return "tensor.dtype_lanes";
    if (record->encoding == 0 && !emitter0_fills_(elements, (uint32_t)record->dtype_bits * record->dtype_lanes, payload->size))
        return "payload.size";
    if ((uint64_t)record->metadata_first + record->metadata_count > reader->metadata.count)
        return "tensor.metadata_first";
    if ((record->reserved[0] | record->reserved[1] | record->reserved[2] | record->reserved[3]) != 0)
        return "tensor.reserved";
    out->data = reader->base + (size_t)payload->offset;
    out->nbytes = payload->size;
    out->name = name;
    out->shape = (const int64_t *)(const void *)shape;
    out->strides = (const int64_t *)(const void *)strides;
    out->name_length = record->name_length;
    out->alignment = payload->alignment;
    out->crc32c = payload->crc32c;
    out->metadata_first = record->metadata_first;
    out->metadata_count = record->metadata_count;
    out->ndim = record->ndim;
    out->dtype_lanes = record->dtype_lanes;
    out->encoding = record->encoding;
    out->dtype_code = record->dtype_code;
    out->dtype_bits = record->dtype_bits;
    return NULL;
}

EMITTER0_FUNCTION_ uint32_t emitter0_count(const emitter0_reader *reader)
{
    return reader == NULL ? 0 : reader->tensor.count;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_at(const emitter0_reader *reader, uint32_t index, emitter0_tensor *out)
{
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_tensor_(out);
    if (reader == NULL)
        return EMITTER0_ARGUMENT;
    if (index >= reader->tensor.count)
        return EMITTER0_NOT_FOUND;
    return emitter0_tensor_fault_(reader, index, out) == NULL ? EMITTER0_OK : EMITTER0_MALFORMED;
}

/* Have the cache fetch what the search will look at if it goes on in records `low` to `high`: the middle one's name (the record itself
 * was asked for a step ago) and the two records after that. A big index is not in the cache, and each step would wait twice. */
EMITTER0_ALWAYS_INLINE_ static inline void emitter0_prefetch_half_(const emitter0_reader *reader, uint32_t low, uint32_t high, size_t match)
{
    if (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uintptr_t name = (uintptr_t)reader->base + emitter0_tensor_record_(reader, middle)->name_offset + match;
        EMITTER0_PREFETCH_((const void *)name); /* wherever it points: a prefetch never faults */
        EMITTER0_PREFETCH_(emitter0_tensor_record_(reader, low + (middle - low) / 2));
        EMITTER0_PREFETCH_(emitter0_tensor_record_(reader, middle + (high - middle) / 2));
    }
}

EMITTER0_FUNCTION_ emitter0_status emitter0_find_length(const emitter0_reader *reader, const char *name, size_t length,
                                                        emitter0_tensor *out)
{
    /* Names between two that share a prefix with `name` share the shorter of the two prefixes, if the table is sorted: it is not
     * compared again, until a name is found. */
    size_t low_match = 0, high_match = 0;
    uint32_t low = 0, high;
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_tensor_(out);
    if (reader == NULL || name == NULL)
        return EMITTER0_ARGUMENT;
    high = reader->tensor.count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct emitter0_tensor_record *record = emitter0_tensor_record_(reader, middle);
        const char *other;
        size_t common, i = low_match < high_match ? low_match : high_match;
        emitter0_prefetch_half_(reader, low, middle, i);
        emitter0_prefetch_half_(reader, middle + 1, high, i);
        other = emitter0_string_(reader, record->name_offset, record->name_length);
        if (other == NULL)
            return EMITTER0_MALFORMED;
        common = record->name_length < length ? record->name_length : length;
        if (i > common)
            i = common;
        while (i < common && other[i] == name[i])
            i++;
        if (i == length && i == record->name_length) {
            if (emitter0_compare_(name, length, other, length) != 0)
                return EMITTER0_MALFORMED;
            return emitter0_at(reader, middle, out);
        }
        if (i < common ? (unsigned char)other[i] < (unsigned char)name[i] : record->name_length < length) {
            low = middle + 1;
            low_match = i;
        } else {
            high = middle;
            high_match = i;
        }
    }
    return EMITTER0_NOT_FOUND;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_find(const emitter0_reader *reader, const char *name, emitter0_tensor *out)
{
    size_t length = 0;
    if (name != NULL)
        while (length <= EMITTER0_MAX_NAME_ && name[length] != 0)
            length++;
    return emitter0_find_length(reader, name, length, out);
}

/* ---- Metadata ---- */

static inline void emitter0_clear_entry_(emitter0_entry *entry)
{
    entry->key = NULL;
    entry->value = NULL;
    entry->key_length = 0;
    entry->value_length = 0;
}

static inline const char *emitter0_entry_fault_(const emitter0_reader *reader, uint32_t index, emitter0_entry *out)
{
    const struct emitter0_metadata_record *record
        = (const struct emitter0_metadata_record *)(const void *)emitter0_record_(reader, &reader->metadata, index);
    const char *key = emitter0_string_(reader, record->key_offset, record->key_length);
    const char *value = emitter0_string_(reader, record->value_offset, record->value_length);
    if (key == NULL)
        return "metadata.key_offset";
    if (record->key_length == 0 || record->key_length > EMITTER0_MAX_NAME_)
        return "metadata.key_length";
    if (value == NULL)
        return "metadata.value_offset";
    out->key = key;
    out->value = value;
    out->key_length = record->key_length;
    out->value_length = record->value_length;
    return NULL;
}

EMITTER0_FUNCTION_ uint32_t emitter0_metadata_count(const emitter0_reader *reader, const emitter0_tensor *tensor)
{
    return tensor != NULL ? tensor->metadata_count : reader != NULL ? reader->metadata_count : 0;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_metadata_at(const emitter0_reader *reader, const emitter0_tensor *tensor, uint32_t index,
                                                        emitter0_entry *out)
{
    uint64_t record;
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_entry_(out);
    if (reader == NULL)
        return EMITTER0_ARGUMENT;
    record = (uint64_t)(tensor != NULL ? tensor->metadata_first : reader->metadata_first) + index;
    if (index >= emitter0_metadata_count(reader, tensor) || record >= reader->metadata.count)
        return EMITTER0_NOT_FOUND;
    return emitter0_entry_fault_(reader, (uint32_t)record, out) == NULL ? EMITTER0_OK : EMITTER0_MALFORMED;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_metadata_find(const emitter0_reader *reader, const emitter0_tensor *tensor, const char *key,
                                                          emitter0_entry *out)
{
    uint32_t low = 0, high = emitter0_metadata_count(reader, tensor);
    size_t length = 0;
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_entry_(out);
    if (reader == NULL || key == NULL)
        return EMITTER0_ARGUMENT;
    while (length <= EMITTER0_MAX_NAME_ && key[length] != 0)
        length++;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order;
        emitter0_status status = emitter0_metadata_at(reader, tensor, middle, out);
        if (status != EMITTER0_OK)
            return status;
        order = emitter0_compare_(out->key, out->key_length, key, length);
        if (order == 0)
            return EMITTER0_OK;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    emitter0_clear_entry_(out);
    return EMITTER0_NOT_FOUND;
}

EMITTER0_FUNCTION_ const char *emitter0_model_version(const emitter0_reader *reader)
{
    return reader == NULL || reader->base == NULL ? "" : (const char *)reader->base + reader->model_version_offset;
}

/* ---- Modules ---- */

static inline const struct emitter0_module_record *emitter0_module_record_(const emitter0_reader *reader, uint32_t index)
{
    return (const struct emitter0_module_record *)(const void *)emitter0_record_(reader, &reader->module, index);
}

static inline const struct emitter0_alternative_record *emitter0_alternative_record_(const emitter0_reader *reader, uint32_t index)
{
    return (const struct emitter0_alternative_record *)(const void *)emitter0_record_(reader, &reader->alternative, index);
}

static inline const struct emitter0_condition_record *emitter0_condition_record_(const emitter0_reader *reader, uint32_t index)
{
    return (const struct emitter0_condition_record *)(const void *)emitter0_record_(reader, &reader->condition, index);
}

static inline const struct emitter0_import_record *emitter0_import_record_(const emitter0_reader *reader, uint32_t index)
{
    return (const struct emitter0_import_record *)(const void *)emitter0_record_(reader, &reader->imported, index);
}

static inline const struct emitter0_function_record *emitter0_function_record_(const emitter0_reader *reader, uint32_t index)
{
    return (const struct emitter0_function_record *)(const void *)emitter0_record_(reader, &reader->function, index);
}

static inline const struct emitter0_argument_record *emitter0_argument_record_(const emitter0_reader *reader, uint32_t index)
{
    return (const struct emitter0_argument_record *)(const void *)emitter0_record_(reader, &reader->argument, index);
}

/* Whether `count` records from `first` are in a table. */
static inline int emitter0_run_fits_(const emitter0_table_ *table, uint32_t first, uint32_t count)
{
    return first <= table->count && count <= table->count - first;
}

/* A string that must not be empty; null if it breaks a rule. */
static inline const char *emitter0_word_(const emitter0_reader *reader, uint32_t offset, uint32_t length)
{
    return length == 0 || length > EMITTER0_MAX_NAME_ ? NULL : emitter0_string_(reader, offset, length);
}

static inline size_t emitter0_length_(const char *text)
{
    size_t length = 0;
    while (length <= EMITTER0_MAX_NAME_ && text[length] != 0)
        length++;
    return length;
}

static inline void emitter0_clear_module_(emitter0_module *module)
{
    module->name = NULL;
    module->name_length = module->index = 0;
    module->alternative_first = module->alternative_count = 0;
    module->import_first = module->import_count = 0;
    module->function_first = module->function_count = 0;
    module->metadata_first = module->metadata_count = 0;
}

static inline void emitter0_clear_alternative_(emitter0_alternative *alternative)
{
    alternative->data = NULL;
    alternative->size = 0;
    alternative->kind = NULL;
    alternative->kind_length = alternative->schema_version = alternative->alignment = alternative->crc32c = 0;
    alternative->index = alternative->condition_first = alternative->condition_count = 0;
}

static inline void emitter0_clear_function_(emitter0_function *function)
{
    function->name = NULL;
    function->name_length = function->module = function->argument_first = function->argument_count = 0;
}

/* Read a module, and say what is wrong with its record, or null. */
static inline const char *emitter0_module_fault_(const emitter0_reader *reader, uint32_t index, emitter0_module *out)
{
    const struct emitter0_module_record *record = emitter0_module_record_(reader, index);
    const char *name = emitter0_word_(reader, record->name_offset, record->name_length);
    if (name == NULL)
        return "module.name_offset";
    if (record->alternative_count == 0 || !emitter0_run_fits_(&reader->alternative, record->alternative_first, record->alternative_count))
        return "module.alternative_first";
    if (!emitter0_run_fits_(&reader->imported, record->import_first, record->import_count))
        return "module.import_first";
    if (!emitter0_run_fits_(&reader->function, record->function_first, record->function_count))
        return "module.function_first";
    if (!emitter0_run_fits_(&reader->metadata, record->metadata_first, record->metadata_count))
        return "module.metadata_first";
    out->name = name;
    out->name_length = record->name_length;
    out->index = index;
    out->alternative_first = record->alternative_first;
    out->alternative_count = record->alternative_count;
    out->import_first = record->import_first;
    out->import_count = record->import_count;
    out->function_first = record->function_first;
    out->function_count = record->function_count;
    out->metadata_first = record->metadata_first;
    out->metadata_count = record->metadata_count;
    return NULL;
}

/* The same for an alternative; `index` is that of its record. */
static inline const char *emitter0_alternative_fault_(const emitter0_reader *reader, uint32_t index, emitter0_alternative *out)
{
    const struct emitter0_alternative_record *record = emitter0_alternative_record_(reader, index);
    const struct emitter0_payload_record *payload;
    const char *kind = emitter0_word_(reader, record->kind_offset, record->kind_length);
    if (kind == NULL)
        return "alternative.kind_offset";
    if (record->payload >= reader->payload.count)
        return "alternative.payload";
    payload = emitter0_payload_record_(reader, record->payload);
    if (emitter0_payload_fault_(reader, payload) != NULL)
        return "alternative.payload";
    if (!emitter0_run_fits_(&reader->condition, record->condition_first, record->condition_count))
        return "alternative.condition_first";
    out->data = reader->base + (size_t)payload->offset;
    out->size = payload->size;
    out->kind = kind;
    out->kind_length = record->kind_length;
    out->schema_version = record->schema_version;
    out->alignment = payload->alignment;
    out->crc32c = payload->crc32c;
    out->condition_first = record->condition_first;
    out->condition_count = record->condition_count;
    return NULL;
}

/* The same for the import of number `index` in its table, of the module `module`. */
static inline const char *emitter0_import_fault_(const emitter0_reader *reader, uint32_t module, uint32_t index, uint32_t *out)
{
    *out = emitter0_import_record_(reader, index)->module;
    return *out <= module || *out >= reader->module.count ? "import.module" : NULL;
}

static inline const char *emitter0_function_fault_(const emitter0_reader *reader, uint32_t module, uint32_t index, emitter0_function *out)
{
    const struct emitter0_function_record *record = emitter0_function_record_(reader, index);
    const char *name = emitter0_word_(reader, record->name_offset, record->name_length);
    if (name == NULL)
        return "function.name_offset";
    if (!emitter0_run_fits_(&reader->argument, record->argument_first, record->argument_count))
        return "function.argument_first";
    out->name = name;
    out->name_length = record->name_length;
    out->module = module;
    out->argument_first = record->argument_first;
    out->argument_count = record->argument_count;
    return NULL;
}

EMITTER0_FUNCTION_ uint32_t emitter0_module_count(const emitter0_reader *reader)
{
    return reader == NULL ? 0 : reader->module.count;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_module_at(const emitter0_reader *reader, uint32_t index, emitter0_module *out)
{
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_module_(out);
    if (reader == NULL)
        return EMITTER0_ARGUMENT;
    if (index >= reader->module.count)
        return EMITTER0_NOT_FOUND;
    return emitter0_module_fault_(reader, index, out) == NULL ? EMITTER0_OK : EMITTER0_MALFORMED;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_module_find(const emitter0_reader *reader, const char *name, emitter0_module *out)
{
    uint32_t i;
    size_t length;
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_module_(out);
    if (reader == NULL || name == NULL)
        return EMITTER0_ARGUMENT;
    length = emitter0_length_(name);
    for (i = 0; i < reader->module.count; i++) {
        emitter0_status status = emitter0_module_at(reader, i, out);
        if (status != EMITTER0_OK || emitter0_compare_(out->name, out->name_length, name, length) == 0)
            return status;
    }
    emitter0_clear_module_(out);
    return EMITTER0_NOT_FOUND;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_module_alternative(const emitter0_reader *reader, const emitter0_module *module,
                                                               uint32_t index, emitter0_alternative *out)
{
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_alternative_(out);
    if (reader == NULL || module == NULL)
        return EMITTER0_ARGUMENT;
    if (index >= module->alternative_count
        || !emitter0_run_fits_(&reader->alternative, module->alternative_first, module->alternative_count))
        return EMITTER0_NOT_FOUND;
    if (emitter0_alternative_fault_(reader, module->alternative_first + index, out) != NULL)
        return EMITTER0_MALFORMED;
    out->index = index;
    return EMITTER0_OK;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_module_import(const emitter0_reader *reader, const emitter0_module *module, uint32_t index,
                                                          emitter0_module *out)
{
    uint32_t number = 0;
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    if (reader == NULL || module == NULL || module == out) {
        emitter0_clear_module_(out);
        return EMITTER0_ARGUMENT;
    }
    emitter0_clear_module_(out);
    if (index >= module->import_count || !emitter0_run_fits_(&reader->imported, module->import_first, module->import_count))
        return EMITTER0_NOT_FOUND;
    if (emitter0_import_fault_(reader, module->index, module->import_first + index, &number) != NULL)
        return EMITTER0_MALFORMED;
    return emitter0_module_at(reader, number, out);
}

EMITTER0_FUNCTION_ emitter0_status emitter0_module_function(const emitter0_reader *reader, const emitter0_module *module,
                                                            uint32_t index, emitter0_function *out)
{
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_function_(out);
    if (reader == NULL || module == NULL)
        return EMITTER0_ARGUMENT;
    if (index >= module->function_count || !emitter0_run_fits_(&reader->function, module->function_first, module->function_count))
        return EMITTER0_NOT_FOUND;
    return emitter0_function_fault_(reader, module->index, module->function_first + index, out) == NULL ? EMITTER0_OK
                                                                                                        : EMITTER0_MALFORMED;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_module_metadata(const emitter0_reader *reader, const emitter0_module *module,
                                                            uint32_t index, emitter0_entry *out)
{
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_entry_(out);
    if (reader == NULL || module == NULL)
        return EMITTER0_ARGUMENT;
    if (index >= module->metadata_count || !emitter0_run_fits_(&reader->metadata, module->metadata_first, module->metadata_count))
        return EMITTER0_NOT_FOUND;
    return emitter0_entry_fault_(reader, module->metadata_first + index, out) == NULL ? EMITTER0_OK : EMITTER0_MALFORMED;
}

/* Whether a text is a version: decimal numbers joined by dots. */
static inline int emitter0_is_version_(const char *text, size_t length)
{
    size_t i, digits = 0;
    for (i = 0; i < length; i++) {
        if (text[i] >= '0' && text[i] <= '9')
            digits++;
        else if (text[i] == '.' && digits > 0)
            digits = 0;
        else
            return 0;
    }
    return digits > 0;
}

/* The next number of a version from *at on, without leading zeros; a version that has ended goes on with zeros, which have no digits. */
static inline size_t emitter0_version_number_(const char *text, size_t length, size_t *at, const char **digits)
{
    size_t start;
    while (*at < length && text[*at] == '0')
        (*at)++;
    start = *at;
    *digits = text + start;
    while (*at < length && text[*at] != '.')
        (*at)++;
    start = *at - start;
    if (*at < length)
        (*at)++;
    return start;
}

/* Compare two versions number by number: below, at or above 0. */
static inline int emitter0_compare_versions_(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t a_at = 0, b_at = 0;
    while (a_at < a_length || b_at < b_length) {
        const char *a_digits, *b_digits;
        size_t a_count = emitter0_version_number_(a, a_length, &a_at, &a_digits);
        size_t b_count = emitter0_version_number_(b, b_length, &b_at, &b_digits);
        int order = a_count != b_count ? (a_count < b_count ? -1 : 1) : emitter0_compare_(a_digits, a_count, b_digits, b_count);
        if (order != 0)
            return order;
    }
    return 0;
}

/* A condition's strings, or what is wrong with it. */
typedef struct emitter0_condition_ {
    const char *key, *value, *upper;
    uint32_t key_length, value_length, upper_length, comparison;
} emitter0_condition_;

static inline const char *emitter0_condition_fault_(const emitter0_reader *reader, uint32_t index, emitter0_condition_ *out)
{
    const struct emitter0_condition_record *record = emitter0_condition_record_(reader, index);
    out->key = emitter0_word_(reader, record->key_offset, record->key_length);
    out->value = emitter0_word_(reader, record->value_offset, record->value_length);
    out->upper = NULL;
    out->key_length = record->key_length;
    out->value_length = record->value_length;
    out->upper_length = record->upper_length;
    out->comparison = record->comparison;
    if (out->key == NULL)
        return "condition.key_offset";
    if (out->value == NULL)
        return "condition.value_offset";
    if (out->comparison < 1 || out->comparison > 3)
        return "condition.comparison";
    if (out->comparison != 1 && !emitter0_is_version_(out->value, out->value_length))
        return "condition.value_offset";
    if (out->comparison == 3) {
        out->upper = emitter0_word_(reader, record->upper_offset, record->upper_length);
        if (out->upper == NULL || !emitter0_is_version_(out->upper, out->upper_length))
            return "condition.upper_offset";
    }
    return NULL;
}

/* The value of a key at the place, or null. */
static inline const char *emitter0_fact_of_(const emitter0_fact *place, size_t count, const char *key, size_t length)
{
    size_t i;
    for (i = 0; i < count; i++)
        if (place[i].key != NULL && place[i].value != NULL
            && emitter0_compare_(place[i].key, emitter0_length_(place[i].key), key, length) == 0)
            return place[i].value;
    return NULL;
}

static inline int emitter0_holds_(const emitter0_condition_ *condition, const char *found)
{
    size_t length;
    if (found == NULL)
        return 0;
    length = emitter0_length_(found);
    if (condition->comparison == 1)
        return emitter0_compare_(found, length, condition->value, condition->value_length) == 0;
    return emitter0_is_version_(found, length)
        && emitter0_compare_versions_(found, length, condition->value, condition->value_length) >= 0
        && (condition->comparison == 2
            || emitter0_compare_versions_(found, length, condition->upper, condition->upper_length) < 0);
}

/* The first condition of an alternative that does not hold, in `failed`; EMITTER_NO_ALTERNATIVE if there is one. */
static inline emitter0_status emitter0_fits_(const emitter0_reader *reader, const emitter0_alternative *alternative,
                                             const emitter0_fact *place, size_t count, emitter0_condition_ *failed)
{
    uint32_t i;
    for (i = 0; i < alternative->condition_count; i++) {
        if (emitter0_condition_fault_(reader, alternative->condition_first + i, failed) != NULL)
            return EMITTER0_MALFORMED;
        if (!emitter0_holds_(failed, emitter0_fact_of_(place, count, failed->key, failed->key_length)))
            return EMITTER0_NO_ALTERNATIVE;
    }
    return EMITTER0_OK;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_module_select(const emitter0_reader *reader, const emitter0_module *module,
                                                          const emitter0_fact *place, size_t count, emitter0_alternative *out)
{
    uint32_t i;
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_alternative_(out);
    if (reader == NULL || module == NULL || (place == NULL && count > 0))
        return EMITTER0_ARGUMENT;
    for (i = 0; i < module->alternative_count; i++) {
        emitter0_condition_ failed;
        emitter0_status status = emitter0_module_alternative(reader, module, i, out);
        if (status == EMITTER0_OK)
            status = emitter0_fits_(reader, out, place, count, &failed);
        if (status == EMITTER0_OK)
            return EMITTER0_OK;
        emitter0_clear_alternative_(out);
        if (status != EMITTER0_NO_ALTERNATIVE)
            return status;
    }
    return EMITTER0_NO_ALTERNATIVE;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_function_find(const emitter0_reader *reader, const char *name, emitter0_function *out)
{
    emitter0_module module;
    uint32_t i;
    size_t length;
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_function_(out);
    if (reader == NULL || name == NULL)
        return EMITTER0_ARGUMENT;
    length = emitter0_length_(name);
    for (i = 0; i < reader->module.count; i++) {
        uint32_t low = 0, high;
        emitter0_status status = emitter0_module_at(reader, i, &module);
        if (status != EMITTER0_OK)
            return status;
        for (high = module.function_count; low < high;) {
            uint32_t middle = low + (high - low) / 2;
            int order;
            status = emitter0_module_function(reader, &module, middle, out);
            if (status != EMITTER0_OK)
                return status;
            order = emitter0_compare_(out->name, out->name_length, name, length);
            if (order == 0)
                return EMITTER0_OK;
            if (order < 0)
                low = middle + 1;
            else
                high = middle;
        }
    }
    emitter0_clear_function_(out);
    return EMITTER0_NOT_FOUND;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_function_argument(const emitter0_reader *reader, const emitter0_function *function,
                                                              uint32_t index, emitter0_tensor *out)
{
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_tensor_(out);
    if (reader == NULL || function == NULL)
        return EMITTER0_ARGUMENT;
    if (index >= function->argument_count || !emitter0_run_fits_(&reader->argument, function->argument_first, function->argument_count))
        return EMITTER0_NOT_FOUND;
    index = emitter0_argument_record_(reader, function->argument_first + index)->tensor;
    return index < reader->tensor.count ? emitter0_at(reader, index, out) : EMITTER0_MALFORMED;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_function_arguments(const emitter0_reader *reader, const emitter0_function *function,
                                                               emitter0_dltensor *out, size_t capacity)
{
    uint32_t i;
    if (reader == NULL || function == NULL || function->argument_count > capacity || (out == NULL && function->argument_count > 0))
        return EMITTER0_ARGUMENT;
    for (i = 0; i < function->argument_count; i++) {
        emitter0_tensor tensor;
        emitter0_status status = emitter0_function_argument(reader, function, i, &tensor);
        if (status == EMITTER0_OK)
            status = emitter0_dltensor_of(&tensor, &out[i]);
        if (status != EMITTER0_OK)
            return status;
    }
    return EMITTER0_OK;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_dltensor_of(const emitter0_tensor *tensor, emitter0_dltensor *out)
{
    if (tensor == NULL || out == NULL)
        return EMITTER0_ARGUMENT;
    /* Through integers: DLTensor has no word for memory that is read-only. One without elements has no data. */
    out->data = tensor->nbytes == 0 ? NULL : (void *)(uintptr_t)tensor->data;
    out->device_type = 1;
    out->device_id = 0;
    out->ndim = tensor->ndim;
    out->dtype_code = tensor->dtype_code;
    out->dtype_bits = tensor->dtype_bits;
    out->dtype_lanes = tensor->dtype_lanes;
    out->shape = (int64_t *)(uintptr_t)tensor->shape;
    out->strides = (int64_t *)(uintptr_t)tensor->strides;
    out->byte_offset = 0;
    return tensor->encoding == 0 ? EMITTER0_OK : EMITTER0_ENCODED;
}

static inline emitter0_status emitter0_modules_fail_(emitter0_modules *modules, emitter0_status status, uint32_t index)
{
    modules->status = status;
    modules->failed = index;
    return status;
}

static inline const emitter0_module_loader *emitter0_loader_of_(const emitter0_modules *modules, const emitter0_alternative *alternative)
{
    size_t i;
    for (i = 0; i < modules->loader_count; i++)
        if (modules->loaders[i].kind != NULL
            && emitter0_compare_(modules->loaders[i].kind, emitter0_length_(modules->loaders[i].kind), alternative->kind,
                                 alternative->kind_length)
                == 0)
            return &modules->loaders[i];
    return NULL;
}

/* Build one module whose imports are built. */
static inline emitter0_status emitter0_build_one_(emitter0_modules *modules, uint32_t index)
{
    emitter0_module_source source;
    const emitter0_module_loader *loader;
    emitter0_status status;
    source.reader = modules->reader;
    source.slots = modules->slots;
    source.context = modules->context;
    status = emitter0_module_at(modules->reader, index, &source.module);
    if (status == EMITTER0_OK)
        status = emitter0_module_select(modules->reader, &source.module, modules->place, modules->place_count, &source.alternative);
    if (status != EMITTER0_OK)
        return status;
    loader = emitter0_loader_of_(modules, &source.alternative);
    if (loader == NULL || loader->build == NULL)
        return EMITTER0_NO_LOADER;
    if (source.alternative.schema_version < loader->schema_version_min || source.alternative.schema_version > loader->schema_version_max)
        return EMITTER0_SCHEMA_VERSION;
    if (loader->build(&source, &modules->slots[index].handle) != 0) {
        modules->slots[index].handle = NULL;
        return EMITTER0_MODULE_FAILED;
    }
    modules->slots[index].built = 1;
    return EMITTER0_OK;
}

static inline emitter0_status emitter0_modules_ready_(const emitter0_modules *modules)
{
    return modules == NULL || modules->reader == NULL || (modules->slots == NULL && modules->reader->module.count > 0)
            || (modules->loaders == NULL && modules->loader_count > 0) || (modules->place == NULL && modules->place_count > 0)
        ? EMITTER0_ARGUMENT
        : EMITTER0_OK;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_modules_build(emitter0_modules *modules, uint32_t index)
{
    uint32_t i, j, count;
    if (emitter0_modules_ready_(modules) != EMITTER0_OK)
        return EMITTER0_ARGUMENT;
    count = modules->reader->module.count;
    if (index >= count)
        return emitter0_modules_fail_(modules, EMITTER0_NOT_FOUND, index);
    for (i = index; i < count; i++)
        modules->slots[i].wanted_ = i == index;
    /* Imports have greater numbers: once upwards marks all that are wanted, once downwards builds them. */
    for (i = index; i < count; i++) {
        emitter0_module module;
        if (!modules->slots[i].wanted_ || modules->slots[i].built)
            continue;
        if (emitter0_module_at(modules->reader, i, &module) != EMITTER0_OK)
            return emitter0_modules_fail_(modules, EMITTER0_MALFORMED, i);
        for (j = 0; j < module.import_count; j++) {
            uint32_t number = 0;
            if (emitter0_import_fault_(modules->reader, i, module.import_first + j, &number) != NULL)
                return emitter0_modules_fail_(modules, EMITTER0_MALFORMED, i);
            modules->slots[number].wanted_ = 1;
        }
    }
    for (i = count; i-- > index;) {
        emitter0_status status;
        if (!modules->slots[i].wanted_ || modules->slots[i].built)
            continue;
        status = emitter0_build_one_(modules, i);
        if (status != EMITTER0_OK)
            return emitter0_modules_fail_(modules, status, i);
    }
    return EMITTER0_OK;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_modules_build_all(emitter0_modules *modules)
{
    uint32_t i;
    if (emitter0_modules_ready_(modules) != EMITTER0_OK)
        return EMITTER0_ARGUMENT;
    for (i = modules->reader->module.count; i-- > 0;) {
        emitter0_status status = modules->slots[i].built ? EMITTER0_OK : emitter0_build_one_(modules, i);
        if (status != EMITTER0_OK)
            return emitter0_modules_fail_(modules, status, i);
    }
    return EMITTER0_OK;
}

EMITTER0_FUNCTION_ void emitter0_modules_destroy(emitter0_modules *modules)
{
    uint32_t i;
    if (emitter0_modules_ready_(modules) != EMITTER0_OK)
        return;
    for (i = 0; i < modules->reader->module.count; i++) {
        emitter0_module module;
        emitter0_alternative alternative;
        emitter0_module_slot *slot = &modules->slots[i];
        const emitter0_module_loader *loader = NULL;
        if (!slot->built)
            continue;
        if (emitter0_module_at(modules->reader, i, &module) == EMITTER0_OK
            && emitter0_module_select(modules->reader, &module, modules->place, modules->place_count, &alternative) == EMITTER0_OK)
            loader = emitter0_loader_of_(modules, &alternative);
        if (loader != NULL && loader->destroy != NULL)
            loader->destroy(slot->handle, modules->context);
        slot->handle = NULL;
        slot->built = 0;
    }
}

EMITTER0_FUNCTION_ void *emitter0_source_import(const emitter0_module_source *source, uint32_t index)
{
    uint32_t number = 0;
    if (source == NULL || index >= source->module.import_count
        || emitter0_import_fault_(source->reader, source->module.index, source->module.import_first + index, &number) != NULL)
        return NULL;
    return source->slots[number].handle;
}

/* Text that is counted whole, and written as far as there is room. */
typedef struct emitter0_text_ {
    char *text;
    size_t size, length;
} emitter0_text_;

static inline void emitter0_append_(emitter0_text_ *out, const char *text, size_t length)
{
    size_t i;
    for (i = 0; i < length; i++, out->length++)
        if (out->length + 1 < out->size) /* a name must not drive a terminal */
            out->text[out->length] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
}

static inline void emitter0_append_words_(emitter0_text_ *out, const char *text)
{
    emitter0_append_(out, text, emitter0_length_(text));
}

static inline void emitter0_append_number_(emitter0_text_ *out, uint32_t number)
{
    static const uint32_t tens[10] = {1000000000u, 100000000u, 10000000u, 1000000u, 100000u, 10000u, 1000u, 100u, 10u, 1u};
    unsigned i, begun = 0;
    for (i = 0; i < 10; i++) { /* some CPUs divide in a library */
        char digit = '0';
        while (number >= tens[i]) {
            number -= tens[i];
            digit++;
        }
        begun |= digit != '0' || i == 9;
        if (begun)
            emitter0_append_(out, &digit, 1);
    }
}

static inline void emitter0_append_rejection_(const emitter0_modules *modules, const emitter0_alternative *alternative, emitter0_text_ *out)
{
    emitter0_condition_ failed;
    const char *found;
    emitter0_append_number_(out, alternative->index);
    emitter0_append_words_(out, " (");
    emitter0_append_(out, alternative->kind, alternative->kind_length);
    emitter0_append_words_(out, "): ");
    if (emitter0_fits_(modules->reader, alternative, modules->place, modules->place_count, &failed) != EMITTER0_NO_ALTERNATIVE) {
        emitter0_append_words_(out, "malformed");
        return;
    }
    emitter0_append_words_(out, "wants ");
    emitter0_append_(out, failed.key, failed.key_length);
    emitter0_append_words_(out, failed.comparison == 1 ? " == " : " >= ");
    emitter0_append_(out, failed.value, failed.value_length);
    if (failed.comparison == 3) {
        emitter0_append_words_(out, ", < ");
        emitter0_append_(out, failed.upper, failed.upper_length);
    }
    emitter0_append_words_(out, ", here ");
    emitter0_append_(out, failed.key, failed.key_length);
    found = emitter0_fact_of_(modules->place, modules->place_count, failed.key, failed.key_length);
    emitter0_append_words_(out, found == NULL ? " is not known" : " is '");
    if (found != NULL) {
        emitter0_append_words_(out, found);
        emitter0_append_words_(out, "'");
    }
}

EMITTER0_FUNCTION_ size_t emitter0_modules_explain(const emitter0_modules *modules, char *text, size_t size)
{
    emitter0_text_ out;
    emitter0_module module;
    emitter0_alternative alternative;
    uint32_t i;
    out.text = text;
    out.size = text == NULL ? 0 : size;
    out.length = 0;
    if (emitter0_modules_ready_(modules) == EMITTER0_OK && modules->status != EMITTER0_OK) {
        emitter0_append_words_(&out, "module ");
        if (emitter0_module_at(modules->reader, modules->failed, &module) == EMITTER0_OK) {
            emitter0_append_words_(&out, "'");
            emitter0_append_(&out, module.name, module.name_length);
            emitter0_append_words_(&out, "'");
        } else {
            emitter0_append_number_(&out, modules->failed);
            module.alternative_count = 0;
        }
        emitter0_append_words_(&out, ": ");
        emitter0_append_words_(&out, emitter0_status_string(modules->status));
        if (modules->status == EMITTER0_NO_ALTERNATIVE) {
            for (i = 0; i < module.alternative_count; i++)
                if (emitter0_module_alternative(modules->reader, &module, i, &alternative) == EMITTER0_OK) {
                    emitter0_append_words_(&out, i == 0 ? ": " : "; ");
                    emitter0_append_rejection_(modules, &alternative, &out);
                }
        } else if (emitter0_module_select(modules->reader, &module, modules->place, modules->place_count, &alternative) == EMITTER0_OK) {
            const emitter0_module_loader *loader = emitter0_loader_of_(modules, &alternative);
            emitter0_append_words_(&out, ": kind '");
            emitter0_append_(&out, alternative.kind, alternative.kind_length);
            emitter0_append_words_(&out, "', schema version ");
            emitter0_append_number_(&out, alternative.schema_version);
            if (modules->status == EMITTER0_SCHEMA_VERSION && loader != NULL) {
                emitter0_append_words_(&out, "; the loader takes ");
                emitter0_append_number_(&out, loader->schema_version_min);
                emitter0_append_words_(&out, " to ");
                emitter0_append_number_(&out, loader->schema_version_max);
            }
            /* Those before it would have been taken, had they fitted. */
            for (i = 0; i < alternative.index; i++) {
                emitter0_alternative passed;
                if (emitter0_module_alternative(modules->reader, &module, i, &passed) == EMITTER0_OK) {
                    emitter0_append_words_(&out, i == 0 ? "; passed over: " : "; ");
                    emitter0_append_rejection_(modules, &passed, &out);
                }
            }
        }
    }
    if (out.size > 0)
        out.text[out.length < out.size ? out.length : out.size - 1] = 0;
    return out.length;
}

/* ---- Validation ---- */

/* The offset of the first byte that is not UTF-8 (RFC 3629: shortest form, no surrogates, up to U+10FFFF), or `size`. */
static inline uint32_t emitter0_utf8_end_(const unsigned char *text, uint32_t size)
{
    uint32_t i = 0;
    while (i < size) {
        uint32_t j, more, first = text[i];
        uint32_t least = 0x80, most = 0xbf; /* of the second byte */
        if (first < 0x80) {
            i++;
            continue;
        }
        if (first < 0xc2 || first > 0xf4)
            return i;
        more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
        if (first == 0xe0)
            least = 0xa0;
        else if (first == 0xed)
            most = 0x9f;
        else if (first == 0xf0)
            least = 0x90;
        else if (first == 0xf4)
            most = 0x8f;
        if (more >= size - i)
            return i;
        for (j = 1; j <= more; j++) {
            if (text[i + j] < least || text[i + j] > most)
                return i;
            least = 0x80;
            most = 0xbf;
        }
        i += more + 1;
    }
    return size;
}

/* The entries of one owner, which begin where those of the owner before it ended. */
static inline emitter0_status emitter0_validate_entries_(emitter0_reader *reader, uint32_t first, uint32_t count, uint32_t *next)
{
    emitter0_entry entry;
    const char *previous = NULL;
    uint32_t i, previous_length = 0;
    if (first != *next)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "metadata_first", first);
    for (i = 0; i < count; i++) {
        const char *fault = emitter0_entry_fault_(reader, first + i, &entry);
        if (fault != NULL)
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, fault, first + i);
        if (emitter0_holds_nul_(entry.key, entry.key_length)
            || (i > 0 && emitter0_compare_(previous, previous_length, entry.key, entry.key_length) >= 0))
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, "metadata.key", first + i);
        if (emitter0_holds_nul_(entry.value, entry.value_length))
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, "metadata.value", first + i);
        previous = entry.key;
        previous_length = entry.key_length;
    }
    *next = first + count;
    return EMITTER0_OK;
}

/* A run of records must begin where that of the owner before it ended. */
static inline int emitter0_follows_(uint32_t first, uint32_t count, uint32_t *next)
{
    if (first != *next)
        return 0;
    *next += count;
    return 1;
}

/* Whether every byte of a reserved field is zero. */
static inline int emitter0_is_zero_(const unsigned char *bytes, unsigned size)
{
    unsigned i;
    for (i = 0; i < size; i++)
        if (bytes[i] != 0)
            return 0;
    return 1;
}

static inline emitter0_status emitter0_validate_conditions_(emitter0_reader *reader, const emitter0_alternative *alternative)
{
    emitter0_condition_ condition;
    const char *previous = NULL;
    uint32_t i, previous_length = 0;
    for (i = 0; i < alternative->condition_count; i++) {
        uint32_t index = alternative->condition_first + i;
        const struct emitter0_condition_record *record = emitter0_condition_record_(reader, index);
        const char *fault = emitter0_condition_fault_(reader, index, &condition);
        if (fault == NULL
            && (emitter0_holds_nul_(condition.key, condition.key_length) || emitter0_holds_nul_(condition.value, condition.value_length)))
            fault = "condition.key_length";
        if (fault == NULL && i > 0 && emitter0_compare_(previous, previous_length, condition.key, condition.key_length) >= 0)
            fault = "condition.key_offset";
        if (fault == NULL && record->comparison != 3 && (record->upper_offset != 0 || record->upper_length != 0))
            fault = "condition.upper_offset";
        if (fault == NULL && !emitter0_is_zero_(record->reserved, sizeof record->reserved))
            fault = "condition.reserved";
        if (fault != NULL)
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, fault, index);
        previous = condition.key;
        previous_length = condition.key_length;
    }
    return EMITTER0_OK;
}

/* Whether a module before number `index`, or the root's place, leads to it: each but the root is imported. Names are unique. */
static inline const char *emitter0_module_is_known_(const emitter0_reader *reader, const emitter0_module *module)
{
    uint32_t i, j, imported = module->index == 0;
    for (i = 0; i < module->index; i++) {
        emitter0_module other;
        if (emitter0_module_fault_(reader, i, &other) != NULL)
            return "module";
        if (emitter0_compare_(other.name, other.name_length, module->name, module->name_length) == 0)
            return "module.name_offset";
        for (j = 0; j < other.import_count && !imported; j++)
            imported = emitter0_import_record_(reader, other.import_first + j)->module == module->index;
    }
    return imported ? NULL : "import.module";
}

/* Whether a module before this one has a function of that name. */
static inline int emitter0_function_is_taken_(const emitter0_reader *reader, const emitter0_function *function)
{
    emitter0_function other;
    uint32_t low, high, i;
    for (i = 0; i < function->module; i++) {
        emitter0_module module;
        if (emitter0_module_fault_(reader, i, &module) != NULL)
            return 1;
        for (low = 0, high = module.function_count; low < high;) {
            uint32_t middle = low + (high - low) / 2;
            int order;
            if (emitter0_function_fault_(reader, i, module.function_first + middle, &other) != NULL)
                return 1;
            order = emitter0_compare_(other.name, other.name_length, function->name, function->name_length);
            if (order == 0)
                return 1;
            if (order < 0)
                low = middle + 1;
            else
                high = middle;
        }
    }
    return 0;
}

static inline emitter0_status emitter0_validate_functions_(emitter0_reader *reader, const emitter0_module *module, uint32_t *next)
{
    emitter0_function function;
    const char *previous = NULL;
    uint32_t i, j, previous_length = 0;
    for (i = 0; i < module->function_count; i++) {
        uint32_t index = module->function_first + i;
        const char *fault = emitter0_function_fault_(reader, module->index, index, &function);
        if (fault != NULL)
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, fault, index);
        if (emitter0_holds_nul_(function.name, function.name_length)
            || (i > 0 && emitter0_compare_(previous, previous_length, function.name, function.name_length) >= 0)
            || emitter0_function_is_taken_(reader, &function))
            fault = "function.name_offset";
        if (fault == NULL && !emitter0_follows_(function.argument_first, function.argument_count, next))
            fault = "function.argument_first";
        for (j = 0; fault == NULL && j < function.argument_count; j++) {
            const struct emitter0_argument_record *record = emitter0_argument_record_(reader, function.argument_first + j);
            if (record->tensor >= reader->tensor.count)
                fault = "argument.tensor";
            else if (!emitter0_is_zero_(record->reserved, sizeof record->reserved))
                fault = "argument.reserved";
        }
        if (fault != NULL)
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, fault, index);
        previous = function.name;
        previous_length = function.name_length;
    }
    return EMITTER0_OK;
}

static inline emitter0_status emitter0_validate_imports_(emitter0_reader *reader, const emitter0_module *module)
{
    uint32_t i, j;
    for (i = 0; i < module->import_count; i++) {
        uint32_t index = module->import_first + i, number = 0;
        const struct emitter0_import_record *record = emitter0_import_record_(reader, index);
        const char *fault = emitter0_import_fault_(reader, module->index, index, &number);
        for (j = 0; fault == NULL && j < i; j++)
            if (emitter0_import_record_(reader, module->import_first + j)->module == number)
                fault = "import.module";
        if (fault == NULL && !emitter0_is_zero_(record->reserved, sizeof record->reserved))
            fault = "import.reserved";
        if (fault != NULL)
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, fault, index);
    }
    return EMITTER0_OK;
}

/* Every rule of the tables of modules. Names are compared with those before them: quadratic, for a few modules. */
static inline emitter0_status emitter0_validate_modules_(emitter0_reader *reader, uint32_t *next_entry)
{
    uint32_t i, j, alternatives = 0, conditions = 0, imports = 0, functions = 0, arguments = 0;
    for (i = 0; i < reader->module.count; i++) {
        emitter0_module module;
        emitter0_status status;
        const char *fault = emitter0_module_fault_(reader, i, &module);
        if (fault == NULL && emitter0_holds_nul_(module.name, module.name_length))
            fault = "module.name_length";
        if (fault == NULL)
            fault = emitter0_module_is_known_(reader, &module);
        if (fault == NULL && !emitter0_follows_(module.alternative_first, module.alternative_count, &alternatives))
            fault = "module.alternative_first";
        if (fault == NULL && !emitter0_follows_(module.import_first, module.import_count, &imports))
            fault = "module.import_first";
        if (fault == NULL && !emitter0_follows_(module.function_first, module.function_count, &functions))
            fault = "module.function_first";
        if (fault != NULL)
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, fault, i);
        for (j = 0; j < module.alternative_count; j++) {
            emitter0_alternative alternative;
            fault = emitter0_alternative_fault_(reader, module.alternative_first + j, &alternative);
            if (fault == NULL && emitter0_holds_nul_(alternative.kind, alternative.kind_length))
                fault = "alternative.kind_length";
            if (fault == NULL && !emitter0_follows_(alternative.condition_first, alternative.condition_count, &conditions))
                fault = "alternative.condition_first";
            if (fault != NULL)
                return emitter0_refuse_(reader, EMITTER0_MALFORMED, fault, module.alternative_first + j);
            status = emitter0_validate_conditions_(reader, &alternative);
            if (status != EMITTER0_OK)
                return status;
        }
        status = emitter0_validate_imports_(reader, &module);
        if (status == EMITTER0_OK)
            status = emitter0_validate_functions_(reader, &module, &arguments);
        if (status == EMITTER0_OK)
            status = emitter0_validate_entries_(reader, module.metadata_first, module.metadata_count, next_entry);
        if (status != EMITTER0_OK)
            return status;
    }
    if (alternatives != reader->alternative.count || conditions != reader->condition.count || imports != reader->imported.count
        || functions != reader->function.count || arguments != reader->argument.count)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "module", reader->module.count);
    return EMITTER0_OK;
}

/* Whether the directory and the tables, where they hold anything, overlap. */
static inline int emitter0_tables_overlap_(const emitter0_reader *reader, const struct emitter0_header_record *header)
{
    const emitter0_table_ *tables[13] = {NULL,
                                         &reader->payload,
                                         &reader->tensor,
                                         &reader->metadata,
                                         &reader->dim,
                                         &reader->string,
                                         &reader->sidecar,
                                         &reader->module,
                                         &reader->alternative,
                                         &reader->condition,
                                         &reader->imported,
                                         &reader->function,
                                         &reader->argument};
    emitter0_table_ directory;
    unsigned i, j;
    directory.offset = header->directory_offset;
    directory.count = header->directory_count;
    directory.record_size = header->directory_record_size;
    tables[0] = &directory;
    for (i = 0; i < 13; i++)
        for (j = 0; j < 13; j++) /* both are within the index, so the sums are below 2^33 */
            if (i != j && tables[i]->count > 0 && tables[j]->count > 0 && tables[i]->offset <= tables[j]->offset
                && tables[i]->offset + (uint64_t)tables[i]->count * tables[i]->record_size > tables[j]->offset)
                return 1;
    return 0;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_validate(emitter0_reader *reader)
{
    const struct emitter0_header_record *header;
    const char *fault, *previous = NULL;
    uint32_t i, previous_length = 0, next_entry = 0, bad, alignment = 8;
    uint64_t end;
    emitter0_status status;
    if (reader == NULL || reader->base == NULL)
        return EMITTER0_ARGUMENT;
    header = (const struct emitter0_header_record *)(const void *)reader->base;
    if (emitter0_crc32c(reader->base + reader->header_size, reader->index_size - reader->header_size, 0) != reader->index_crc32c)
        return emitter0_refuse_(reader, EMITTER0_CHECKSUM, "header.index_crc32c", 0);
    if (emitter0_tables_overlap_(reader, header))
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "table.offset", 0);
    bad = emitter0_utf8_end_(reader->base + reader->string.offset, reader->string.count);
    if (bad != reader->string.count)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "string", bad);
    if (emitter0_holds_nul_(emitter0_model_version(reader), header->model_version_length))
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.model_version_length", 0);
    end = reader->index_size;
    for (i = 0; i < reader->payload.count; i++) {
        const struct emitter0_payload_record *payload = emitter0_payload_record_(reader, i);
        fault = emitter0_payload_fault_(reader, payload);
        if (fault == NULL && payload->offset < end)
            fault = "payload.offset";
        if (fault != NULL)
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, fault, i);
        end = payload->offset + payload->size;
        alignment = payload->alignment > alignment ? payload->alignment : alignment;
    }
    if (alignment != reader->alignment)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.alignment", 0);
    if (end != reader->size)
        return emitter0_refuse_(reader, EMITTER0_MALFORMED, "header.total_size", 0);
    status = emitter0_validate_entries_(reader, reader->metadata_first, reader->metadata_count, &next_entry);
    if (status != EMITTER0_OK)
        return status;
    for (i = 0; i < reader->tensor.count; i++) {
        emitter0_tensor tensor;
        fault = emitter0_tensor_fault_(reader, i, &tensor);
        if (fault == NULL
            && (emitter0_holds_nul_(tensor.name, tensor.name_length)
                || (i > 0 && emitter0_compare_(previous, previous_length, tensor.name, tensor.name_length) >= 0)))
            fault = "tensor.name";
        if (fault != NULL)
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, fault, i);
        previous = tensor.name;
        previous_length = tensor.name_length;
        status = emitter0_validate_entries_(reader, tensor.metadata_first, tensor.metadata_count, &next_entry);
        if (status != EMITTER0_OK)
            return status;
    }
    status = emitter0_validate_modules_(reader, &next_entry);
    if (status != EMITTER0_OK)
        return status;
    return emitter0_refuse_(reader, EMITTER0_OK, "", 0);
}

EMITTER0_FUNCTION_ emitter0_status emitter0_check_tensor(const emitter0_tensor *tensor)
{
    if (tensor == NULL || tensor->data == NULL)
        return EMITTER0_ARGUMENT;
    return emitter0_crc32c(tensor->data, (size_t)tensor->nbytes, 0) == tensor->crc32c ? EMITTER0_OK : EMITTER0_CHECKSUM;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_check(emitter0_reader *reader)
{
    uint32_t i;
    if (reader == NULL || reader->base == NULL)
        return EMITTER0_ARGUMENT;
    for (i = 0; i < reader->payload.count; i++) {
        const struct emitter0_payload_record *payload = emitter0_payload_record_(reader, i);
        const char *fault = emitter0_payload_fault_(reader, payload);
        if (fault != NULL)
            return emitter0_refuse_(reader, EMITTER0_MALFORMED, fault, i);
        if (emitter0_crc32c(reader->base + (size_t)payload->offset, (size_t)payload->size, 0) != payload->crc32c)
            return emitter0_refuse_(reader, EMITTER0_CHECKSUM, "payload.crc32c", i);
    }
    return emitter0_refuse_(reader, EMITTER0_OK, "", 0);
}

/* ---- Words ---- */

EMITTER0_FUNCTION_ const char *emitter0_status_string(emitter0_status status)
{
    switch (status) {
    case EMITTER0_OK: return "no error";
    case EMITTER0_ARGUMENT: return "a null pointer was passed";
    case EMITTER0_NOT_A_PACK: return "not a pack, or damaged by a transfer in text mode";
    case EMITTER0_TRUNCATED: return "the pack is longer than the memory that was given";
    case EMITTER0_FOREIGN_BYTE_ORDER: return "the pack was made for a machine of the other byte order";
    case EMITTER0_VERSION: return "the pack has a later major version";
    case EMITTER0_FEATURE: return "the pack needs features that this reader lacks";
    case EMITTER0_MISALIGNED: return "the memory is not aligned";
    case EMITTER0_CHECKSUM: return "the bytes differ from those that were written";
    case EMITTER0_MALFORMED: return "the pack breaks a rule of its format";
    case EMITTER0_SCHEMA: return "the tensors have other names, types or shapes than expected";
    case EMITTER0_NOT_FOUND: return "no such name or index";
    case EMITTER0_DTYPE: return "the tensor has another element type";
    case EMITTER0_ENCODED: return "the tensor's bytes are a block format";
    case EMITTER0_LIBRARY_ERROR: return "the library was refused";
    case EMITTER0_SIDECAR: return "the payloads are in another file, its sidecar: open the library instead of its pack";
    case EMITTER0_NO_ALTERNATIVE: return "no alternative fits here";
    case EMITTER0_NO_LOADER: return "no loader was given for modules of this kind";
    case EMITTER0_SCHEMA_VERSION: return "the loader does not know this schema version";
    case EMITTER0_MODULE_FAILED: return "the loader could not build the module";
    }
    return "unknown status";
}

EMITTER0_FUNCTION_ const char *emitter0_dtype_name(unsigned code, unsigned bits)
{
    switch (bits < 256 ? code << 8 | bits : 0) {
    /* generated: dtypes */
    case 0x608: return "bool";
    case 0x8: return "int8";
    case 0x10: return "int16";
    case 0x20: return "int32";
    case 0x40: return "int64";
    case 0x108: return "uint8";
    case 0x110: return "uint16";
    case 0x120: return "uint32";
    case 0x140: return "uint64";
    case 0x210: return "float16";
    case 0x220: return "float32";
    case 0x240: return "float64";
    case 0x540: return "complex64";
    case 0x580: return "complex128";
    case 0x410: return "bfloat16";
    case 0x708: return "float8_e3m4";
    case 0x808: return "float8_e4m3";
    case 0x908: return "float8_e4m3b11fnuz";
    case 0xa08: return "float8_e4m3fn";
    case 0xb08: return "float8_e4m3fnuz";
    case 0xc08: return "float8_e5m2";
    case 0xd08: return "float8_e5m2fnuz";
    case 0xe08: return "float8_e8m0fnu";
    case 0xf06: return "float6_e2m3fn";
    case 0x1006: return "float6_e3m2fn";
    case 0x1104: return "float4_e2m1fn";
    case 0x2: return "int2";
    case 0x4: return "int4";
    case 0x101: return "uint1";
    case 0x102: return "uint2";
    case 0x104: return "uint4";
    /* end of generated: dtypes */
    default: return "unknown";
    }
}

#ifdef __cplusplus
}
#endif

/* ---- Libraries ---- */

#ifdef EMITTER_LIBRARY

#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#elif defined(__APPLE__) || (defined(__unix__) && defined(__ELF__))
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifndef __APPLE__
#include <link.h>
#endif
#else
#error "EMITTER_LIBRARY is for Windows, Apple's systems, and POSIX systems with ELF: elsewhere, pass a pack's address to emitter_open"
#endif
#include <stdio.h>
#include <string.h>

#if defined(__GLIBC__) && !defined(__USE_GNU)
#error "emitter.h with EMITTER_LIBRARY: include it before any other header, or compile with -D_GNU_SOURCE"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define EMITTER0_PATH_ 4096 /* bytes, or UTF-16 units of Windows: longer paths are refused */

#if defined(_WIN32)
#define EMITTER0_SLASHES_ "/\\:"
#define EMITTER0_PLACE_ "no section that begins with its pack"
#elif defined(__APPLE__)
#define EMITTER0_SLASHES_ "/"
#define EMITTER0_PLACE_ "no section that begins with its pack"
#else
#define EMITTER0_SLASHES_ "/"
#define EMITTER0_PLACE_ "no .note.emitter that says where its pack is"
#endif

/* Where a message goes, and of which file it speaks. */
typedef struct emitter0_words_ {
    char *text;
    size_t size;
    const char *path;
} emitter0_words_;

/* Write what fits of `text` at `at`, and a NUL; return where it ends. */
static inline size_t emitter0_put_(const emitter0_words_ *words, size_t at, const char *text, size_t length)
{
    if (words->text == NULL || words->size <= at)
        return at;
    if (length > words->size - 1 - at)
        length = words->size - 1 - at;
    memcpy(words->text + at, text, length);
    words->text[at + length] = 0;
    return at + length;
}

static inline emitter0_status emitter0_say_(const emitter0_words_ *words, const char *text)
{
    size_t at = emitter0_put_(words, 0, words->path, strlen(words->path));
    at = emitter0_put_(words, at, ": ", 2);
    (void)emitter0_put_(words, at, text, strlen(text));
    return EMITTER0_LIBRARY_ERROR;
}

static inline emitter0_status emitter0_say_truncated_(const emitter0_words_ *words, const char *what, unsigned number, uint64_t size,
                                                      uint64_t offset, uint64_t file_size)
{
    char text[192];
    (void)snprintf(text, sizeof text, "truncated: %s %u needs %llu bytes from offset %llu, the file has %llu", what, number,
                   (unsigned long long)size, (unsigned long long)offset, (unsigned long long)file_size);
    return emitter0_say_(words, text);
}

/* A file that is open for reading. */
typedef struct emitter0_file_ {
#ifdef _WIN32
    HANDLE handle;
#else
    int fd;
    struct stat status;
#endif
    uint64_t size;
} emitter0_file_;

/* A walk over the packs of the loaded library that `symbol` is in. */
typedef struct emitter0_walk_ {
    const unsigned char *symbol;
    uint32_t skip; /* packs to pass over */
    int by_symbol; /* only the pack that begins at symbol */
    const unsigned char *pack; /* the result */
    size_t size;
} emitter0_walk_;

/* What the system does. Each platform has its own of these, below. */

/* Open `path` (UTF-8 on Windows). With `optional`, a file that is not there is EMITTER_NOT_FOUND, and nothing is said. */
static inline emitter0_status emitter0_file_open_(emitter0_file_ *file, const char *path, int optional, const emitter0_words_ *words);
static inline void emitter0_file_close_(const emitter0_file_ *file);

/* Read exactly `size` bytes; false if they are not there. */
static inline int emitter0_read_(const emitter0_file_ *file, void *to, size_t size, uint64_t offset);

/* Map the whole file, which is not empty; null if the system does not. */
static inline const void *emitter0_map_(const emitter0_file_ *file);
static inline void emitter0_unmap_(const void *base, size_t size);

/* Check and load: sets `handle`, and `symbol` if there is one. `proof` gets the first bytes of the first pack of the file that was
 * checked, where the system cannot load that very file but only what is at its path. True in `proven` if it did. */
static inline emitter0_status emitter0_load_(emitter0_library *library, const char *path, unsigned char *proof, int *proven,
                                             const emitter0_words_ *words);
static inline void emitter0_unload_(void *handle);

/* Find a pack of the loaded library. */
static inline void emitter0_walk_library_(emitter0_walk_ *walk, const emitter0_library *library);

/* Give the path of the loaded library, `path` if it was opened by one; `resolved` is without symbolic links. False if there is none. */
static inline int emitter0_library_path_(const emitter0_library *library, const char *path, int resolved, char out[EMITTER0_PATH_]);

#if defined(_WIN32) || defined(__APPLE__) || defined(EMITTER0_EVERY_FORMAT_)

/* A little-endian number of `size` bytes. */
static inline uint64_t emitter0_little_(const unsigned char *at, unsigned size)
{
    uint64_t value = 0;
    while (size > 0)
        value = value << 8 | at[--size];
    return value;
}

/* Step over the packs that begin a section: linkers join sections of one name, with zeros between them that align. True if the one
 * that is looked for is there. */
static inline int emitter0_walk_section_(emitter0_walk_ *walk, const unsigned char *start, uint64_t size)
{
    static const unsigned char magic[8] = EMITTER0_MAGIC_;
    while (size >= EMITTER0_SIZEOF_HEADER_ && memcmp(start, magic, sizeof magic) == 0) {
        struct emitter0_header_record header;
        memcpy(&header, start, sizeof header);
        if (header.total_size < sizeof header || header.total_size > size)
            return 0;
        if (walk->by_symbol ? start == walk->symbol : walk->skip-- == 0) {
            walk->pack = start;
            walk->size = (size_t)header.total_size;
            return 1;
        }
        start += (size_t)header.total_size;
        size -= header.total_size;
        while (size > 0 && *start == 0) {
            start++;
            size--;
        }
    }
    return 0;
}

/* Read the first bytes of a section of the file; true if it begins with a pack. */
static inline int emitter0_read_proof_(const emitter0_file_ *file, uint64_t offset, uint64_t size, unsigned char *proof)
{
    static const unsigned char magic[8] = EMITTER0_MAGIC_;
    return size >= EMITTER0_SIZEOF_HEADER_ && emitter0_read_(file, proof, EMITTER0_SIZEOF_HEADER_, offset)
        && memcmp(proof, magic, sizeof magic) == 0;
}

#endif

#if defined(_WIN32) || defined(EMITTER0_EVERY_FORMAT_)

/* ---- PE: Microsoft's PE Format. Offsets in records are as its tables have them. ---- */

static inline const char *emitter0_pe_machine_name_(unsigned machine)
{
    switch (machine) {
    case 0x14c: return "x86";
    case 0x1c4: return "ARM";
    case 0x8664: return "x64";
    case 0xaa64: return "ARM64";
    default: return "another machine";
    }
}

/* Refuse a file that LoadLibrary would refuse without saying why: another CPU's, a truncated one, one without a pack. `machine` is
 * this process's Machine, 0 if it is not to be checked; `magic` that of its optional headers. */
static inline emitter0_status emitter0_check_pe_(const emitter0_file_ *file, unsigned machine, unsigned magic, unsigned char *proof,
                                                 const emitter0_words_ *words)
{
    unsigned char head[64], record[40];
    char text[160];
    uint64_t at, sections;
    unsigned found_machine, found_magic = 0, count, i;
    int found = 0;

    if (file->size < sizeof head || !emitter0_read_(file, head, sizeof head, 0) || head[0] != 'M' || head[1] != 'Z')
        return emitter0_say_(words, "not a PE file, or shorter than its header (a .pack is mapped, and opened by emitter_open)");
    at = emitter0_little_(head + 0x3c, 4);
    if (at > file->size || file->size - at < 24)
        return emitter0_say_(words, "truncated, or not a PE file: its header is not within the file");
    if (!emitter0_read_(file, head, 26, at) || memcmp(head, "PE\0\0", 4) != 0)
        return emitter0_say_(words, "not a PE file");
    found_machine = (unsigned)emitter0_little_(head + 4, 2);
    count = (unsigned)emitter0_little_(head + 6, 2);
    sections = at + 24 + emitter0_little_(head + 20, 2);
    if (emitter0_little_(head + 20, 2) >= 2)
        found_magic = (unsigned)emitter0_little_(head + 24, 2);
    if (found_magic != magic || (machine != 0 && found_machine != machine)) {
        (void)snprintf(text, sizeof text, "built for %s (Machine 0x%x, %s), this process is %s (%s)",
                       emitter0_pe_machine_name_(found_machine), found_machine,
                       found_magic == 0x20b ? "PE32+" : found_magic == 0x10b ? "PE32" : "no image",
                       emitter0_pe_machine_name_(machine), magic == 0x20b ? "PE32+" : "PE32");
        return emitter0_say_(words, text);
    }
    if ((emitter0_little_(head + 22, 2) & 0x2000u) == 0) /* IMAGE_FILE_DLL */
        return emitter0_say_(words, "not a DLL");
    if (sections > file->size || count * (uint64_t)sizeof record > file->size - sections)
        return emitter0_say_(words, "truncated: its section table is not within the file");
    for (i = 0; i < count; i++) {
        uint64_t size, offset, used, flags;
        if (!emitter0_read_(file, record, sizeof record, sections + i * (uint64_t)sizeof record))
            return emitter0_say_(words, "its section table cannot be read");
        used = emitter0_little_(record + 8, 4); /* VirtualSize */
        size = emitter0_little_(record + 16, 4); /* SizeOfRawData */
        offset = emitter0_little_(record + 20, 4); /* PointerToRawData */
        flags = emitter0_little_(record + 36, 4);
        if (offset == 0 || size == 0)
            continue;
        if (offset > file->size || size > file->size - offset)
            return emitter0_say_truncated_(words, "section", i + 1, size, offset, file->size);
        /* IMAGE_SCN_CNT_INITIALIZED_DATA and _MEM_READ without _MEM_WRITE, as below */
        if (!found && (flags & 0xc0000040u) == 0x40000040u)
            found = emitter0_read_proof_(file, offset, used < size ? used : size, proof);
    }
    return found ? EMITTER0_OK : emitter0_say_(words, "holds no pack: no read-only section begins with one");
}

/* The packs of a loaded image, section by section. */
static inline void emitter0_walk_pe_(emitter0_walk_ *walk, const unsigned char *image)
{
    const unsigned char *header = image + (size_t)emitter0_little_(image + 0x3c, 4);
    const unsigned char *section = header + 24 + (size_t)emitter0_little_(header + 20, 2);
    unsigned count = (unsigned)emitter0_little_(header + 6, 2);
    for (; count > 0; count--, section += 40) {
        uint64_t used = emitter0_little_(section + 8, 4), size = emitter0_little_(section + 16, 4);
        if ((emitter0_little_(section + 36, 4) & 0xc0000040u) == 0x40000040u
            && emitter0_walk_section_(walk, image + (size_t)emitter0_little_(section + 12, 4), used < size ? used : size))
            return;
    }
}

#endif

#if defined(__APPLE__) || defined(EMITTER0_EVERY_FORMAT_)

/* ---- Mach-O: <mach-o/loader.h>, <mach-o/fat.h>. Every system that has it today is little-endian. ---- */

/* Offsets in segment_command and section of 32 and of 64 bits. */
typedef struct emitter0_macho_form_ {
    uint32_t magic, command;
    unsigned word, header_size, segment_size, nsects, section_size, offset, flags;
} emitter0_macho_form_;

static inline const emitter0_macho_form_ *emitter0_macho_form_of_(int is_64)
{
    static const emitter0_macho_form_ forms[2] = {{0xfeedfaceu, 0x1u, 4, 28, 56, 48, 68, 40, 56},
                                                  {0xfeedfacfu, 0x19u, 8, 32, 72, 64, 80, 48, 64}};
    return &forms[is_64 != 0];
}

static inline const char *emitter0_cputype_name_(uint32_t cputype)
{
    switch (cputype) {
    case 7: return "i386";
    case 12: return "arm";
    case 0x01000007: return "x86_64";
    case 0x0100000c: return "arm64";
    case 0x0200000c: return "arm64_32";
    default: return "another CPU";
    }
}

static inline emitter0_status emitter0_say_cputype_(const emitter0_words_ *words, const char *found, uint32_t cputype)
{
    char text[256];
    (void)snprintf(text, sizeof text, "built for %s, this process is %s", found, emitter0_cputype_name_(cputype));
    return emitter0_say_(words, text);
}

/* Find the part of the file that is for `cputype`: all of a thin file, a slice of a universal one. */
static inline emitter0_status emitter0_macho_slice_(const emitter0_file_ *file, uint32_t cputype, uint64_t *base, uint64_t *size,
                                                    const emitter0_words_ *words)
{
    unsigned char head[8], arch[32];
    char names[160];
    size_t length = 0;
    unsigned i, count, step;
    *base = 0;
    *size = file->size;
    if (file->size < 32 || !emitter0_read_(file, head, sizeof head, 0))
        return emitter0_say_(words, "not a Mach-O file, or shorter than its header (a .pack is mapped, and opened by emitter_open)");
    /* FAT_MAGIC and FAT_MAGIC_64; these records are big-endian. */
    if (head[0] != 0xca || head[1] != 0xfe || head[2] != 0xba || (head[3] != 0xbe && head[3] != 0xbf))
        return EMITTER0_OK;
    step = head[3] == 0xbf ? 32 : 20;
    count = (unsigned)head[4] << 24 | (unsigned)head[5] << 16 | (unsigned)head[6] << 8 | head[7];
    if (count == 0 || count > 44) /* a class file of Java has its version here, which is 45 or more */
        return emitter0_say_(words, "not a Mach-O file");
    for (i = 0; i < count; i++) {
        uint64_t fields[3] = {0, 0, 0}; /* cputype, offset, size */
        unsigned at[3], wide[3], k, byte;
        at[0] = 0, at[1] = 8, at[2] = step == 32 ? 16 : 12;
        wide[0] = 4, wide[1] = wide[2] = step == 32 ? 8 : 4;
        if (!emitter0_read_(file, arch, step, 8 + (uint64_t)i * step))
            return emitter0_say_(words, "truncated: its list of slices is not within the file");
        for (k = 0; k < 3; k++)
            for (byte = 0; byte < wide[k]; byte++)
                fields[k] = fields[k] << 8 | arch[at[k] + byte];
        if (fields[0] == cputype) {
            *base = fields[1];
            *size = fields[2];
            if (*base > file->size || *size > file->size - *base)
                return emitter0_say_truncated_(words, "slice", i, *size, *base, file->size);
            return EMITTER0_OK;
        }
        if (length < sizeof names) {
            int more = snprintf(names + length, sizeof names - length, "%s%s", i > 0 ? ", " : "",
                                emitter0_cputype_name_((uint32_t)fields[0]));
            length += more > 0 ? (size_t)more : sizeof names;
        }
    }
    return emitter0_say_cputype_(words, names, cputype);
}

/* Refuse a file that dlopen would refuse, or die of: another CPU's, a truncated one, one without a pack. `cputype` is this process's. */
static inline emitter0_status emitter0_check_macho_(const emitter0_file_ *file, uint32_t cputype, unsigned char *proof,
                                                    const emitter0_words_ *words)
{
    const emitter0_macho_form_ *form = emitter0_macho_form_of_(sizeof(void *) == 8);
    unsigned char head[32], record[80];
    uint64_t base, slice, at, end;
    uint32_t magic, found_cputype, filetype, ncmds, i, k;
    int found = 0;
    emitter0_status status = emitter0_macho_slice_(file, cputype, &base, &slice, words);
    if (status != EMITTER0_OK)
        return status;
    if (slice < sizeof head || !emitter0_read_(file, head, sizeof head, base))
        return emitter0_say_(words, "not a Mach-O file, or shorter than its header (a .pack is mapped, and opened by emitter_open)");
    magic = (uint32_t)emitter0_little_(head, 4);
    found_cputype = (uint32_t)emitter0_little_(head + 4, 4);
    if (magic == 0xcefaedfeu || magic == 0xcffaedfeu)
        return emitter0_say_cputype_(words, "a big-endian machine", cputype);
    if (magic != 0xfeedfaceu && magic != 0xfeedfacfu)
        return emitter0_say_(words, "not a Mach-O file");
    if (magic != form->magic || found_cputype != cputype)
        return emitter0_say_cputype_(words, emitter0_cputype_name_(found_cputype), cputype);
    filetype = (uint32_t)emitter0_little_(head + 12, 4);
    if (filetype != 6 && filetype != 8) /* MH_DYLIB, MH_BUNDLE */
        return emitter0_say_(words, "not a dynamic library or bundle (MH_DYLIB, MH_BUNDLE)");
    ncmds = (uint32_t)emitter0_little_(head + 16, 4);
    at = form->header_size;
    end = at + emitter0_little_(head + 20, 4);
    if (end > slice)
        return emitter0_say_(words, "truncated: its load commands are not within the file");
    for (i = 0; i < ncmds; i++) {
        uint64_t cmdsize, nsects, fileoff, filesize;
        if (end - at < 8 || !emitter0_read_(file, record, 8, base + at))
            return emitter0_say_(words, "damaged: a load command is not within its list");
        cmdsize = emitter0_little_(record + 4, 4);
        if (cmdsize < 8 || cmdsize > end - at)
            return emitter0_say_(words, "damaged: a load command is not within its list");
        if (emitter0_little_(record, 4) == form->command) {
            if (cmdsize < form->segment_size || !emitter0_read_(file, record, form->segment_size, base + at))
                return emitter0_say_(words, "damaged: a segment's load command is too short");
            fileoff = emitter0_little_(record + 24 + 2 * form->word, form->word);
            filesize = emitter0_little_(record + 24 + 3 * form->word, form->word);
            nsects = emitter0_little_(record + form->nsects, 4);
            if (nsects > (cmdsize - form->segment_size) / form->section_size)
                return emitter0_say_(words, "damaged: a segment's load command is too short for its sections");
            if (filesize > 0 && (fileoff > slice || filesize > slice - fileoff))
                return emitter0_say_truncated_(words, "the segment of load command", i, filesize, fileoff, slice);
            for (k = 0; k < nsects && !found; k++) {
                uint64_t offset, size;
                if (!emitter0_read_(file, record, form->section_size, base + at + form->segment_size + (uint64_t)k * form->section_size))
                    return emitter0_say_(words, "its load commands cannot be read");
                size = emitter0_little_(record + 32 + form->word, form->word);
                offset = emitter0_little_(record + form->offset, 4);
                /* the type S_REGULAR, as below */
                if ((emitter0_little_(record + form->flags, 4) & 0xffu) == 0 && offset <= slice && size <= slice - offset)
                    found = emitter0_read_proof_(file, base + offset, size, proof);
            }
        }
        at += cmdsize;
    }
    return found ? EMITTER0_OK : emitter0_say_(words, "holds no pack: no section begins with one");
}

/* The packs of a loaded image, section by section. */
static inline void emitter0_walk_macho_(emitter0_walk_ *walk, const unsigned char *image)
{
    const emitter0_macho_form_ *form = emitter0_macho_form_of_(sizeof(void *) == 8);
    const uint32_t ncmds = (uint32_t)emitter0_little_(image + 16, 4);
    uintptr_t slide = (uintptr_t)image;
    unsigned pass;
    /* The segment that begins the file says where the image was to be. */
    for (pass = 0; pass < 2; pass++) {
        const unsigned char *at = image + form->header_size;
        uint32_t i, k;
        for (i = 0; i < ncmds; i++) {
            const unsigned char *section = at + form->segment_size;
            if (emitter0_little_(at, 4) != form->command) {
                at += (size_t)emitter0_little_(at + 4, 4);
                continue;
            }
            if (pass == 0 && emitter0_little_(at + 24 + 2 * form->word, form->word) == 0
                && emitter0_little_(at + 24 + 3 * form->word, form->word) != 0) {
                slide -= (uintptr_t)emitter0_little_(at + 24, form->word);
                break;
            }
            for (k = 0; pass == 1 && k < (uint32_t)emitter0_little_(at + form->nsects, 4); k++, section += form->section_size)
                if ((emitter0_little_(section + form->flags, 4) & 0xffu) == 0
                    && emitter0_walk_section_(
                        walk, (const unsigned char *)(slide + (uintptr_t)emitter0_little_(section + 32, form->word)),
                        emitter0_little_(section + 32 + form->word, form->word)))
                    return;
            at += (size_t)emitter0_little_(at + 4, 4);
        }
    }
}

#endif

#ifdef _WIN32

/* ---- Windows ---- */

#if defined(_M_ARM64EC) || defined(__arm64ec__)
#define EMITTER0_MACHINE_ 0u
#elif defined(_M_X64) || defined(__x86_64__)
#define EMITTER0_MACHINE_ 0x8664u
#elif defined(_M_ARM64) || defined(__aarch64__)
#define EMITTER0_MACHINE_ 0xaa64u
#elif defined(_M_IX86) || defined(__i386__)
#define EMITTER0_MACHINE_ 0x14cu
#elif defined(_M_ARM) || defined(__arm__)
#define EMITTER0_MACHINE_ 0x1c4u
#else
#define EMITTER0_MACHINE_ 0u
#endif

static inline emitter0_status emitter0_say_system_(const emitter0_words_ *words, DWORD error)
{
    wchar_t wide[256];
    char text[3 * 256 + 32];
    int length = (int)FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, error, 0, wide, 256, NULL);
    while (length > 0 && (wide[length - 1] <= L' ' || wide[length - 1] == L'.'))
        length--;
    length = length > 0 ? WideCharToMultiByte(CP_UTF8, 0, wide, length, text, 3 * 256, NULL, NULL) : 0;
    (void)snprintf(text + length, sizeof text - (size_t)length, "%sSystem error %lu", length > 0 ? ". " : "", (unsigned long)error);
    return emitter0_say_(words, text);
}

/* False if the text is not UTF-8, or too long. */
static inline int emitter0_widen_(const char *text, wchar_t out[EMITTER0_PATH_])
{
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, out, EMITTER0_PATH_) > 0;
}

static inline emitter0_status emitter0_file_open_(emitter0_file_ *file, const char *path, int optional, const emitter0_words_ *words)
{
    wchar_t wide[EMITTER0_PATH_];
    LARGE_INTEGER size;
    DWORD attributes;
    if (!emitter0_widen_(path, wide))
        return emitter0_say_(words, "its path is not UTF-8, or too long");
    attributes = GetFileAttributesW(wide);
    if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0)
        return emitter0_say_(words, "not a regular file");
    /* While it is open, nobody may write, rename or delete it. */
    file->handle = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file->handle == INVALID_HANDLE_VALUE) {
        DWORD error = GetLastError();
        if (optional && (error == ERROR_FILE_NOT_FOUND || error == ERROR_PATH_NOT_FOUND))
            return EMITTER0_NOT_FOUND;
        return emitter0_say_system_(words, error);
    }
    if (GetFileType(file->handle) != FILE_TYPE_DISK || !GetFileSizeEx(file->handle, &size)) {
        emitter0_file_close_(file);
        return emitter0_say_(words, "not a regular file");
    }
    file->size = (uint64_t)size.QuadPart;
    return EMITTER0_OK;
}

static inline void emitter0_file_close_(const emitter0_file_ *file)
{
    (void)CloseHandle(file->handle);
}

static inline int emitter0_read_(const emitter0_file_ *file, void *to, size_t size, uint64_t offset)
{
    OVERLAPPED position;
    DWORD got = 0;
    memset(&position, 0, sizeof position);
    position.Offset = (DWORD)offset;
    position.OffsetHigh = (DWORD)(offset >> 32);
    return ReadFile(file->handle, to, (DWORD)size, &got, &position) && got == size;
}

static inline const void *emitter0_map_(const emitter0_file_ *file)
{
    HANDLE mapping = CreateFileMappingW(file->handle, NULL, PAGE_READONLY, 0, 0, NULL);
    const void *base = mapping == NULL ? NULL : MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0);
    if (mapping != NULL)
        (void)CloseHandle(mapping); /* the view keeps it */
    return base;
}

static inline void emitter0_unmap_(const void *base, size_t size)
{
    (void)size;
    (void)UnmapViewOfFile(base);
}

static inline emitter0_status emitter0_load_(emitter0_library *library, const char *path, unsigned char *proof, int *proven,
                                             const emitter0_words_ *words)
{
    wchar_t wide[EMITTER0_PATH_], full[EMITTER0_PATH_];
    const int is_path = strpbrk(path, EMITTER0_SLASHES_) != NULL;
    emitter0_file_ file;
    emitter0_status status;
    DWORD error, length, mode = 0;
    HMODULE module;
    FARPROC symbol;

    if (!emitter0_widen_(path, wide))
        return emitter0_say_(words, "its path is not UTF-8, or too long");
    if (is_path) {
        length = GetFullPathNameW(wide, EMITTER0_PATH_, full, NULL);
        if (length == 0 || length >= EMITTER0_PATH_)
            return emitter0_say_(words, "its path is too long");
        status = emitter0_file_open_(&file, path, 0, words);
        if (status != EMITTER0_OK)
            return status;
        status = emitter0_check_pe_(&file, EMITTER0_MACHINE_, sizeof(void *) == 8 ? 0x20bu : 0x10bu, proof, words);
        if (status != EMITTER0_OK) {
            emitter0_file_close_(&file);
            return status;
        }
        *proven = 1;
    }
    /* A library that lacks another one is an error, not a window that waits for a click. */
    (void)SetThreadErrorMode(SEM_FAILCRITICALERRORS | SEM_NOOPENFILEERRORBOX, &mode);
    module = is_path ? LoadLibraryExW(full, NULL, LOAD_WITH_ALTERED_SEARCH_PATH) : LoadLibraryW(wide);
    error = GetLastError();
    (void)SetThreadErrorMode(mode, NULL);
    if (is_path)
        emitter0_file_close_(&file);
    if (module == NULL)
        return emitter0_say_system_(words, error);
    library->handle = (void *)module;
    symbol = GetProcAddress(module, "emitter_pack");
    library->symbol = (const void *)(uintptr_t)symbol;
    if (library->symbol == NULL) { /* linked by somebody else: the first one */
        emitter0_walk_ walk = {NULL, 0, 0, NULL, 0};
        emitter0_walk_pe_(&walk, (const unsigned char *)library->handle);
        library->symbol = walk.pack;
    }
    return EMITTER0_OK;
}

static inline void emitter0_unload_(void *handle)
{
    (void)FreeLibrary((HMODULE)handle);
}

static inline void emitter0_walk_library_(emitter0_walk_ *walk, const emitter0_library *library)
{
    emitter0_walk_pe_(walk, (const unsigned char *)library->handle);
}

static inline int emitter0_library_path_(const emitter0_library *library, const char *path, int resolved, char out[EMITTER0_PATH_])
{
    wchar_t wide[EMITTER0_PATH_], final_path[EMITTER0_PATH_];
    DWORD length = GetModuleFileNameW((HMODULE)library->handle, wide, EMITTER0_PATH_);
    (void)path; /* the system's path is absolute, whatever the current folder is */
    if (length == 0 || length >= EMITTER0_PATH_)
        return 0;
    if (resolved) {
        HANDLE handle = CreateFileW(wide, 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, OPEN_EXISTING, 0, NULL);
        if (handle == INVALID_HANDLE_VALUE)
            return 0;
        length = GetFinalPathNameByHandleW(handle, final_path, EMITTER0_PATH_, 0);
        (void)CloseHandle(handle);
        if (length == 0 || length >= EMITTER0_PATH_)
            return 0;
    }
    return WideCharToMultiByte(CP_UTF8, 0, resolved ? final_path : wide, -1, out, EMITTER0_PATH_, NULL, NULL) > 0;
}

#else

/* ---- POSIX ---- */

static inline emitter0_status emitter0_file_open_(emitter0_file_ *file, const char *path, int optional, const emitter0_words_ *words)
{
    emitter0_status status = EMITTER0_OK;
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block */
    if (file->fd < 0)
        return optional && (errno == ENOENT || errno == ENOTDIR) ? EMITTER0_NOT_FOUND : emitter0_say_(words, strerror(errno));
    if (fstat(file->fd, &file->status) != 0)
        status = emitter0_say_(words, strerror(errno));
    else if (!S_ISREG(file->status.st_mode))
        status = emitter0_say_(words, "not a regular file");
    if (status != EMITTER0_OK) {
        emitter0_file_close_(file);
        return status;
    }
    file->size = (uint64_t)file->status.st_size;
    return EMITTER0_OK;
}

static inline void emitter0_file_close_(const emitter0_file_ *file)
{
    (void)close(file->fd);
}

static inline int emitter0_read_(const emitter0_file_ *file, void *to, size_t size, uint64_t offset)
{
    char *at = (char *)to;
    while (size > 0) {
        ssize_t got = pread(file->fd, at, size, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        at += got;
        size -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 1;
}

static inline const void *emitter0_map_(const emitter0_file_ *file)
{
    void *base = mmap(NULL, (size_t)file->size, PROT_READ, MAP_PRIVATE, file->fd, 0);
    return base == MAP_FAILED ? NULL : base;
}

static inline void emitter0_unmap_(const void *base, size_t size)
{
    (void)munmap((void *)(uintptr_t)base, size);
}

static inline void emitter0_unload_(void *handle)
{
    (void)dlclose(handle);
}

#ifdef __linux__
/* The path of the file that is mapped at `address`. A line of the list is "START-END PERMISSIONS OFFSET DEVICE INODE PATH". */
static inline int emitter0_mapped_path_(uintptr_t address, char out[EMITTER0_PATH_])
{
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    char chunk[512];
    size_t length = 0;
    ssize_t got = 0, i;
    int path = 0;
    while (fd >= 0 && path == 0 && (got = read(fd, chunk, sizeof chunk)) > 0)
        for (i = 0; i < got && path == 0; i++) {
            unsigned long long start, end;
            if (chunk[i] != '\n') {
                if (length < EMITTER0_PATH_ - 1)
                    out[length++] = chunk[i];
                continue;
            }
            out[length] = 0;
            length = 0;
            if (sscanf(out, "%llx-%llx %*s %*s %*s %*s %n", &start, &end, &path) != 2 || address < start || address >= end)
                path = 0;
        }
    if (fd >= 0)
        (void)close(fd);
    if (path == 0 || out[path] != '/')
        return 0;
    memmove(out, out + path, strlen(out + path) + 1);
    return 1;
}
#endif

static inline int emitter0_library_path_(const emitter0_library *library, const char *path, int resolved, char out[EMITTER0_PATH_])
{
    Dl_info loaded;
    if (path == NULL) {
        if (dladdr((void *)(uintptr_t)library->symbol, &loaded) == 0 || loaded.dli_fname == NULL)
            return 0;
        path = loaded.dli_fname;
#ifdef __linux__
        if (strncmp(path, "/proc/self/fd/", 14) == 0) /* it was opened by its path before, see emitter0_library_name_ */
            return emitter0_mapped_path_((uintptr_t)library->symbol, out);
#endif
    }
    if (!resolved)
        return snprintf(out, EMITTER0_PATH_, "%s", path) < EMITTER0_PATH_;
#if defined(PATH_MAX) && PATH_MAX <= EMITTER0_PATH_
    return realpath(path, out) != NULL;
#else
    return 0; /* realpath would need a longer buffer */
#endif
}

/* Say what dlopen said, with the path that the user knows for the name that dlopen was given. */
static inline emitter0_status emitter0_say_dlopen_(const emitter0_words_ *words, const char *name)
{
    const char *error = dlerror();
    const char *at = error == NULL ? NULL : strstr(error, name);
    size_t end;
    if (at == NULL)
        return emitter0_say_(words, error != NULL ? error : "dlopen failed");
    end = emitter0_put_(words, 0, error, (size_t)(at - error));
    end = emitter0_put_(words, end, words->path, strlen(words->path));
    (void)emitter0_put_(words, end, at + strlen(name), strlen(at + strlen(name)));
    return EMITTER0_LIBRARY_ERROR;
}

#ifdef __APPLE__

/* ---- Apple's systems ---- */

#if defined(__x86_64__)
#define EMITTER0_CPUTYPE_ 0x01000007u
#elif defined(__ARM64_ARCH_8_32__)
#define EMITTER0_CPUTYPE_ 0x0200000cu
#elif defined(__aarch64__)
#define EMITTER0_CPUTYPE_ 0x0100000cu
#elif defined(__arm__)
#define EMITTER0_CPUTYPE_ 12u
#else
#define EMITTER0_CPUTYPE_ 7u
#endif

static inline emitter0_status emitter0_load_(emitter0_library *library, const char *path, unsigned char *proof, int *proven,
                                             const emitter0_words_ *words)
{
    emitter0_file_ file;
    emitter0_status status;
    if (strchr(path, '/') != NULL) {
        status = emitter0_file_open_(&file, path, 0, words);
        if (status != EMITTER0_OK)
            return status;
        status = emitter0_check_macho_(&file, EMITTER0_CPUTYPE_, proof, words);
        emitter0_file_close_(&file);
        if (status != EMITTER0_OK)
            return status;
        *proven = 1;
    }
    library->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library->handle == NULL)
        return emitter0_say_dlopen_(words, path);
    library->symbol = dlsym(library->handle, "emitter_pack");
    return EMITTER0_OK;
}

static inline void emitter0_walk_library_(emitter0_walk_ *walk, const emitter0_library *library)
{
    Dl_info loaded;
    if (dladdr(library->symbol, &loaded) != 0 && loaded.dli_fbase != NULL)
        emitter0_walk_macho_(walk, (const unsigned char *)loaded.dli_fbase);
}

#else

/* ---- Systems with ELF ---- */

/* e_machine of this process; 0 where it is not listed, and then not checked. */
#if defined(__x86_64__)
#define EMITTER0_MACHINE_ 62u
#elif defined(__i386__)
#define EMITTER0_MACHINE_ 3u
#elif defined(__aarch64__)
#define EMITTER0_MACHINE_ 183u
#elif defined(__arm__)
#define EMITTER0_MACHINE_ 40u
#elif defined(__riscv)
#define EMITTER0_MACHINE_ 243u
#elif defined(__loongarch__)
#define EMITTER0_MACHINE_ 258u
#elif defined(__s390__)
#define EMITTER0_MACHINE_ 22u
#elif defined(__powerpc64__)
#define EMITTER0_MACHINE_ 21u
#elif defined(__powerpc__)
#define EMITTER0_MACHINE_ 20u
#elif defined(__mips__)
#define EMITTER0_MACHINE_ 8u
#else
#define EMITTER0_MACHINE_ 0u
#endif

static inline const char *emitter0_machine_name_(unsigned machine)
{
    switch (machine) {
    case 3: return "i386";
    case 8: return "MIPS";
    case 20: return "PowerPC";
    case 21: return "PowerPC64";
    case 22: return "S/390";
    case 40: return "ARM";
    case 62: return "x86-64";
    case 183: return "AArch64";
    case 243: return "RISC-V";
    case 258: return "LoongArch";
    default: return "another machine";
    }
}

/* Refuse a file that dlopen would refuse without saying why, or die of: another CPU's, a truncated one. */
static inline emitter0_status emitter0_check_elf_(const emitter0_file_ *file, const emitter0_words_ *words)
{
    static const char magic[4] = {0x7f, 'E', 'L', 'F'};
    const unsigned own_class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
    const union {
        uint16_t word;
        unsigned char first;
    } order = {1};
    const unsigned own_data = order.first == 1 ? ELFDATA2LSB : ELFDATA2MSB;
    ElfW(Ehdr) header;
    unsigned char *machine_bytes = (unsigned char *)&header.e_machine;
    unsigned ei_class, ei_data, machine, i;
    char text[256];

    if (file->size < sizeof header || !emitter0_read_(file, &header, sizeof header, 0) || memcmp(header.e_ident, magic, 4) != 0)
        return emitter0_say_(words, "not an ELF file, or shorter than its header (a .pack is mapped, and opened by emitter_open)");
    ei_class = header.e_ident[EI_CLASS];
    ei_data = header.e_ident[EI_DATA];
    /* e_machine is at the same place in both classes. */
    machine = ei_data == ELFDATA2MSB ? (unsigned)machine_bytes[0] << 8 | machine_bytes[1]
                                     : (unsigned)machine_bytes[1] << 8 | machine_bytes[0];
    if (ei_class != own_class || ei_data != own_data || (EMITTER0_MACHINE_ != 0 && machine != EMITTER0_MACHINE_)) {
        (void)snprintf(text, sizeof text, "built for %s (e_machine %u, %s, %s-endian), this process is %s (%s, %s-endian)",
                       emitter0_machine_name_(machine), machine, ei_class == ELFCLASS64 ? "64-bit" : "32-bit",
                       ei_data == ELFDATA2MSB ? "big" : "little", emitter0_machine_name_(EMITTER0_MACHINE_),
                       own_class == ELFCLASS64 ? "64-bit" : "32-bit", own_data == ELFDATA2MSB ? "big" : "little");
        return emitter0_say_(words, text);
    }
    if (header.e_type != ET_DYN)
        return emitter0_say_(words, "not a shared library (e_type is not ET_DYN)");
    if (header.e_phentsize != sizeof(ElfW(Phdr)) || header.e_phnum == 0 || header.e_phnum == 0xffff /* PN_XNUM */
        || header.e_phoff > file->size || (uint64_t)header.e_phnum * sizeof(ElfW(Phdr)) > file->size - header.e_phoff)
        return emitter0_say_(words, "the program headers are not within the file: truncated or damaged");
    for (i = 0; i < header.e_phnum; i++) {
        ElfW(Phdr) segment;
        if (!emitter0_read_(file, &segment, sizeof segment, (uint64_t)header.e_phoff + (uint64_t)i * sizeof segment))
            return emitter0_say_(words, strerror(errno));
        if (segment.p_filesz == 0)
            continue;
        if (segment.p_offset > file->size || segment.p_filesz > file->size - segment.p_offset)
            return emitter0_say_truncated_(words, "program header", i, segment.p_filesz, segment.p_offset, file->size);
        if (segment.p_type == PT_LOAD && segment.p_filesz > segment.p_memsz)
            return emitter0_say_(words, "damaged: p_filesz exceeds p_memsz");
    }
    return EMITTER0_OK;
}

static inline int emitter0_mapped_(const struct dl_phdr_info *info, const unsigned char *start, size_t size)
{
    unsigned i;
    for (i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t offset = (uintptr_t)start - (uintptr_t)(info->dlpi_addr + segment->p_vaddr);
        if (segment->p_type == PT_LOAD && offset < segment->p_memsz && size <= segment->p_memsz - offset)
            return 1;
    }
    return 0;
}

static inline int emitter0_walk_notes_(emitter0_walk_ *walk, const struct dl_phdr_info *info, const unsigned char *note, size_t size,
                                       size_t align)
{
    while (size >= 12) {
        uint32_t words[3]; /* n_namesz, n_descsz, n_type */
        uint64_t desc, next;
        memcpy(words, note, sizeof words);
        desc = (12 + (uint64_t)words[0] + align - 1) & ~((uint64_t)align - 1);
        next = (desc + words[1] + align - 1) & ~((uint64_t)align - 1);
        if (desc + words[1] > size)
            return 0;
        if (words[0] == 8 && memcmp(note + 12, "emitter", 8) == 0 && words[2] == 1 && words[1] >= 2 * sizeof(uintptr_t) + 8) {
            uintptr_t fields[2]; /* from the field itself to the pack, and the pack's bytes */
            const unsigned char *pack;
            memcpy(fields, note + desc, sizeof fields);
            pack = (const unsigned char *)((uintptr_t)(note + desc) + fields[0]);
            if ((walk->by_symbol ? pack == walk->symbol : walk->skip-- == 0) && emitter0_mapped_(info, pack, fields[1])) {
                walk->pack = pack;
                walk->size = fields[1];
                return 1;
            }
        }
        if (next >= size)
            return 0;
        note += next;
        size -= (size_t)next;
    }
    return 0;
}

static inline int emitter0_walk_object_(struct dl_phdr_info *info, size_t info_size, void *data)
{
    emitter0_walk_ *walk = (emitter0_walk_ *)data;
    unsigned i;
    (void)info_size;
    if (!emitter0_mapped_(info, walk->symbol, 1))
        return 0;
    for (i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        const unsigned char *note = (const unsigned char *)(uintptr_t)(info->dlpi_addr + segment->p_vaddr);
        if (segment->p_type == PT_NOTE && emitter0_mapped_(info, note, segment->p_memsz)
            && emitter0_walk_notes_(walk, info, note, segment->p_memsz, segment->p_align == 8 ? 8 : 4))
            break;
    }
    return 1;
}

/* A name of the open file for dlopen. glibc takes a library that is already loaded under the same NAME for the same library, and a
 * number of a closed descriptor is used again: so the name says which file it is, in `/` and `./`, which mean nothing in a path. */
static inline void emitter0_library_name_(int fd, const struct stat *file, char *name, size_t name_size)
{
    const uint64_t identity[4] = {(uint64_t)file->st_dev, (uint64_t)file->st_ino, (uint64_t)file->st_size, (uint64_t)file->st_mtime};
    static const char directory[] = "/proc/self/fd/";
    size_t end = sizeof directory - 1;
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, a 64-bit word at a time */
    unsigned i;
    for (i = 0; i < 4; i++) {
        hash = (hash ^ identity[i]) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    memcpy(name, directory, end);
    for (i = 0; i < 64; i++) {
        if ((hash >> i & 1) != 0)
            name[end++] = '.';
        name[end++] = '/';
    }
    (void)snprintf(name + end, name_size - end, "%d", fd);
}

static inline emitter0_status emitter0_load_(emitter0_library *library, const char *path, unsigned char *proof, int *proven,
                                             const emitter0_words_ *words)
{
    char name[14 + 2 * 64 + 16];
    emitter0_file_ file;
    struct stat other;
    emitter0_status status;
    Dl_info loaded;
    int by_descriptor;
    (void)proof; /* the file itself is loaded, or compared */
    (void)proven;
    if (strchr(path, '/') == NULL) {
        library->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library->handle == NULL)
            return emitter0_say_dlopen_(words, path);
        library->symbol = dlsym(library->handle, "emitter_pack");
        return EMITTER0_OK;
    }
    status = emitter0_file_open_(&file, path, 0, words);
    if (status != EMITTER0_OK)
        return status;
    status = emitter0_check_elf_(&file, words);
    if (status != EMITTER0_OK) {
        emitter0_file_close_(&file);
        return status;
    }
    emitter0_library_name_(file.fd, &file.status, name, sizeof name);
    by_descriptor = stat(name, &other) == 0 && other.st_dev == file.status.st_dev && other.st_ino == file.status.st_ino;
    library->handle = dlopen(by_descriptor ? name : path, RTLD_NOW | RTLD_LOCAL);
    emitter0_file_close_(&file);
    if (library->handle == NULL)
        return emitter0_say_dlopen_(words, by_descriptor ? name : path);
    library->symbol = dlsym(library->handle, "emitter_pack");
    if (!by_descriptor && library->symbol != NULL
        && (dladdr((void *)(uintptr_t)library->symbol, &loaded) == 0 || stat(loaded.dli_fname, &other) != 0
            || other.st_dev != file.status.st_dev || other.st_ino != file.status.st_ino))
        return emitter0_say_(words, "another file was loaded than the one that was checked");
    return EMITTER0_OK;
}

static inline void emitter0_walk_library_(emitter0_walk_ *walk, const emitter0_library *library)
{
    (void)library;
    (void)dl_iterate_phdr(emitter0_walk_object_, walk);
}

#endif /* ELF */
#endif /* POSIX */

/* ---- Sidecars: docs/pack-format.md ---- */

static inline void emitter0_sha256_block_(uint32_t state[8], const unsigned char *block)
{
    static const uint32_t rounds[64] = {
        0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
        0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
        0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
        0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
        0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
        0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
        0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
        0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u,
    };
    uint32_t words[64], i;
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
#define EMITTER0_TURN_(word, bits) ((word) >> (bits) | (word) << (32 - (bits)))
    for (i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (; i < 64; i++) {
        const uint32_t early = words[i - 15], late = words[i - 2];
        words[i] = words[i - 16] + words[i - 7] + (EMITTER0_TURN_(early, 7) ^ EMITTER0_TURN_(early, 18) ^ early >> 3)
                 + (EMITTER0_TURN_(late, 17) ^ EMITTER0_TURN_(late, 19) ^ late >> 10);
    }
    for (i = 0; i < 64; i++) {
        const uint32_t first = h + (EMITTER0_TURN_(e, 6) ^ EMITTER0_TURN_(e, 11) ^ EMITTER0_TURN_(e, 25)) + ((e & f) ^ (~e & g)) + rounds[i]
                             + words[i];
        const uint32_t second = (EMITTER0_TURN_(a, 2) ^ EMITTER0_TURN_(a, 13) ^ EMITTER0_TURN_(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
#undef EMITTER0_TURN_
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

/* SHA-256 (FIPS 180-4). */
static inline void emitter0_sha256_(const unsigned char *data, size_t size, unsigned char digest[32])
{
    uint32_t state[8] = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au, 0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
    unsigned char last[128];
    const uint64_t bits = (uint64_t)size * 8;
    size_t rest, i;
    for (rest = size; rest >= 64; rest -= 64, data += 64)
        emitter0_sha256_block_(state, data);
    memset(last, 0, sizeof last);
    memcpy(last, data, rest);
    last[rest] = 0x80;
    size = rest < 56 ? 64 : 128;
    for (i = 0; i < 8; i++)
        last[size - 1 - i] = (unsigned char)(bits >> 8 * i);
    emitter0_sha256_block_(state, last);
    if (size == 128)
        emitter0_sha256_block_(state, last + 64);
    for (i = 0; i < 32; i++)
        digest[i] = (unsigned char)(state[i / 4] >> 8 * (3 - i % 4));
}

/* The record of an index pack, or null if it breaks a rule. */
static inline const struct emitter0_sidecar_record *emitter0_sidecar_record_of_(const emitter0_reader *index, const char **name)
{
    static const unsigned char zero[32] = {0};
    const struct emitter0_sidecar_record *record;
    uint32_t i;
    if (index->sidecar.count != 1 || index->size != index->index_size
        || emitter0_crc32c(index->base + index->header_size, index->index_size - index->header_size, 0) != index->index_crc32c)
        return NULL;
    record = (const struct emitter0_sidecar_record *)(const void *)emitter0_record_(index, &index->sidecar, 0);
    *name = emitter0_string_(index, record->name_offset, record->name_length);
    if (*name == NULL || record->name_length == 0 || record->name_length > EMITTER0_MAX_NAME_
        || (record->flags & ~EMITTER0_SIDECAR_PINNED_) != 0
        || memcmp(record->reserved, zero, sizeof record->reserved) != 0
        || ((record->flags & EMITTER0_SIDECAR_PINNED_) == 0 && (record->size != 0 || memcmp(record->sha256, zero, sizeof zero) != 0)))
        return NULL;
    /* A name in a folder, on every system. */
    for (i = 0; i < record->name_length; i++)
        if ((*name)[i] == '/' || (*name)[i] == '\\' || (*name)[i] == ':' || (*name)[i] == 0)
            return NULL;
    return strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0 ? NULL : record;
}

/* Open the file beside the library, and the pack in it. `path` is null for a library that was opened by name. */
static inline emitter0_status emitter0_follow_(emitter0_library *library, const emitter0_reader *index, const char *path,
                                               const emitter0_words_ *words)
{
    char where[EMITTER0_PATH_], text[256];
    const char *name = NULL;
    const struct emitter0_sidecar_record *record = emitter0_sidecar_record_of_(index, &name);
    emitter0_words_ own = *words;
    emitter0_file_ file;
    emitter0_status status = EMITTER0_NOT_FOUND;
    unsigned char digest[32];
    int resolved;
    where[0] = 0;
    memset(&file, 0, sizeof file);
    if (record == NULL)
        return emitter0_say_(words, "its record of the file that holds the payloads breaks a rule of the format");
    own.path = where;
    for (resolved = 0; resolved < 2 && status == EMITTER0_NOT_FOUND; resolved++) {
        size_t folder = 0, i;
        if (!emitter0_library_path_(library, path, resolved, where)) {
            where[0] = 0;
            continue;
        }
        for (i = 0; where[i] != 0; i++)
            if (strchr(EMITTER0_SLASHES_, where[i]) != NULL)
                folder = i + 1;
        if (folder + record->name_length >= sizeof where)
            return emitter0_say_(words, "the path of the file that holds its payloads is too long");
        memcpy(where + folder, name, (size_t)record->name_length + 1);
        status = emitter0_file_open_(&file, where, 1, &own);
    }
    if (status == EMITTER0_NOT_FOUND) {
        size_t at = emitter0_put_(words, 0, words->path, strlen(words->path));
        static const char before[] = ": its payloads are in another file, which is not there: ";
        at = emitter0_put_(words, at, before, sizeof before - 1);
        (void)emitter0_put_(words, at, where[0] != 0 ? where : name, strlen(where[0] != 0 ? where : name));
        return EMITTER0_LIBRARY_ERROR;
    }
    if (status != EMITTER0_OK)
        return status;
    if (file.size < EMITTER0_SIZEOF_HEADER_)
        status = emitter0_say_(&own, "not a pack, or truncated");
    else if (file.size > (uint64_t)PTRDIFF_MAX)
        status = emitter0_say_(&own, "too large for the address space of this process");
    else if ((record->flags & EMITTER0_SIDECAR_PINNED_) != 0 && record->size != file.size) {
        (void)snprintf(text, sizeof text, "not the file that the library was made with: %llu bytes, not %llu",
                       (unsigned long long)file.size, (unsigned long long)record->size);
        status = emitter0_say_(&own, text);
    } else {
        library->sidecar_size = (size_t)file.size;
        library->sidecar = emitter0_map_(&file);
        if (library->sidecar == NULL)
            status = emitter0_say_(&own, "cannot be mapped");
    }
    emitter0_file_close_(&file);
    if (status != EMITTER0_OK)
        return status;
    if ((record->flags & EMITTER0_SIDECAR_PINNED_) != 0) {
        emitter0_sha256_((const unsigned char *)library->sidecar, library->sidecar_size, digest);
        if (memcmp(digest, record->sha256, sizeof digest) != 0)
            return emitter0_say_(&own, "not the file that the library was made with: its SHA-256 differs");
    }
    status = emitter0_open_expect(&library->reader, library->sidecar, library->sidecar_size, index->schema);
    if (status != EMITTER0_OK)
        (void)emitter0_say_(&own, emitter0_status_string(status));
    return status;
}

/* ---- Opening libraries ---- */

static inline void emitter0_release_(emitter0_library *library)
{
    if (library->sidecar != NULL)
        emitter0_unmap_(library->sidecar, library->sidecar_size);
    if (library->handle != NULL)
        emitter0_unload_(library->handle);
    library->handle = NULL;
    library->symbol = NULL;
    library->sidecar = NULL;
    library->sidecar_size = 0;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_library_open(emitter0_library *library, const char *path_or_soname, char *message,
                                                         size_t message_size)
{
    emitter0_walk_ walk = {NULL, 0, 1, NULL, 0}, first = {NULL, 0, 0, NULL, 0};
    emitter0_words_ words;
    emitter0_status status = EMITTER0_OK;
    emitter0_reader index;
    unsigned char proof[EMITTER0_SIZEOF_HEADER_];
    int proven = 0;
    const char *null = library == NULL || path_or_soname == NULL ? emitter0_status_string(EMITTER0_ARGUMENT) : "";
    words.text = message;
    words.size = message_size;
    words.path = path_or_soname;
    (void)emitter0_put_(&words, 0, null, strlen(null));
    if (library == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_reader_(&library->reader);
    library->handle = NULL;
    library->symbol = NULL;
    library->sidecar = NULL;
    library->sidecar_size = 0;
    if (path_or_soname == NULL)
        return EMITTER0_ARGUMENT;
    status = emitter0_load_(library, path_or_soname, proof, &proven, &words);
    if (status == EMITTER0_OK && library->symbol == NULL)
        status = emitter0_say_(&words, "holds no pack: it exports no symbol emitter_pack");
    if (status == EMITTER0_OK) {
        walk.symbol = first.symbol = (const unsigned char *)library->symbol;
        emitter0_walk_library_(&walk, library);
        if (walk.pack == NULL)
            status = emitter0_say_(&words, "holds " EMITTER0_PLACE_);
    }
    if (status == EMITTER0_OK && proven) {
        /* The header has the checksum of the index, which has those of the payloads. */
        emitter0_walk_library_(&first, library);
        if (first.pack == NULL || memcmp(first.pack, proof, sizeof proof) != 0)
            status = emitter0_say_(&words, "another file was loaded than the one that was checked");
    }
    if (status == EMITTER0_OK) {
        status = emitter0_open_any_(&library->reader, walk.pack, walk.size);
        index = library->reader;
        if (status == EMITTER0_OK && index.sidecar.count != 0) {
            emitter0_clear_reader_(&library->reader);
            status = emitter0_follow_(library, &index, strpbrk(path_or_soname, EMITTER0_SLASHES_) != NULL ? path_or_soname : NULL, &words);
        } else if (status != EMITTER0_OK) {
            (void)emitter0_say_(&words, emitter0_status_string(status));
        }
    }
    if (status != EMITTER0_OK)
        emitter0_release_(library);
    return status;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_library_pack(const emitter0_library *library, uint32_t index, emitter0_reader *reader)
{
    emitter0_walk_ walk = {NULL, 0, 0, NULL, 0};
    if (reader == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_reader_(reader);
    if (library == NULL || library->symbol == NULL)
        return EMITTER0_ARGUMENT;
    walk.symbol = (const unsigned char *)library->symbol;
    walk.skip = index;
    emitter0_walk_library_(&walk, library);
    if (walk.pack == NULL)
        return EMITTER0_NOT_FOUND;
    return library->sidecar != NULL && walk.pack == walk.symbol ? emitter0_open(reader, library->sidecar, library->sidecar_size)
                                                                : emitter0_open(reader, walk.pack, walk.size);
}

EMITTER0_FUNCTION_ void emitter0_library_close(emitter0_library *library)
{
    if (library == NULL)
        return;
    emitter0_release_(library);
    emitter0_clear_reader_(&library->reader);
}

#ifdef __cplusplus
}
#endif

#endif /* EMITTER_LIBRARY */
#endif /* not EMITTER_EXTERN */

/* ---- Names without a number ---- */

#ifndef EMITTER_INTERFACE
#define EMITTER_INTERFACE 0
/* generated: names */
#define EMITTER_ARGUMENT EMITTER0_ARGUMENT
#define EMITTER_CHECKSUM EMITTER0_CHECKSUM
#define EMITTER_DTYPE EMITTER0_DTYPE
#define EMITTER_DTYPE_BFLOAT EMITTER0_DTYPE_BFLOAT
#define EMITTER_DTYPE_BOOL EMITTER0_DTYPE_BOOL
#define EMITTER_DTYPE_COMPLEX EMITTER0_DTYPE_COMPLEX
#define EMITTER_DTYPE_FLOAT EMITTER0_DTYPE_FLOAT
#define EMITTER_DTYPE_FLOAT4_E2M1FN EMITTER0_DTYPE_FLOAT4_E2M1FN
#define EMITTER_DTYPE_FLOAT6_E2M3FN EMITTER0_DTYPE_FLOAT6_E2M3FN
#define EMITTER_DTYPE_FLOAT6_E3M2FN EMITTER0_DTYPE_FLOAT6_E3M2FN
#define EMITTER_DTYPE_FLOAT8_E3M4 EMITTER0_DTYPE_FLOAT8_E3M4
#define EMITTER_DTYPE_FLOAT8_E4M3 EMITTER0_DTYPE_FLOAT8_E4M3
#define EMITTER_DTYPE_FLOAT8_E4M3B11FNUZ EMITTER0_DTYPE_FLOAT8_E4M3B11FNUZ
#define EMITTER_DTYPE_FLOAT8_E4M3FN EMITTER0_DTYPE_FLOAT8_E4M3FN
#define EMITTER_DTYPE_FLOAT8_E4M3FNUZ EMITTER0_DTYPE_FLOAT8_E4M3FNUZ
#define EMITTER_DTYPE_FLOAT8_E5M2 EMITTER0_DTYPE_FLOAT8_E5M2
#define EMITTER_DTYPE_FLOAT8_E5M2FNUZ EMITTER0_DTYPE_FLOAT8_E5M2FNUZ
#define EMITTER_DTYPE_FLOAT8_E8M0FNU EMITTER0_DTYPE_FLOAT8_E8M0FNU
#define EMITTER_DTYPE_INT EMITTER0_DTYPE_INT
#define EMITTER_DTYPE_OPAQUE_HANDLE EMITTER0_DTYPE_OPAQUE_HANDLE
#define EMITTER_DTYPE_UINT EMITTER0_DTYPE_UINT
#define EMITTER_ENCODED EMITTER0_ENCODED
#define EMITTER_FEATURE EMITTER0_FEATURE
#define EMITTER_FOREIGN_BYTE_ORDER EMITTER0_FOREIGN_BYTE_ORDER
#define EMITTER_LIBRARY_ERROR EMITTER0_LIBRARY_ERROR
#define EMITTER_MALFORMED EMITTER0_MALFORMED
#define EMITTER_MISALIGNED EMITTER0_MISALIGNED
#define EMITTER_MODULE_FAILED EMITTER0_MODULE_FAILED
#define EMITTER_NOT_A_PACK EMITTER0_NOT_A_PACK
#define EMITTER_NOT_FOUND EMITTER0_NOT_FOUND
#define EMITTER_NO_ALTERNATIVE EMITTER0_NO_ALTERNATIVE
#define EMITTER_NO_LOADER EMITTER0_NO_LOADER
#define EMITTER_OK EMITTER0_OK
#define EMITTER_SCHEMA EMITTER0_SCHEMA
#define EMITTER_SCHEMA_VERSION EMITTER0_SCHEMA_VERSION
#define EMITTER_SIDECAR EMITTER0_SIDECAR
#define EMITTER_TRUNCATED EMITTER0_TRUNCATED
#define EMITTER_VERSION EMITTER0_VERSION
#define emitter_alternative emitter0_alternative
#define emitter_at emitter0_at
#define emitter_check emitter0_check
#define emitter_check_tensor emitter0_check_tensor
#define emitter_count emitter0_count
#define emitter_crc32c emitter0_crc32c
#define emitter_dltensor emitter0_dltensor
#define emitter_dltensor_of emitter0_dltensor_of
#define emitter_dtype_code emitter0_dtype_code
#define emitter_dtype_name emitter0_dtype_name
#define emitter_entry emitter0_entry
#define emitter_fact emitter0_fact
#define emitter_find emitter0_find
#define emitter_find_length emitter0_find_length
#define emitter_function emitter0_function
#define emitter_function_argument emitter0_function_argument
#define emitter_function_arguments emitter0_function_arguments
#define emitter_function_find emitter0_function_find
#define emitter_library emitter0_library
#define emitter_library_close emitter0_library_close
#define emitter_library_open emitter0_library_open
#define emitter_library_pack emitter0_library_pack
#define emitter_metadata_at emitter0_metadata_at
#define emitter_metadata_count emitter0_metadata_count
#define emitter_metadata_find emitter0_metadata_find
#define emitter_model_version emitter0_model_version
#define emitter_module emitter0_module
#define emitter_module_alternative emitter0_module_alternative
#define emitter_module_at emitter0_module_at
#define emitter_module_count emitter0_module_count
#define emitter_module_find emitter0_module_find
#define emitter_module_function emitter0_module_function
#define emitter_module_import emitter0_module_import
#define emitter_module_loader emitter0_module_loader
#define emitter_module_metadata emitter0_module_metadata
#define emitter_module_select emitter0_module_select
#define emitter_module_slot emitter0_module_slot
#define emitter_module_source emitter0_module_source
#define emitter_modules emitter0_modules
#define emitter_modules_build emitter0_modules_build
#define emitter_modules_build_all emitter0_modules_build_all
#define emitter_modules_destroy emitter0_modules_destroy
#define emitter_modules_explain emitter0_modules_explain
#define emitter_open emitter0_open
#define emitter_open_expect emitter0_open_expect
#define emitter_reader emitter0_reader
#define emitter_source_import emitter0_source_import
#define emitter_status emitter0_status
#define emitter_status_string emitter0_status_string
#define emitter_tensor emitter0_tensor
#define emitter_to_dlpack emitter0_to_dlpack
#define emitter_validate emitter0_validate
/* end of generated: names */
#endif

/* ---- C++: typed views. Errors are values; nothing throws. ---- */

#ifdef __cplusplus

namespace emitter0 {

/* Elements that C++ has no type for, as they are stored. Boolean bytes are kept as bytes, for only 0 and 1 may be read as a bool. */
struct half { uint16_t bits; };
struct bfloat16 { uint16_t bits; };
struct float8_e3m4 { uint8_t bits; };
struct float8_e4m3 { uint8_t bits; };
struct float8_e4m3b11fnuz { uint8_t bits; };
struct float8_e4m3fn { uint8_t bits; };
struct float8_e4m3fnuz { uint8_t bits; };
struct float8_e5m2 { uint8_t bits; };
struct float8_e5m2fnuz { uint8_t bits; };
struct float8_e8m0fnu { uint8_t bits; };
struct complex64 { float real, imag; };
struct complex128 { double real, imag; };
struct boolean {
    uint8_t byte;
    explicit operator bool() const noexcept { return byte != 0; }
};

/* Packed elements: views of them have no pointers to elements, but get(i). */
struct int2 {};
struct int4 {};
struct uint1 {};
struct uint2 {};
struct uint4 {};
struct float4_e2m1fn {};
struct float6_e2m3fn {};
struct float6_e3m2fn {};

/* The DLPack type of T. */
template <unsigned Code, unsigned Bits, bool Packed> struct element_of {
    static constexpr unsigned code = Code;
    static constexpr unsigned bits = Bits;
    static constexpr bool packed = Packed;
};
template <class T> struct element {
    static_assert(sizeof(T) == 0, "emitter::tensor<T>: T is no element type of a pack");
};
template <> struct element<float> : element_of<EMITTER0_DTYPE_FLOAT, 32, false> {};
template <> struct element<double> : element_of<EMITTER0_DTYPE_FLOAT, 64, false> {};
template <> struct element<signed char> : element_of<EMITTER0_DTYPE_INT, 8 * sizeof(signed char), false> {};
template <> struct element<short> : element_of<EMITTER0_DTYPE_INT, 8 * sizeof(short), false> {};
template <> struct element<int> : element_of<EMITTER0_DTYPE_INT, 8 * sizeof(int), false> {};
template <> struct element<long> : element_of<EMITTER0_DTYPE_INT, 8 * sizeof(long), false> {};
template <> struct element<long long> : element_of<EMITTER0_DTYPE_INT, 8 * sizeof(long long), false> {};
template <> struct element<unsigned char> : element_of<EMITTER0_DTYPE_UINT, 8 * sizeof(unsigned char), false> {};
template <> struct element<unsigned short> : element_of<EMITTER0_DTYPE_UINT, 8 * sizeof(unsigned short), false> {};
template <> struct element<unsigned> : element_of<EMITTER0_DTYPE_UINT, 8 * sizeof(unsigned), false> {};
template <> struct element<unsigned long> : element_of<EMITTER0_DTYPE_UINT, 8 * sizeof(unsigned long), false> {};
template <> struct element<unsigned long long> : element_of<EMITTER0_DTYPE_UINT, 8 * sizeof(unsigned long long), false> {};
template <> struct element<half> : element_of<EMITTER0_DTYPE_FLOAT, 16, false> {};
template <> struct element<bfloat16> : element_of<EMITTER0_DTYPE_BFLOAT, 16, false> {};
template <> struct element<complex64> : element_of<EMITTER0_DTYPE_COMPLEX, 64, false> {};
template <> struct element<complex128> : element_of<EMITTER0_DTYPE_COMPLEX, 128, false> {};
template <> struct element<boolean> : element_of<EMITTER0_DTYPE_BOOL, 8, false> {};
template <> struct element<float8_e3m4> : element_of<EMITTER0_DTYPE_FLOAT8_E3M4, 8, false> {};
template <> struct element<float8_e4m3> : element_of<EMITTER0_DTYPE_FLOAT8_E4M3, 8, false> {};
template <> struct element<float8_e4m3b11fnuz> : element_of<EMITTER0_DTYPE_FLOAT8_E4M3B11FNUZ, 8, false> {};
template <> struct element<float8_e4m3fn> : element_of<EMITTER0_DTYPE_FLOAT8_E4M3FN, 8, false> {};
template <> struct element<float8_e4m3fnuz> : element_of<EMITTER0_DTYPE_FLOAT8_E4M3FNUZ, 8, false> {};
template <> struct element<float8_e5m2> : element_of<EMITTER0_DTYPE_FLOAT8_E5M2, 8, false> {};
template <> struct element<float8_e5m2fnuz> : element_of<EMITTER0_DTYPE_FLOAT8_E5M2FNUZ, 8, false> {};
template <> struct element<float8_e8m0fnu> : element_of<EMITTER0_DTYPE_FLOAT8_E8M0FNU, 8, false> {};
template <> struct element<int2> : element_of<EMITTER0_DTYPE_INT, 2, true> {};
template <> struct element<int4> : element_of<EMITTER0_DTYPE_INT, 4, true> {};
template <> struct element<uint1> : element_of<EMITTER0_DTYPE_UINT, 1, true> {};
template <> struct element<uint2> : element_of<EMITTER0_DTYPE_UINT, 2, true> {};
template <> struct element<uint4> : element_of<EMITTER0_DTYPE_UINT, 4, true> {};
template <> struct element<float4_e2m1fn> : element_of<EMITTER0_DTYPE_FLOAT4_E2M1FN, 4, true> {};
template <> struct element<float6_e2m3fn> : element_of<EMITTER0_DTYPE_FLOAT6_E2M3FN, 6, true> {};
template <> struct element<float6_e3m2fn> : element_of<EMITTER0_DTYPE_FLOAT6_E3M2FN, 6, true> {};

/* What all views have. A view that is not ok() is empty, and its status() says why. */
class view_base {
  public:
    view_base(emitter0_status status, const emitter0_tensor &tensor) noexcept : tensor_(tensor), status_(status), size_(0)
    {
        if (status != EMITTER0_OK)
            return;
        size_ = 1;
        for (int i = 0; i < tensor.ndim; i++)
            if (tensor.shape[i] == 0)
                size_ = 0;
        for (int i = 0; i < tensor.ndim && size_ != 0; i++)
            size_ *= (uint64_t)tensor.shape[i];
    }
    bool ok() const noexcept { return status_ == EMITTER0_OK; }
    explicit operator bool() const noexcept { return ok(); }
    emitter0_status status() const noexcept { return status_; }
    int ndim() const noexcept { return ok() ? tensor_.ndim : 0; }
    int64_t shape(int i) const noexcept { return i >= 0 && i < ndim() ? tensor_.shape[i] : 0; }
    const emitter0_tensor &raw() const noexcept { return tensor_; }

  protected:
    emitter0_tensor tensor_;
    emitter0_status status_;
    uint64_t size_; /* elements */
};

template <class T, bool Packed = element<T>::packed> class view : public view_base {
  public:
    typedef T value_type;
    view(emitter0_status status, const emitter0_tensor &tensor) noexcept : view_base(status, tensor) {}
    const T *data() const noexcept { return ok() ? static_cast<const T *>(tensor_.data) : nullptr; }
    size_t size() const noexcept { return static_cast<size_t>(size_); }
    bool empty() const noexcept { return size_ == 0; }
    const T *begin() const noexcept { return data(); }
    const T *end() const noexcept { return data() + size(); }
    const T &operator[](size_t i) const noexcept { return data()[i]; }
};

template <class T> class view<T, true> : public view_base {
  public:
    view(emitter0_status status, const emitter0_tensor &tensor) noexcept : view_base(status, tensor) {}
    uint64_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    /* Element i (below size()): the number of an integer type, the bits of a floating-point one. */
    int get(uint64_t i) const noexcept
    {
        const unsigned bits = element<T>::bits;
        const uint64_t first = i * bits;
        const unsigned char *byte = static_cast<const unsigned char *>(tensor_.data) + static_cast<size_t>(first / 8);
        const unsigned shift = static_cast<unsigned>(first % 8);
        unsigned value = byte[0];
        if (shift + bits > 8)
            value |= static_cast<unsigned>(byte[1]) << 8;
        value = value >> shift & ((1u << bits) - 1);
        const bool negative = element<T>::code == EMITTER0_DTYPE_INT && (value >> (bits - 1) & 1u) != 0;
        return static_cast<int>(value) - (negative ? 1 << bits : 0);
    }
};

/* The typed view of a tensor that was found; EMITTER_DTYPE if its elements are not T, EMITTER_MISALIGNED if they cannot be read as T
 * where they are. */
template <class T> static inline view<T> tensor(const emitter0_tensor &found) noexcept
{
    emitter0_status status = EMITTER0_OK;
    if (found.data == nullptr)
        status = EMITTER0_NOT_FOUND;
    else if (found.encoding != 0)
        status = EMITTER0_ENCODED;
    else if (found.dtype_code != element<T>::code || found.dtype_bits != element<T>::bits || found.dtype_lanes != 1)
        status = EMITTER0_DTYPE;
    else if (!element<T>::packed && reinterpret_cast<uintptr_t>(found.data) % alignof(T) != 0)
        status = EMITTER0_MISALIGNED;
    return view<T>(status, found);
}

/* Find a tensor by name: emitter::tensor<float>(reader, "conv1.weight"). */
template <class T> static inline view<T> tensor(const emitter0_reader &reader, const char *name) noexcept
{
    emitter0_tensor found;
    const emitter0_status status = emitter0_find(&reader, name, &found);
    return status == EMITTER0_OK ? tensor<T>(found) : view<T>(status, found);
}

} // namespace emitter0

#if EMITTER_INTERFACE == 0
namespace emitter = emitter0;
#endif

#endif /* __cplusplus */

#if defined(__cplusplus) && defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#endif /* EMITTER0_H */

/* ---- DLPack, once dlpack.h has been included ---- */

#if !defined(EMITTER0_DLPACK) && (defined(DLPACK_MAJOR_VERSION) || defined(DLPACK_VERSION))
#define EMITTER0_DLPACK

/* Point a DLTensor at a tensor, which it does not own. The data are read-only: whoever gets it must not write. A block format has no
 * DLPack type: EMITTER_ENCODED. */
static inline emitter0_status emitter0_to_dlpack(const emitter0_tensor *tensor, DLTensor *out)
{
    if (out == NULL)
        return EMITTER0_ARGUMENT;
    out->data = NULL;
    out->device.device_type = (DLDeviceType)0;
    out->device.device_id = 0;
    out->ndim = 0;
    out->dtype.code = 0;
    out->dtype.bits = 0;
    out->dtype.lanes = 0;
    out->shape = NULL;
    out->strides = NULL;
    out->byte_offset = 0;
    if (tensor == NULL || tensor->data == NULL)
        return EMITTER0_ARGUMENT;
    if (tensor->encoding != 0)
        return EMITTER0_ENCODED;
    out->data = tensor->nbytes == 0 ? NULL : (void *)(uintptr_t)tensor->data; /* DLPack: null for a size of zero */
    out->device.device_type = kDLCPU;
    out->ndim = tensor->ndim;
    out->dtype.code = tensor->dtype_code;
    out->dtype.bits = tensor->dtype_bits;
    out->dtype.lanes = tensor->dtype_lanes;
    out->shape = (int64_t *)(uintptr_t)tensor->shape;
    out->strides = (int64_t *)(uintptr_t)tensor->strides;
    return EMITTER0_OK;
}

#endif
