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
 *   EMITTER_LIBRARY         adds emitter_library_open for POSIX systems with ELF. Include this file before any other, or compile
 *                           with -D_GNU_SOURCE; older C libraries want -ldl. 32-bit programs want -D_FILE_OFFSET_BITS=64, or the
 *                           C library refuses files of 2 GiB and more, or with an inode number of more than 32 bits (EOVERFLOW)
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
#define EMITTER0_VERSION_MAJOR_ 0
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
#define EMITTER0_SIZEOF_HEADER_ 128u
#define EMITTER0_SIZEOF_TABLE_ 16u
#define EMITTER0_SIZEOF_PAYLOAD_ 24u
#define EMITTER0_SIZEOF_TENSOR_ 40u
#define EMITTER0_SIZEOF_METADATA_ 16u
#define EMITTER0_SIZEOF_DIM_ 8u
#define EMITTER0_SIZEOF_STRING_ 1u
#define EMITTER0_SIZEOF_SIDECAR_ 56u

/* The first bytes of a pack. */
struct EMITTER0_MAY_ALIAS_ emitter0_header_record {
    uint8_t magic[8]; /* 89 45 4D 54 0D 0A 1A 0A */
    uint32_t byte_order; /* 0x01020304 in the pack's byte order */
    uint16_t version_major; /* readers refuse another major version */
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
    EMITTER0_VERSION = 5,            /* another major version of the format */
    EMITTER0_FEATURE = 6,            /* needs features that this reader lacks: see unknown_features */
    EMITTER0_MISALIGNED = 7,         /* the pack is not 8-aligned in memory, or the data not aligned for the C++ type */
    EMITTER0_CHECKSUM = 8,           /* the bytes differ from those that were written */
    EMITTER0_MALFORMED = 9,          /* breaks a rule of the format: see where */
    EMITTER0_SCHEMA = 10,            /* tensors of other names, types or shapes than expected */
    EMITTER0_NOT_FOUND = 11,         /* no such name or index */
    EMITTER0_DTYPE = 12,             /* the tensor has another element type */
    EMITTER0_ENCODED = 13,           /* the tensor's bytes are a block format, not elements of its dtype */
    EMITTER0_LIBRARY_ERROR = 14      /* a library was refused: see the message */
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
    emitter0_table_ payload, tensor, metadata, dim, string;
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
    void *handle; /* of dlopen */
    const void *symbol; /* emitter_pack in it */
} emitter0_library;

/* Load a library. A path (it contains a slash) is opened once: that file is checked (a file of another CPU or a truncated one is
 * refused, where dlopen fails without saying why or dies of SIGBUS) and that file is loaded. A bare name is searched for by dlopen,
 * and its pack checked. On failure `message` (of `message_size` bytes, or null) says why. A file that is truncated AFTER it was
 * loaded still kills the process when its pages are read: replace libraries by renaming. */
EMITTER0_FUNCTION_ emitter0_status emitter0_library_open(emitter0_library *library, const char *path_or_soname, char *message,
                                                         size_t message_size);

/* Open the pack of number `index` in a library that holds several, in the order of their notes; EMITTER_NOT_FOUND after the last. */
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
}

/* Whether the records of a table are long enough: exactly as this version has them where they are read as an array. */
static inline int emitter0_record_size_fits_(uint32_t kind, uint32_t size)
{
    static const unsigned char known[6] = {0, EMITTER0_SIZEOF_PAYLOAD_, EMITTER0_SIZEOF_TENSOR_, EMITTER0_SIZEOF_METADATA_,
                                           EMITTER0_SIZEOF_DIM_, EMITTER0_SIZEOF_STRING_};
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
    if (header->version_major != EMITTER0_VERSION_MAJOR_)
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
    reader->unknown_features = header->incompatible_features & ~(uint64_t)EMITTER0_KNOWN_INCOMPATIBLE_;
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

EMITTER0_FUNCTION_ emitter0_status emitter0_open(emitter0_reader *reader, const void *base, size_t size)
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

/* Whether the directory and the tables, where they hold anything, overlap. */
static inline int emitter0_tables_overlap_(const emitter0_reader *reader, const struct emitter0_header_record *header)
{
    const emitter0_table_ *tables[6] = {NULL, &reader->payload, &reader->tensor, &reader->metadata, &reader->dim, &reader->string};
    emitter0_table_ directory;
    unsigned i, j;
    directory.offset = header->directory_offset;
    directory.count = header->directory_count;
    directory.record_size = header->directory_record_size;
    tables[0] = &directory;
    for (i = 0; i < 6; i++)
        for (j = 0; j < 6; j++) /* both are within the index, so the sums are below 2^33 */
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
    case EMITTER0_VERSION: return "the pack has another major version";
    case EMITTER0_FEATURE: return "the pack needs features that this reader lacks";
    case EMITTER0_MISALIGNED: return "the memory is not aligned";
    case EMITTER0_CHECKSUM: return "the bytes differ from those that were written";
    case EMITTER0_MALFORMED: return "the pack breaks a rule of its format";
    case EMITTER0_SCHEMA: return "the tensors have other names, types or shapes than expected";
    case EMITTER0_NOT_FOUND: return "no such name or index";
    case EMITTER0_DTYPE: return "the tensor has another element type";
    case EMITTER0_ENCODED: return "the tensor's bytes are a block format";
    case EMITTER0_LIBRARY_ERROR: return "the library was refused";
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

/* ---- Libraries: POSIX systems with ELF ---- */

#ifdef EMITTER_LIBRARY

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__GLIBC__) && !defined(__USE_GNU)
#error "emitter.h with EMITTER_LIBRARY: include it before any other header, or compile with -D_GNU_SOURCE"
#endif

#ifdef __cplusplus
extern "C" {
#endif

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

static inline emitter0_status emitter0_say_(char *message, size_t message_size, const char *path, const char *text)
{
    if (message != NULL && message_size > 0)
        (void)snprintf(message, message_size, "%s: %s", path, text);
    return EMITTER0_LIBRARY_ERROR;
}

/* Say what dlopen said, with the path that the user knows for the name that dlopen was given. */
static inline emitter0_status emitter0_say_dlopen_(char *message, size_t message_size, const char *path, const char *name)
{
    const char *error = dlerror();
    const char *at = error == NULL ? NULL : strstr(error, name);
    if (at == NULL)
        return emitter0_say_(message, message_size, path, error != NULL ? error : "dlopen failed");
    if (message != NULL && message_size > 0)
        (void)snprintf(message, message_size, "%.*s%s%s", (int)(at - error), error, path, at + strlen(name));
    return EMITTER0_LIBRARY_ERROR;
}

/* pread of exactly `size` bytes. */
static inline int emitter0_read_(int fd, void *to, size_t size, uint64_t offset)
{
    char *at = (char *)to;
    while (size > 0) {
        ssize_t got = pread(fd, at, size, (off_t)offset);
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

/* Refuse a file that dlopen would refuse without saying why, or die of: another CPU's, a truncated one. */
static inline emitter0_status emitter0_library_check_(int fd, uint64_t file_size, const char *path, char *message, size_t message_size)
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

    if (file_size < sizeof header || !emitter0_read_(fd, &header, sizeof header, 0) || memcmp(header.e_ident, magic, 4) != 0)
        return emitter0_say_(message, message_size, path, "not an ELF file, or shorter than its header");
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
        return emitter0_say_(message, message_size, path, text);
    }
    if (header.e_type != ET_DYN)
        return emitter0_say_(message, message_size, path, "not a shared library (e_type is not ET_DYN)");
    if (header.e_phentsize != sizeof(ElfW(Phdr)) || header.e_phnum == 0 || header.e_phnum == 0xffff /* PN_XNUM */
        || header.e_phoff > file_size || (uint64_t)header.e_phnum * sizeof(ElfW(Phdr)) > file_size - header.e_phoff)
        return emitter0_say_(message, message_size, path, "the program headers are not within the file: truncated or damaged");
    for (i = 0; i < header.e_phnum; i++) {
        ElfW(Phdr) segment;
        if (!emitter0_read_(fd, &segment, sizeof segment, (uint64_t)header.e_phoff + (uint64_t)i * sizeof segment))
            return emitter0_say_(message, message_size, path, strerror(errno));
        if (segment.p_filesz == 0)
            continue;
        if (segment.p_offset > file_size || segment.p_filesz > file_size - segment.p_offset) {
            (void)snprintf(text, sizeof text, "truncated: program header %u needs %llu bytes from offset %llu, the file has %llu", i,
                           (unsigned long long)segment.p_filesz, (unsigned long long)segment.p_offset, (unsigned long long)file_size);
            return emitter0_say_(message, message_size, path, text);
        }
        if (segment.p_type == PT_LOAD && segment.p_filesz > segment.p_memsz)
            return emitter0_say_(message, message_size, path, "damaged: p_filesz exceeds p_memsz");
    }
    return EMITTER0_OK;
}

/* A walk over the packs of the loaded library that `symbol` is in. */
typedef struct emitter0_walk_ {
    const unsigned char *symbol;
    uint32_t skip; /* notes to pass over */
    int by_symbol; /* only the pack that begins at symbol */
    const unsigned char *pack; /* the result */
    size_t size;
} emitter0_walk_;

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

static inline emitter0_status emitter0_library_load_(emitter0_library *library, const char *path, char *message, size_t message_size)
{
    char name[14 + 2 * 64 + 16];
    struct stat file, other;
    emitter0_status status;
    Dl_info loaded;
    int by_descriptor, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block */
    if (fd < 0)
        return emitter0_say_(message, message_size, path, strerror(errno));
    status = fstat(fd, &file) != 0      ? emitter0_say_(message, message_size, path, strerror(errno))
           : !S_ISREG(file.st_mode) ? emitter0_say_(message, message_size, path, "not a regular file")
                                        : emitter0_library_check_(fd, (uint64_t)file.st_size, path, message, message_size);
    if (status != EMITTER0_OK) {
        (void)close(fd);
        return status;
    }
    emitter0_library_name_(fd, &file, name, sizeof name);
    by_descriptor = stat(name, &other) == 0 && other.st_dev == file.st_dev && other.st_ino == file.st_ino;
    library->handle = dlopen(by_descriptor ? name : path, RTLD_NOW | RTLD_LOCAL);
    (void)close(fd);
    if (library->handle == NULL)
        return emitter0_say_dlopen_(message, message_size, path, by_descriptor ? name : path);
    library->symbol = dlsym(library->handle, "emitter_pack");
    if (!by_descriptor && library->symbol != NULL
        && (dladdr((void *)(uintptr_t)library->symbol, &loaded) == 0 || stat(loaded.dli_fname, &other) != 0
            || other.st_dev != file.st_dev || other.st_ino != file.st_ino))
        return emitter0_say_(message, message_size, path, "another file was loaded than the one that was checked");
    return EMITTER0_OK;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_library_open(emitter0_library *library, const char *path_or_soname, char *message,
                                                         size_t message_size)
{
    emitter0_walk_ walk = {NULL, 0, 1, NULL, 0};
    emitter0_status status = EMITTER0_OK;
    if (message != NULL && message_size > 0)
        (void)snprintf(message, message_size, "%s",
                       library == NULL || path_or_soname == NULL ? emitter0_status_string(EMITTER0_ARGUMENT) : "");
    if (library == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_reader_(&library->reader);
    library->handle = NULL;
    library->symbol = NULL;
    if (path_or_soname == NULL)
        return EMITTER0_ARGUMENT;
    if (strchr(path_or_soname, '/') != NULL) {
        status = emitter0_library_load_(library, path_or_soname, message, message_size);
    } else {
        library->handle = dlopen(path_or_soname, RTLD_NOW | RTLD_LOCAL);
        if (library->handle == NULL)
            status = emitter0_say_dlopen_(message, message_size, path_or_soname, path_or_soname);
        else
            library->symbol = dlsym(library->handle, "emitter_pack");
    }
    if (status == EMITTER0_OK && library->symbol == NULL)
        status = emitter0_say_(message, message_size, path_or_soname, "holds no pack: it exports no symbol emitter_pack");
    if (status == EMITTER0_OK) {
        walk.symbol = (const unsigned char *)library->symbol;
        (void)dl_iterate_phdr(emitter0_walk_object_, &walk);
        if (walk.pack == NULL)
            status = emitter0_say_(message, message_size, path_or_soname, "holds no .note.emitter that says where its pack is");
    }
    if (status == EMITTER0_OK) {
        status = emitter0_open(&library->reader, walk.pack, walk.size);
        if (status != EMITTER0_OK)
            (void)emitter0_say_(message, message_size, path_or_soname, emitter0_status_string(status));
    }
    if (status != EMITTER0_OK && library->handle != NULL) {
        (void)dlclose(library->handle);
        library->handle = NULL;
        library->symbol = NULL;
    }
    return status;
}

EMITTER0_FUNCTION_ emitter0_status emitter0_library_pack(const emitter0_library *library, uint32_t index, emitter0_reader *reader)
{
    emitter0_walk_ walk = {NULL, index, 0, NULL, 0};
    if (reader == NULL)
        return EMITTER0_ARGUMENT;
    emitter0_clear_reader_(reader);
    if (library == NULL || library->symbol == NULL)
        return EMITTER0_ARGUMENT;
    walk.symbol = (const unsigned char *)library->symbol;
    (void)dl_iterate_phdr(emitter0_walk_object_, &walk);
    return walk.pack == NULL ? EMITTER0_NOT_FOUND : emitter0_open(reader, walk.pack, walk.size);
}

EMITTER0_FUNCTION_ void emitter0_library_close(emitter0_library *library)
{
    if (library == NULL)
        return;
    if (library->handle != NULL)
        (void)dlclose(library->handle);
    emitter0_clear_reader_(&library->reader);
    library->handle = NULL;
    library->symbol = NULL;
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
#define EMITTER_NOT_A_PACK EMITTER0_NOT_A_PACK
#define EMITTER_NOT_FOUND EMITTER0_NOT_FOUND
#define EMITTER_OK EMITTER0_OK
#define EMITTER_SCHEMA EMITTER0_SCHEMA
#define EMITTER_TRUNCATED EMITTER0_TRUNCATED
#define EMITTER_VERSION EMITTER0_VERSION
#define emitter_at emitter0_at
#define emitter_check emitter0_check
#define emitter_check_tensor emitter0_check_tensor
#define emitter_count emitter0_count
#define emitter_crc32c emitter0_crc32c
#define emitter_dtype_code emitter0_dtype_code
#define emitter_dtype_name emitter0_dtype_name
#define emitter_entry emitter0_entry
#define emitter_find emitter0_find
#define emitter_find_length emitter0_find_length
#define emitter_library emitter0_library
#define emitter_library_close emitter0_library_close
#define emitter_library_open emitter0_library_open
#define emitter_library_pack emitter0_library_pack
#define emitter_metadata_at emitter0_metadata_at
#define emitter_metadata_count emitter0_metadata_count
#define emitter_metadata_find emitter0_metadata_find
#define emitter_model_version emitter0_model_version
#define emitter_open emitter0_open
#define emitter_open_expect emitter0_open_expect
#define emitter_reader emitter0_reader
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
