"""The records of the pack, described once.

A record is a table of fields; its size, its `struct` format, the C declarations in emitter.h and the tables of
docs/pack-format.md all come from here. docs/pack-format.md is the normative text.
"""

from __future__ import annotations

from emitter.records import NamedTuple

__all__ = [
    "ALTERNATIVE",
    "ARGUMENT",
    "AT_LEAST",
    "BYTE_ORDER_MARK",
    "CONDITION",
    "DIMS",
    "DIRECTORY_ENTRY",
    "EQUAL",
    "FUNCTION",
    "HEADER",
    "HEADER_CRC_OFFSET",
    "IMPORT",
    "INCOMPATIBLE_FEATURES",
    "KNOWN_INCOMPATIBLE",
    "MAGIC",
    "MAX_ALIGNMENT",
    "MAX_HEADER_SIZE",
    "MAX_NAME_BYTES",
    "MAX_NDIM",
    "MAX_SCHEMA_VERSION",
    "MAX_TABLES",
    "METADATA",
    "MODULE",
    "MODULE_RECORDS",
    "PAYLOAD",
    "PINNED",
    "RECORDS",
    "SIDECAR",
    "SIDECAR_ALIGNMENT",
    "SIDECAR_FEATURE",
    "SIDECAR_NAME_FORBIDDEN",
    "STRINGS",
    "TENSOR",
    "VERSION_MAJOR",
    "VERSION_MINOR",
    "WITHIN",
    "Feature",
    "Field",
    "Record",
    "is_sidecar_name",
    "is_version",
    "version_key",
]

# As in PNG: a byte above 0x7f, CR LF, ctrl-Z and a lone LF, so that a transfer in text mode breaks the magic.
MAGIC = b"\x89EMT\r\n\x1a\n"
BYTE_ORDER_MARK = 0x01020304
VERSION_MAJOR = 1  # readers take this one and all before it
VERSION_MINOR = 0

# Incompatible feature bits under which a pack is still read from its own bytes: none. Whoever also has the file around
# the pack, and its folder, may follow SIDECAR_FEATURE; every other bit is refused.
KNOWN_INCOMPATIBLE = 0
SIDECAR_FEATURE = 1 << 0

PINNED = 1 << 0  # flag of a sidecar record
SIDECAR_ALIGNMENT = 64 << 10  # file offset of the first payload in a sidecar: page size of the CPUs with large pages
# What leads to another folder, drive or stream on one of the systems that may read the file.
SIDECAR_NAME_FORBIDDEN = "/\\:"

# Bounds on what opening looks at, so that it takes the same time whatever a file says.
MAX_HEADER_SIZE = 1 << 16
MAX_TABLES = 1 << 10

MAX_NAME_BYTES = 65535  # of a name, a key, a kind, the model version, what a condition compares with
MAX_SCHEMA_VERSION = (1 << 32) - 1  # of a module
MAX_NDIM = 64
MAX_ALIGNMENT = 1 << 21  # bytes, of a payload

# How a condition compares.
EQUAL, AT_LEAST, WITHIN = 1, 2, 3

_STRUCT_CODE = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}
_SIZE = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i64": 8}


class Field(NamedTuple):
    """One field. `type` is u8, u16, u32, u64 or i64, in the pack's byte order; `count` > 1 makes it an array."""

    name: str
    type: str
    doc: str
    count: int = 1  # type: ignore[assignment]  # hides tuple.count, which nobody wants of a field

    @property
    def size(self) -> int:
        """Bytes."""
        return _SIZE[self.type] * self.count


class Feature(NamedTuple):
    """An incompatible feature: the number of its bit in `incompatible_features`, from the least significant, 0."""

    bit: int
    name: str
    doc: str


class Record(NamedTuple):
    """A record: fields without gaps, each naturally aligned. `kind` is the number of its table in the directory."""

    name: str
    kind: int
    doc: str
    fields: tuple[Field, ...]

    @property
    def size(self) -> int:
        """Bytes of the record as this version writes it."""
        return sum(field.size for field in self.fields)

    @property
    def struct_format(self) -> str:
        """The format for `struct`, without the byte-order character. Reserved fields are pad bytes: written as zero."""
        return "".join(
            f"{field.size}x"
            if field.name.startswith("reserved")
            else f"{field.size}s"
            if field.type == "u8" and field.count > 1
            else f"{field.count if field.count > 1 else ''}{_STRUCT_CODE[field.type]}"
            for field in self.fields
        )

    def offset(self, name: str) -> int:
        """Byte offset of a field in the record."""
        position = 0
        for field in self.fields:
            if field.name == name:
                return position
            position += field.size
        raise KeyError(name)


HEADER = Record(
    "header",
    0,
    "The first bytes of a pack.",
    (
        Field("magic", "u8", "89 45 4D 54 0D 0A 1A 0A", 8),
        Field("byte_order", "u32", "0x01020304 in the pack's byte order"),
        Field("version_major", "u16", "readers take this one and those before it, and refuse a later one"),
        Field("version_minor", "u16", "informative"),
        Field(
            "header_size",
            "u32",
            f"bytes of this header; a multiple of 8, at most {MAX_HEADER_SIZE}; later versions may append",
        ),
        Field("header_crc32c", "u32", "CRC-32C of the first header_size bytes, with this field taken as zero"),
        Field(
            "total_size", "u64", "bytes of the pack, up to the end of the last payload or, without one, of the index"
        ),
        Field("index_size", "u32", "bytes before the payloads: header, directory and tables; a multiple of 8"),
        Field("index_crc32c", "u32", "CRC-32C of the bytes from header_size up to index_size"),
        Field("compatible_features", "u64", "feature bits that a reader may ignore"),
        Field("incompatible_features", "u64", "feature bits that a reader must know, or refuse the pack"),
        Field("schema_hash", "u64", "see Schema hash"),
        Field("model_version_offset", "u32", "offset of the user's version string in the pack"),
        Field("model_version_length", "u32", f"its bytes, without the NUL; 0 to {MAX_NAME_BYTES}"),
        Field("metadata_first", "u32", "first metadata record of the package"),
        Field("metadata_count", "u32", "metadata records of the package"),
        Field("directory_offset", "u32", "offset of the directory; a multiple of 8"),
        Field("directory_count", "u32", f"directory entries; at most {MAX_TABLES}"),
        Field("directory_record_size", "u32", "bytes of a directory entry; a multiple of 8, at least 16"),
        Field(
            "alignment",
            "u32",
            "the largest alignment of a payload, at least 8: the pack's first byte is aligned to it in memory",
        ),
        Field("reserved", "u8", "zero", 32),
    ),
)

DIRECTORY_ENTRY = Record(
    "table",
    0,
    "One entry of the directory: where a table is. A reader skips kinds that it does not know; a kind occurs once.",
    (
        Field("kind", "u32", "which table"),
        Field("record_size", "u32", "bytes from one record to the next; a later version may append fields"),
        Field("offset", "u32", "offset of the first record in the pack; a multiple of 8"),
        Field("count", "u32", "records"),
    ),
)

PAYLOAD = Record(
    "payload",
    1,
    "A run of bytes after the index. Offsets do not descend, nothing overlaps; equal payloads may be stored once.",
    (
        Field("offset", "u64", "offset in the pack, not below index_size; a multiple of alignment"),
        Field("size", "u64", "bytes"),
        Field("alignment", "u32", f"a power of two, at most {MAX_ALIGNMENT}"),
        Field("crc32c", "u32", "CRC-32C of the bytes"),
    ),
)

TENSOR = Record(
    "tensor",
    2,
    "A named tensor. Sorted by the bytes of the name, ascending; names are unique.",
    (
        Field("name_offset", "u32", "offset of the name in the pack: UTF-8, followed by a NUL"),
        Field("name_length", "u32", f"its bytes, without the NUL; 1 to {MAX_NAME_BYTES}"),
        Field("dtype_code", "u8", "DLDataTypeCode of DLPack"),
        Field("dtype_bits", "u8", "bits of one lane; not 0"),
        Field("dtype_lanes", "u16", "lanes of one element; not 0"),
        Field("encoding", "u16", "0: elements of the dtype; else a block format, see Encodings"),
        Field("ndim", "u16", f"dimensions; 0 to {MAX_NDIM}"),
        Field("payload", "u32", "index of its payload record"),
        Field("shape_offset", "u32", "offset of int64[ndim] in the pack, a multiple of 8; 0 if ndim is 0"),
        Field("strides_offset", "u32", "the same for the strides, in elements"),
        Field("metadata_first", "u32", "first metadata record of the tensor"),
        Field("metadata_count", "u32", "metadata records of the tensor"),
        Field("reserved", "u8", "zero", 4),
    ),
)

METADATA = Record(
    "metadata",
    3,
    "A key and a value: UTF-8, followed by a NUL. Within one owner sorted by the bytes of the key; keys are unique.",
    (
        Field("key_offset", "u32", "offset of the key in the pack"),
        Field("key_length", "u32", f"its bytes, without the NUL; 1 to {MAX_NAME_BYTES}"),
        Field("value_offset", "u32", "offset of the value in the pack"),
        Field("value_length", "u32", "its bytes, without the NUL; 0 or more, as many as fit the index"),
    ),
)

DIMS = Record("dim", 4, "The pool of shapes and strides.", (Field("value", "i64", "an extent or a stride"),))

STRINGS = Record(
    "string", 5, "The pool of strings; a record is one byte.", (Field("byte", "u8", "a byte of UTF-8, or NUL"),)
)

SIDECAR = Record(
    "sidecar",
    6,
    "Where the payloads are: in the pack of another file, in the folder of the file that holds this one. See Sidecar.",
    (
        Field("name_offset", "u32", "offset of the file's name in the pack: UTF-8, followed by a NUL"),
        Field("name_length", "u32", f"its bytes, without the NUL; 1 to {MAX_NAME_BYTES}"),
        Field("flags", "u32", "bit 0: pinned; the others are zero"),
        Field("reserved", "u8", "zero", 4),
        Field("size", "u64", "pinned: bytes of the file; else 0"),
        Field("sha256", "u8", "pinned: SHA-256 of the file; else zero", 32),
    ),
)

MODULE = Record(
    "module",
    7,
    "A module. The first is the root; a module stands before those that it imports, and each but the root is imported.",
    (
        Field("name_offset", "u32", "offset of the name in the pack: UTF-8, followed by a NUL; names are unique"),
        Field("name_length", "u32", f"its bytes, without the NUL; 1 to {MAX_NAME_BYTES}"),
        Field("alternative_first", "u32", "first alternative of the module"),
        Field("alternative_count", "u32", "its alternatives, at least 1, in the order in which they are tried"),
        Field("import_first", "u32", "first import of the module"),
        Field("import_count", "u32", "its imports, in order; none twice"),
        Field("function_first", "u32", "first function of the module"),
        Field("function_count", "u32", "its functions"),
        Field("metadata_first", "u32", "first metadata record of the module"),
        Field("metadata_count", "u32", "metadata records of the module"),
    ),
)

ALTERNATIVE = Record(
    "alternative",
    8,
    "One form of a module. Those of one module stand together, in the order of the modules.",
    (
        Field("kind_offset", "u32", "offset of the kind in the pack: UTF-8, followed by a NUL"),
        Field("kind_length", "u32", f"its bytes, without the NUL; 1 to {MAX_NAME_BYTES}"),
        Field("schema_version", "u32", "version of what the bytes mean, as the kind defines it"),
        Field("payload", "u32", "index of its payload record"),
        Field("condition_first", "u32", "first condition of the alternative"),
        Field("condition_count", "u32", "its conditions: all must hold"),
    ),
)

CONDITION = Record(
    "condition",
    9,
    "What the place of loading must say of a key. In an alternative sorted by the bytes of the key. See Conditions.",
    (
        Field("key_offset", "u32", "offset of the key in the pack: UTF-8, followed by a NUL"),
        Field("key_length", "u32", f"its bytes, without the NUL; 1 to {MAX_NAME_BYTES}"),
        Field("comparison", "u32", f"{EQUAL}: the text; {AT_LEAST}: at least value; {WITHIN}: also below upper"),
        Field("value_offset", "u32", "offset of the value in the pack: UTF-8, followed by a NUL"),
        Field("value_length", "u32", f"its bytes, without the NUL; 1 to {MAX_NAME_BYTES}"),
        Field("upper_offset", "u32", "offset of the upper version in the pack; 0 for the other comparisons"),
        Field("upper_length", "u32", "its bytes, without the NUL; 0 for the other comparisons"),
        Field("reserved", "u8", "zero", 4),
    ),
)

IMPORT = Record(
    "import",
    10,
    "A module that another one imports. Those of one module stand together, in the order of the modules.",
    (
        Field("module", "u32", "index of the imported module, greater than that of the importing one"),
        Field("reserved", "u8", "zero", 4),
    ),
)

FUNCTION = Record(
    "function",
    11,
    "A function of a module. Within one module sorted by the bytes of the name; names are unique in the pack.",
    (
        Field("name_offset", "u32", "offset of the name in the pack: UTF-8, followed by a NUL"),
        Field("name_length", "u32", f"its bytes, without the NUL; 1 to {MAX_NAME_BYTES}"),
        Field("argument_first", "u32", "first argument of the function"),
        Field("argument_count", "u32", "tensors that it takes, in order"),
    ),
)

ARGUMENT = Record(
    "argument",
    12,
    "A tensor that a function takes. Those of one function stand together, in the order of the functions.",
    (
        Field("tensor", "u32", "index of the tensor record"),
        Field("reserved", "u8", "zero", 4),
    ),
)

MODULE_RECORDS = (MODULE, ALTERNATIVE, CONDITION, IMPORT, FUNCTION, ARGUMENT)

RECORDS: tuple[Record, ...] = (
    HEADER, DIRECTORY_ENTRY, PAYLOAD, TENSOR, METADATA, DIMS, STRINGS, SIDECAR, *MODULE_RECORDS,
)  # fmt: skip

INCOMPATIBLE_FEATURES = (Feature(0, "sidecar", "the payloads are in another file: see Sidecar"),)

HEADER_CRC_OFFSET = HEADER.offset("header_crc32c")


def is_version(text: str) -> bool:
    """Whether `text` is a version: decimal numbers joined by dots."""
    return all(part.isascii() and part.isdecimal() for part in text.split("."))


def version_key(text: str) -> tuple[tuple[int, str], ...]:
    """Return what orders versions (`is_version`) by their numbers; zeros at the end make no difference: 10 is 10.0."""
    key = []
    for part in text.split("."):
        digits = part.lstrip("0")
        key.append((len(digits), digits))
    while key and key[-1][0] == 0:
        key.pop()
    return tuple(key)


def is_sidecar_name(name: str) -> bool:
    """Whether `name` is a name in the folder of the file that says it, on every system, and leads nowhere else."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # a file name need not be UTF-8, and the text of a pack is
        return False
    return (
        0 < size <= MAX_NAME_BYTES
        and name not in {".", ".."}
        and not any(character in name for character in (*SIDECAR_NAME_FORBIDDEN, "\0"))
    )
