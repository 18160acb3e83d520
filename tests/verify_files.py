"""Files that break one rule of `emitter verify` each, and others that do not: emitted, compiled, and patched.

`ROWS` has one row for each rule. What is patched is found by pyelftools, which shares no code with what is tested.
"""

from __future__ import annotations

import io
import os
import struct
import subprocess
import zipfile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from emitter import Package, emit, targets
from emitter.image.elf import plan_image
from emitter.pack.plan import plan_pack
from tests.c_tools import need
from tests.container_files import coff_object, universal
from tests.elf_images import render
from tests.support import build_pack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Files that were found in the field, or made after such: tests/unit/test_verify_cases.py says what each is.
CASES = Path(__file__).parent / "data" / "cases.zip"

# The fields of the records, in the order of their class: (name, struct code).
_EHDR = ("e_type H", "e_machine H", "e_version I", "e_entry P", "e_phoff P", "e_shoff P", "e_flags I", "e_ehsize H")
_PHDR = {
    64: ("p_type I", "p_flags I", "p_offset Q", "p_vaddr Q", "p_paddr Q", "p_filesz Q", "p_memsz Q", "p_align Q"),
    32: ("p_type I", "p_offset I", "p_vaddr I", "p_paddr I", "p_filesz I", "p_memsz I", "p_flags I", "p_align I"),
}
_SHDR = (
    "sh_name I", "sh_type I", "sh_flags P", "sh_addr P", "sh_offset P", "sh_size P", "sh_link I", "sh_info I",
    "sh_addralign P", "sh_entsize P",
)  # fmt: skip
_SYM = {
    64: ("st_name I", "st_info B", "st_other B", "st_shndx H", "st_value Q", "st_size Q"),
    32: ("st_name I", "st_value I", "st_size I", "st_info B", "st_other B", "st_shndx H"),
}


def kept(name: str) -> bytes:
    """Return a file of tests/data/cases.zip."""
    with zipfile.ZipFile(CASES) as container:
        return container.read(name)


def _put(data: bytearray, elf: ELFFile, at: int, layout: tuple[str, ...], fields: dict[str, int]) -> None:
    left = dict(fields)
    for row in layout:
        name, code = row.split()
        code = ("Q" if elf.elfclass == 64 else "I") if code == "P" else code
        record = struct.Struct(("<" if elf.little_endian else ">") + code)
        if name in left:
            record.pack_into(data, at, left.pop(name))
        at += record.size
    assert not left, left


def _open(data: bytes) -> tuple[bytearray, ELFFile]:
    return bytearray(data), ELFFile(io.BytesIO(data))


def ehdr(data: bytes, **fields: int) -> bytes:
    """Change fields of the file header."""
    out, elf = _open(data)
    _put(out, elf, 16, _EHDR, fields)
    return bytes(out)


def phdr(data: bytes, kind: str, nth: int | None = 0, **fields: int) -> bytes:
    """Change fields of the nth program header of a type, of all for None."""
    out, elf = _open(data)
    numbers = [n for n in range(elf.num_segments()) if elf.get_segment(n)["p_type"] == kind]
    for number in numbers if nth is None else [numbers[nth]]:
        at = elf["e_phoff"] + number * elf["e_phentsize"]
        _put(out, elf, at, _PHDR[elf.elfclass], fields)
    return bytes(out)


def shdr(data: bytes, name: str, **fields: int) -> bytes:
    """Change fields of the section header of the section `name`."""
    out, elf = _open(data)
    number = elf.get_section_index(name)
    assert number is not None, name
    _put(out, elf, elf["e_shoff"] + number * elf["e_shentsize"], _SHDR, fields)
    return bytes(out)


def sym(data: bytes, name: str, table: str = ".dynsym", **fields: int) -> bytes:
    """Change fields of the symbol `name`."""
    out, elf = _open(data)
    section = elf.get_section_by_name(table)
    assert isinstance(section, SymbolTableSection)
    numbers = [n for n in range(section.num_symbols()) if section.get_symbol(n).name == name]
    assert numbers, name
    for number in numbers:
        _put(out, elf, section["sh_offset"] + number * section["sh_entsize"], _SYM[elf.elfclass], fields)
    return bytes(out)


def dyn(data: bytes, tag: str, *, new_tag: int | None = None, value: int | None = None) -> bytes:
    """Change tag or value of every entry `tag` of the dynamic section."""
    out, elf = _open(data)
    section: Any = elf.get_section_by_name(".dynamic")
    word = "Q" if elf.elfclass == 64 else "I"
    size = struct.calcsize(word)
    for number, entry in enumerate(section.iter_tags()):
        if entry.entry.d_tag == tag:
            at = section["sh_offset"] + number * 2 * size
            if new_tag is not None:
                struct.pack_into(f"<{word}", out, at, new_tag)
            if value is not None:
                struct.pack_into(f"<{word}", out, at + size, value)
    return bytes(out)


def value(data: bytes, section: str, field: str) -> int:
    """Return a field of a section header."""
    found: Any = ELFFile(io.BytesIO(data)).get_section_by_name(section)
    return int(found[field])


def tensors() -> Package:
    """Return the package that emitted files hold."""
    package = Package()
    package.add_raw("alpha", bytes(range(200)), alignment=64)
    package.add_raw("beta", b"beta" * 100, alignment=64)
    return package


class Files:
    """Makes files in a folder, each once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, bytes] = {}

    def emitted(self, target: str, suffix: str, **options: Any) -> bytes:
        """Return an emitted file of `tensors`."""
        key = f"{target}-{options}{suffix}"
        if key not in self._made:
            path = self.folder / f"m{suffix}"
            named: dict[str, Any] = {} if suffix == ".pack" else {"name": "m"}
            emit(tensors(), path, target=target, **named, **options)
            self._made[key] = path.read_bytes()
        return self._made[key]

    def run(self, key: str, command: str, files: dict[str, str | bytes], output: str) -> bytes:
        """Return what a shell command makes of files in a folder of their own; skip the test without its tool."""
        if key not in self._made:
            need(command.split(maxsplit=1)[0])
            folder = self.folder / key
            folder.mkdir()
            for name, content in files.items():
                (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
            done = subprocess.run(
                ["bash", "-ec", command], cwd=folder, capture_output=True, text=True, check=False, timeout=120
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            self._made[key] = (folder / output).read_bytes()
        return self._made[key]

    def c(self, key: str, source: str, *arguments: str, compiler: str = "gcc", suffix: str = "c") -> bytes:
        """Return a compiled file."""
        command = f"{compiler} {' '.join(arguments)} x.{suffix} -o out"
        return self.run(key, command, {f"x.{suffix}": source}, "out")

    def lib(self) -> bytes:
        """Return a library of code and data for x86-64."""
        source = "int v = 3; const int c[4] = {1, 2, 3, 4}; int f(void) { return v + c[1]; } int *p = &v;\n"
        return self.c("lib", source, "-O1", "-shared", "-fPIC", "-s", "-Wl,-soname,x.so", "-Wl,-z,relro")

    def asm(self, key: str, source: str, compiler: str = "gcc") -> bytes:
        """Return an assembled object."""
        return self.c(key, source, "-c", compiler=compiler, suffix="s")

    def blob(self) -> bytes:
        """Return what ld -b binary makes."""
        return self.run("blob", "ld -r -b binary blob.bin -o out", {"blob.bin": b"abcdefgh"}, "out")


class Row(NamedTuple):
    """A rule, a file that breaks it and one that does not: (name, bytes). `options` are those of `verify`."""

    rule: str
    bad: Callable[[Files], tuple[str, bytes]]
    good: Callable[[Files], tuple[str, bytes]]
    options: Mapping[str, Any] = MappingProxyType({})
    bad_options: Mapping[str, Any] = MappingProxyType({})


NOTE = '.section .note.GNU-stack,"",@progbits\n'
X86, A64, RV, ARM = "x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu", "armv7-linux-gnueabihf"
X86_T, A64_T, RV_T, ARM_T = ({"target": name} for name in (X86, A64, RV, ARM))
YOCTO = {"profile": "yocto-strict"}


def so(make: Callable[[Files], bytes], name: str = "x.so") -> Callable[[Files], tuple[str, bytes]]:
    """Return a maker of a file of that name."""
    return lambda files: (name, make(files))


def obj(make: Callable[[Files], bytes]) -> Callable[[Files], tuple[str, bytes]]:
    """Return a maker of an object."""
    return so(make, "x.o")


def emitted(target: str, suffix: str = ".so", **options: Any) -> Callable[[Files], tuple[str, bytes]]:
    """Return a maker of an emitted file."""
    return lambda files: (f"m{suffix}", files.emitted(target, suffix, **options))


def patched(target: str, change: Callable[[bytes], bytes], suffix: str = ".so", **options: Any) -> Any:
    """Return a maker of an emitted file that was changed."""
    return lambda files: (f"m{suffix}", change(files.emitted(target, suffix, **options)))


def lib(change: Callable[[bytes], bytes] = lambda data: data) -> Callable[[Files], tuple[str, bytes]]:
    """Return a maker of the compiled library, changed."""
    return lambda files: ("x.so", change(files.lib()))


def linked(key: str, *arguments: str, source: str = "int f(void) { return 1; }\n", compiler: str = "gcc") -> Any:
    """Return a maker of a library that is linked with some options."""
    return lambda files: (
        "x.so",
        files.c(key, source, "-shared", "-fPIC", *arguments, "-Wl,-soname,x.so", compiler=compiler),
    )


def program(key: str, *arguments: str, source: str = "int main(void) { return 0; }\n", compiler: str = "gcc") -> Any:
    """Return a maker of a program."""
    return lambda files: ("prog", files.c(key, source, *arguments, compiler=compiler))


def case(name: str) -> Callable[[Files], tuple[str, bytes]]:
    """Return a maker of a kept file."""
    return lambda _: (name.rpartition("/")[2], kept(name))


def plain(name: str, data: bytes) -> Callable[[Files], tuple[str, bytes]]:
    """Return a maker of these bytes."""
    return lambda _: (name, data)


def archive(key: str, command: str, **members: Callable[[Files], bytes]) -> Callable[[Files], tuple[str, bytes]]:
    """Return a maker of an archive of members."""

    def make(files: Files) -> tuple[str, bytes]:
        contents: dict[str, str | bytes] = {f"{name}.o": member(files) for name, member in members.items()}
        return "libx.a", files.run(key, command, contents, "libx.a")

    return make


def _large_archive(index: bytes) -> Callable[[Files], tuple[str, bytes]]:
    """Return a maker of the start of an archive over 4 GiB; what is written is stretched by the test."""
    width = 8 if index == b"/SYM64/" else 4
    header = index.ljust(16) + b"0           0     0     0       %-10d`\n" % width + bytes(width)
    return lambda _: ("sparse:libx.a", b"!<arch>\n" + header)


def zipped(name: str, member: str, content: Callable[[Files], bytes], *, compress: bool = False, at: int = 0) -> Any:
    """Return a maker of a zip file of one member, whose bytes begin at a multiple of `at` where that is asked for."""

    def make(files: Files) -> tuple[str, bytes]:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as container:
            container.writestr("AndroidManifest.xml" if name.endswith("apk") else "x/METADATA", "")
            info = zipfile.ZipInfo(member)
            info.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            start = out.tell() + 30 + len(member)
            # An extra field of an unknown kind, as zipalign writes it.
            padding = -(start + 4) % at if at else 0
            info.extra = struct.pack("<HH", 0xD935, padding) + bytes(padding) if at else b""
            container.writestr(info, content(files))
        return name, out.getvalue()

    return make


def foreign_pack(files: Files) -> tuple[str, bytes]:
    """Return a little-endian library that holds a big-endian pack."""
    del files
    pack = plan_pack(tensors(), "big")
    plan = plan_image(targets.load(X86), pack, name="m", soname="m.so")
    return "m.so", render(plan, pack)


def twice(files: Files) -> tuple[str, bytes]:
    """Return a pack that stores equal bytes twice."""
    del files
    package = Package()
    package.add_raw("one", b"equal" * 50)
    package.add_raw("two", b"equal" * 50)
    return "m.pack", build_pack(package)


def flipped(data: bytes, at: int) -> bytes:
    """Return bytes of which one is another."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def with_program(blob: bytes, alignment: int, suffix: str = ".pack") -> Callable[[Files], tuple[str, bytes]]:
    """Return a maker of a file with a program for a GPU."""

    def make(files: Files) -> tuple[str, bytes]:
        package = Package()
        package.add_raw("a", b"x" * 3, alignment=1)
        package.add_raw("kernel", blob, alignment=alignment)
        path = files.folder / f"k{suffix}"
        emit(package, path, target=X86)
        return path.name, path.read_bytes()

    return make


def own_profile(files: Files, text: str) -> str:
    """Return the path of a profile."""
    path = files.folder / f"p{abs(hash(text))}.toml"
    path.write_text(text)
    return os.fspath(path)


FATBIN = kept("device-code/synthetic.fatbin")
FLOAT = "float f(float x) { return x * 2; }\n"
TIME = "#include <time.h>\ntime_t f(void) { return time(0); }\n"
RANDOM = "long getrandom(void *, long, int); long f(void) { return getrandom(0, 0, 0); }\n"
RPATH = "-Wl,--enable-new-dtags,-rpath,"


MAC, WIN, MINGW = "arm64-apple-macos", "x86_64-windows-msvc", "x86_64-w64-mingw32-gcc"
ADDRESS = ".data\n.globl x\nx: .{} y\n"


def put(data: bytes, at: int, code: str, number: int) -> bytes:
    """Write a little-endian number."""
    out = bytearray(data)
    struct.pack_into(f"<{code}", out, at, number)
    return bytes(out)


def command(data: bytes, wanted: int) -> int:
    """Return where the first load command of a kind begins in a 64-bit Mach-O file."""
    (count,) = struct.unpack_from("<I", data, 16)
    at = 32
    for _ in range(count):
        cmd, size = struct.unpack_from("<2I", data, at)
        if cmd == wanted:
            return at
        at += size
    raise LookupError(wanted)


def cuttable(data: bytes) -> bytes:
    """Clear N_ALT_ENTRY of every symbol of a Mach-O object."""
    symoff, nsyms = struct.unpack_from("<2I", data, command(data, 2) + 8)
    out = bytearray(data)
    for at in range(symoff, symoff + 16 * nsyms, 16):
        (n_desc,) = struct.unpack_from("<H", out, at + 6)
        struct.pack_into("<H", out, at + 6, n_desc & ~0x200)
    return bytes(out)


def mapped(data: bytes) -> bytes:
    """Make N_OSO with a time of the first symbol of a Mach-O file."""
    (symoff,) = struct.unpack_from("<I", data, command(data, 2) + 8)
    return put(put(data, symoff + 4, "B", 0x66), symoff + 8, "Q", 1234567890)


def pe_header(data: bytes) -> int:
    """Return where the PE signature is."""
    return int(struct.unpack_from("<I", data, 60)[0])


def lost_export(data: bytes) -> bytes:
    """Give the first export of a DLL an address outside of it."""
    header = pe_header(data)
    (directory,) = struct.unpack_from("<I", data, header + 24 + 112)
    sections, optional = struct.unpack_from("<H", data, header + 6)[0], struct.unpack_from("<H", data, header + 20)[0]
    rows = [struct.unpack_from("<4I", data, header + 24 + optional + 40 * n + 8) for n in range(sections)]

    def offset(rva: int) -> int:
        return int(next(raw + rva - va for size, va, _, raw in rows if va <= rva < va + size))

    (functions,) = struct.unpack_from("<I", data, offset(directory) + 28)
    return put(data, offset(functions), "I", 0x7FFFF000)


def many_sections(count: int) -> bytes:
    """Return a COFF object of empty sections."""
    return struct.pack("<2H3I2H", 0x8664, count, 0, 0, 0, 0, 0) + count * (b".x".ljust(8, b"\0") + bytes(32))


def with_pdb(files: Files, option: str) -> bytes:
    """Return a DLL that names its PDB."""
    shell = f"lld-link /dll /noentry /debug {option} /out:out x.obj"
    return files.run(f"pdb{len(option)}", shell, {"x.obj": coff_object(b"abcd")}, "out")


def engine(**requires: str) -> Callable[[Files], tuple[str, bytes]]:
    """Return a maker of a pack with a module for TensorRT."""

    def make(files: Files) -> tuple[str, bytes]:
        package = tensors()
        package.add_module("engine", "tensorrt", b"ftrt" + bytes(100), requires=requires, alignment=256)
        path = files.folder / "engine.pack"
        emit(package, path, target=X86)
        return "engine.pack", path.read_bytes()

    return make


SYSROOT = f'sysroot = "/usr/{A64}"\n'


def sysroot_lib(
    key: str, source: str = 'int puts(const char *); int f(void) { return puts("x"); }', options: str = ""
) -> Any:
    """Return a maker of a library for AArch64 that is linked with the C library of the cross compiler."""
    shell = (
        f"{A64}-gcc -shared -fPIC -Wl,-soname,libd.so d.c -o libd.so;"
        f" {A64}-gcc -shared -fPIC x.c {options} -Wl,-soname,x.so -o out"
    )
    sources: dict[str, str | bytes] = {"x.c": source, "d.c": "int d;"}
    return lambda files: ("x.so", files.run(f"sysroot-{key}", shell, sources, "out"))


def libraries(one: str, two: str, *names: str) -> Callable[[Files], tuple[str, bytes]]:
    """Return a maker of a zip file of two libraries with the symbols `names`."""

    def make(files: Files) -> tuple[str, bytes]:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as container:
            for file, name in zip((one, two), names, strict=True):
                path = files.folder / file
                emit(tensors(), path, target=X86, name=name)
                container.writestr(file, path.read_bytes())
        return "x.zip", out.getvalue()

    return make


def textrel(files: Files) -> bytes:
    """Return a library with a relocation in its code."""
    source = f".text\n.globl f\n.type f,@function\nf: .quad g\n.size f,8\n{NOTE}"
    return files.c("textrel", source, "-shared", "-Wl,-z,notext", suffix="s")


def overlap(distance: int) -> str:
    """Return an assembler file of two objects of 8 bytes at a distance."""
    symbols = "".join(f".globl {name}\n.type {name},@object\n.size {name},8\n" for name in "ab")
    return f".data\n{symbols}a: .zero {distance}\nb: .zero 8\n{NOTE}"


def needing(files: Files, soname: str) -> bytes:
    """Return a library that needs another, which has a name or not."""
    command = (
        f"gcc -shared -fPIC {soname} d.c -o libd.so;"
        " gcc -shared -fPIC x.c -Wl,--no-as-needed ./libd.so -Wl,-soname,x.so -o out"
    )
    return files.run(f"needing{len(soname)}", command, {"d.c": "int d;\n", "x.c": "int x;\n"}, "out")


def copying(files: Files, options: str) -> bytes:
    """Return a program that uses 2 MiB of a library."""
    command = f"gcc -shared -fPIC d.c -o libd.so; gcc {options} x.c ./libd.so -o out"
    sources: dict[str, str | bytes] = {
        "d.c": "char big[2 << 20] = {1};\n",
        "x.c": "extern char big[2 << 20]; int main(void) { return big[5]; }\n",
    }
    return files.run(f"copying{len(options)}", command, sources, "out")


ROWS: list[Row] = [
    # structure
    Row("file-malformed", patched(X86, lambda data: data[:-100]), emitted(X86)),
    Row(
        "file-parsers-disagree",
        lib(lambda data: phdr(data, "PT_DYNAMIC", 0, p_filesz=32)),
        lib(),
        {"profile": "second-parser = true\n"},
    ),
    Row("file-no-artefact", lambda _: ("dir/liby.so", b"hello"), lambda files: ("dir/x.so", files.lib())),
    Row("file-size", lib(), lib(), {"max_size": 1 << 30}, {"max_size": 1000}),
    Row("elf-segment-in-file", lib(lambda data: phdr(data, "PT_LOAD", 1, p_filesz=1 << 20, p_memsz=1 << 20)), lib()),
    Row("elf-section-in-file", lib(lambda data: shdr(data, ".comment", sh_size=1 << 30)), lib()),
    Row("elf-header-counts", lib(lambda data: ehdr(data, e_version=2)), lib()),
    Row("elf-type", obj(Files.lib), lib()),
    # identity
    Row("artefact-format", case("macho/macos11.o"), lib(), X86_T),
    Row("profile-format", lib(), lib(), {"profile": "generic-linux"}, {"profile": "windows-x64"}),
    Row("elf-machine", lib(lambda data: ehdr(data, e_machine=183)), lib(), X86_T),
    Row(
        "elf-class",
        obj(lambda files: files.c("x32", "int x;\n", "-mx32", "-c")),
        obj(lambda files: files.c("x64", "int x;\n", "-c")),
        X86_T,
    ),
    Row(
        "elf-byte-order",
        obj(lambda files: files.c("be", "int x;\n", "-mbig-endian", "-c", compiler=f"{A64}-gcc")),
        obj(lambda files: files.c("le", "int x;\n", "-c", compiler=f"{A64}-gcc")),
        A64_T,
    ),
    Row("elf-osabi", lib(lambda data: data[:7] + b"\x09" + data[8:]), lib(), X86_T),
    # calling conventions and instruction sets
    Row("elf-float-abi", patched(RV, lambda data: ehdr(data, e_flags=1)), emitted(RV), RV_T),
    Row(
        "elf-arm-float-arguments",
        obj(lambda files: files.c("softfp", FLOAT, "-c", "-mfloat-abi=softfp", compiler="arm-linux-gnueabihf-gcc")),
        obj(lambda files: files.c("hardfp", FLOAT, "-c", compiler="arm-linux-gnueabihf-gcc")),
        ARM_T,
    ),
    Row(
        "elf-flags-attributes",
        obj(lambda files: ehdr(files.c("imac", "int x;\n", "-c", "-march=rv64imac", "-mabi=lp64", compiler=f"{RV}-gcc"),
                               e_flags=5)),
        obj(lambda files: files.c("rvgc", "int x;\n", "-c", compiler=f"{RV}-gcc")),
    ),
    Row(
        "elf-isa-baseline",
        obj(lambda files: files.c("zba", "int x;\n", "-c", "-march=rv64gc_zba", compiler=f"{RV}-gcc")),
        obj(lambda files: files.c("rvgc", "int x;\n", "-c", compiler=f"{RV}-gcc")),
        RV_T,
    ),
    Row("elf-x86-isa-level", linked("v3", "-Wl,-z,x86-64-v3"), linked("v1"), X86_T),
    Row("elf-attributes", patched(RV, lambda data: data.replace(b"rv64i2p0_f", b"zz64i2p0_f")), emitted(RV)),
    Row(
        "elf-property-machine",
        patched(A64, lambda data: data.replace(b"GNU\0" + struct.pack("<I", 0xC0000000),
                                               b"GNU\0" + struct.pack("<I", 0xC0000002))),
        emitted(A64),
    ),
    # segments
    Row("elf-load-congruent", lib(lambda data: phdr(data, "PT_LOAD", 1, p_vaddr=0x1010)), lib()),
    Row("elf-load-alignment", patched(A64, lambda data: phdr(data, "PT_LOAD", None, p_align=4096)), emitted(A64),
        A64_T),
    Row("elf-load-alignment-mixed", patched(A64, lambda data: phdr(data, "PT_LOAD", 0, p_align=4096)), emitted(A64)),
    Row("elf-alignment-power", lib(lambda data: phdr(data, "PT_NOTE", 0, p_align=3)), lib()),
    Row("elf-relro", lib(lambda data: phdr(data, "PT_GNU_RELRO", 0, p_memsz=0x100)), lib()),
    Row("elf-load-order", lib(lambda data: phdr(data, "PT_LOAD", 1, p_vaddr=0)), lib()),
    Row("elf-segment-writable-code", lib(lambda data: phdr(data, "PT_LOAD", 1, p_flags=7)), lib()),
    Row(
        "elf-dynamic-place",
        lib(lambda data: shdr(data, ".dynamic", sh_offset=value(data, ".dynamic", "sh_offset") + 16)),
        lib(),
    ),
    Row("elf-property-note", patched(X86, lambda data: shdr(data, ".note.gnu.property", sh_addralign=4)), emitted(X86)),
    # stack
    Row("elf-gnu-stack", lib(lambda data: phdr(data, "PT_GNU_STACK", 0, p_type=0)), lib()),
    Row("elf-gnu-stack-executable", lib(lambda data: phdr(data, "PT_GNU_STACK", 0, p_flags=7)), lib()),
    Row(
        "elf-object-gnu-stack",
        obj(lambda files: files.asm("nonote", ".data\n.globl x\nx: .long 1\n")),
        obj(lambda files: files.asm("note", f".data\n.globl x\nx: .long 1\n{NOTE}")),
        X86_T,
    ),
    # dynamic section
    Row("elf-soname", lambda files: ("other.so", files.c("noname", "int x;\n", "-shared", "-fPIC")), lib(), YOCTO),
    Row(
        "elf-soname-path",
        so(lambda files: files.c("pathname", "int x;\n", "-shared", "-fPIC", "-Wl,-soname,a/b.so")),
        lib(),
    ),
    Row("elf-text-relocations", so(textrel), lib()),
    Row("elf-hash-style", linked("gnuhash", "-Wl,--hash-style=gnu"), linked("both", "-Wl,--hash-style=both"),
        {"profile": "android-21"}),
    Row("elf-bind-now", linked("lazy", "-Wl,-z,lazy"), linked("now", "-Wl,-z,now"), YOCTO),
    Row("elf-relro-missing", linked("norelro", "-Wl,-z,norelro"), linked("relro", "-Wl,-z,relro"), YOCTO),
    Row(
        "elf-data-library-code",
        lambda files: (
            "x.so",
            files.run("ctor", "gcc -shared m.o -o out", {"m.o": files.emitted(X86, ".o", retain=True)}, "out"),
        ),
        emitted(X86),
    ),
    Row(
        "elf-static-tls",
        linked("ie", "-ftls-model=initial-exec", source="extern __thread int t; int f(void) { return t; }\n"),
        linked("gd", source="extern __thread int t; int f(void) { return t; }\n"),
    ),
    Row("elf-copied-data", lambda files: ("prog", copying(files, "-no-pie -fno-pie")),
        lambda files: ("prog", copying(files, "-fPIC -pie"))),
    Row(
        "elf-relocated-read-only",
        so(lambda files: dyn(dyn(textrel(files), "DT_TEXTREL", new_tag=21), "DT_FLAGS", value=0)),
        lib(),
    ),
    # dependencies
    Row("elf-needed-path", so(lambda files: needing(files, "")),
        so(lambda files: needing(files, "-Wl,-soname,libd.so"))),
    Row("elf-needed-library", so(lambda files: needing(files, "-Wl,-soname,libd.so")), lib(),
        {"profile": "manylinux_2_17"}),
    Row("elf-run-path", linked("home", f"{RPATH}/home/me/lib"), linked("origin", f"{RPATH}'$ORIGIN/lib'")),
    Row("elf-run-path-present", linked("opt", f"{RPATH}/opt/x"), linked("origin", f"{RPATH}'$ORIGIN/lib'"), YOCTO),
    Row("elf-run-path-redundant", linked("usrlib", f"{RPATH}/usr/lib"), linked("opt", f"{RPATH}/opt/x")),
    Row(
        "elf-symbol-version",
        linked("new", source=RANDOM),
        linked("old", source="void *malloc(unsigned long); void *f(void) { return malloc(1); }\n"),
        {"target": f"{X86}.2.17"},
    ),
    Row(
        "elf-time32",
        linked("time32", source=TIME, compiler="i686-linux-gnu-gcc"),
        linked("time64", "-D_TIME_BITS=64", "-D_FILE_OFFSET_BITS=64", source=TIME, compiler="i686-linux-gnu-gcc"),
        YOCTO,
    ),
    Row("elf-needed-missing", sysroot_lib("needsd", "int x;", "-Wl,--no-as-needed ./libd.so"), sysroot_lib("plain"),
        {"profile": SYSROOT}),
    Row("elf-needed-unused", sysroot_lib("unused", "int x;", "-Wl,--no-as-needed -lm"), sysroot_lib("plain"),
        {"profile": SYSROOT}),
    Row("elf-undefined-symbol", sysroot_lib("undef", "int nobody(void); int f(void) { return nobody(); }"),
        sysroot_lib("plain"), {"profile": SYSROOT}),
    # symbols
    *(Row(name, obj(Files.blob), emitted(X86, ".o"))
      for name in ("elf-data-symbol", "elf-data-alignment", "elf-data-writable", "elf-absolute-symbol")),
    Row("elf-symbol-range", patched(X86, lambda data: sym(data, "m", st_size=1 << 40)), emitted(X86)),
    Row(
        "elf-large-data",
        patched(X86, lambda data: shdr(data, ".lrodata.m", sh_flags=2), ".o", large_data="always"),
        emitted(X86, ".o", large_data="always"),
    ),
    Row(
        "elf-symbol-name",
        obj(lambda files: files.asm("minus", f'.data\n.globl "a-b"\n.type "a-b",@object\n"a-b": .long 1\n{NOTE}')),
        obj(lambda files: files.asm("plain", f".data\n.globl ab\n.type ab,@object\nab: .long 1\n{NOTE}")),
    ),
    Row("elf-symbol-section", patched(X86, lambda data: sym(data, "m", ".symtab", st_shndx=5000), ".o"),
        emitted(X86, ".o")),
    Row("elf-symbol-overlap", obj(lambda files: files.asm("over", overlap(4))),
        obj(lambda files: files.asm("apart", overlap(8)))),
    # packs
    Row("pack-index", patched(X86, lambda data: data.replace(b"\0alpha\0", b"\0alphb\0"), ".pack"),
        emitted(X86, ".pack")),
    Row("pack-checksum", patched(X86, lambda data: flipped(data, data.index(b"betabeta"))), emitted(X86)),
    Row("pack-sidecar", lambda files: ("m.so", files.emitted(X86, ".so", sidecar=True)), emitted(X86)),
    Row("pack-source", patched(X86, lambda data: flipped(data, data.index(b"betabeta"))), emitted(X86),
        {"against": ["alpha=raw:alpha.bin", "beta=raw:beta.bin"]}),
    Row("pack-duplicates", twice, emitted(X86, ".pack")),
    Row("pack-byte-order", foreign_pack, emitted(X86)),
    Row("pack-alignment", patched(X86, lambda data: shdr(data, ".rodata.m", sh_addralign=1), ".o", retain=True),
        emitted(X86, ".o", retain=True)),
    Row("pack-writable", patched(X86, lambda data: shdr(data, ".rodata.m", sh_flags=3), ".o", retain=True),
        emitted(X86, ".o", retain=True)),
    Row("pack-symbol",
        patched(X86, lambda data: sym(sym(data, "emitter_pack", st_size=1), "m", st_size=1)), emitted(X86)),
    Row("pack-symbol-clash", libraries("a.so", "b.so", "m", "m"), libraries("a.so", "b.so", "m", "n")),
    Row("pack-source-missing", emitted(X86), emitted(X86), {"against": ["alpha=raw:alpha.bin", "beta=raw:beta.bin"]},
        {"against": ["alpha=raw:alpha.bin", "gamma=raw:beta.bin"]}),
    # reach
    Row("elf-code-reach", case("reloc-overflow/rv_mold.so"), linked("rvlib", compiler=f"{RV}-gcc")),
    # protections
    Row("elf-branch-protection-lost", case("bti/with.so"), case("bti/without.so")),
    Row(
        "elf-data-properties",
        obj(lambda files: files.asm("adata", f".data\n.globl ab\nab: .long 1\n{NOTE}", f"{A64}-gcc")),
        emitted(A64, ".o"),
        A64_T,
    ),
    Row("elf-branch-protection", case("bti/with.so"), case("bti/without.so"), {"profile": "properties = true\n"}),
    Row("elf-position-independent", program("nopie", "-no-pie"), program("pie", "-pie", "-fPIE"), YOCTO),
    Row("elf-intermediate-code", obj(lambda files: files.c("lto", "int f(void) { return 1; }\n", "-flto", "-c")),
        obj(lambda files: files.c("nolto", "int f(void) { return 1; }\n", "-c"))),
    Row("elf-debug-information", linked("debug", "-g"), linked("stripped", "-s"), YOCTO),
    Row("elf-build-id", linked("noid", "-Wl,--build-id=none"), linked("id", "-Wl,--build-id"), YOCTO),
    # leaks
    Row("build-path", linked("debug", "-g"), linked("mapped", "-g", "-fdebug-prefix-map=$PWD=.")),
    Row("elf-file-symbol", obj(lambda files: files.asm("absfile", f'.file "/src/x/y.c"\n{NOTE}')),
        obj(lambda files: files.asm("relfile", f'.file "y.c"\n{NOTE}'))),
    # archives
    Row("archive-mixed",
        archive("mixed", "ar rcsD libx.a *.o", a=lambda f: f.emitted(X86, ".o"), b=lambda f: f.emitted(A64, ".o")),
        archive("same", "ar rcsD libx.a *.o", a=lambda f: f.emitted(X86, ".o"), b=Files.blob)),
    Row("archive-empty", archive("textar", "ar rcsD libx.a *.o", a=lambda _: b"hello"),
        archive("same", "ar rcsD libx.a *.o", a=lambda f: f.emitted(X86, ".o"), b=Files.blob)),
    Row("archive-member",
        archive("textobj", "ar rcsD libx.a *.o", a=lambda f: f.emitted(X86, ".o"), b=lambda _: b"hello"),
        archive("same", "ar rcsD libx.a *.o", a=lambda f: f.emitted(X86, ".o"), b=Files.blob)),
    Row("archive-index", archive("noindex", "ar rcSD libx.a *.o", a=lambda f: f.emitted(X86, ".o")),
        archive("same", "ar rcsD libx.a *.o", a=lambda f: f.emitted(X86, ".o"), b=Files.blob)),
    Row("archive-large", _large_archive(b"/"), _large_archive(b"/SYM64/")),
    Row("archive-reproducible", archive("times", "ar rcsU libx.a *.o", a=lambda f: f.emitted(X86, ".o")),
        archive("same", "ar rcsD libx.a *.o", a=lambda f: f.emitted(X86, ".o"), b=Files.blob)),
    # Mach-O
    Row("macho-machine", patched(MAC, lambda data: put(data, 4, "I", 0x01000007), ".dylib"), emitted(MAC, ".dylib"),
        {"target": MAC}),
    Row("macho-file-type", patched(MAC, lambda data: put(data, 12, "I", 8), ".dylib"), emitted(MAC, ".dylib")),
    Row("macho-universal",
        lambda files: ("u.dylib", universal([(0x0100000C, files.emitted(MAC, ".dylib"))] * 2)),
        lambda files: ("u.dylib", universal([(0x0100000C, files.emitted(MAC, ".dylib")),
                                             (0x01000007, files.emitted("x86_64-apple-macos", ".dylib"))]))),
    Row("macho-build-version", case("macho/noversion.o"), case("macho/macos11.o"), {"target": MAC}),
    Row("macho-signature-missing", patched(MAC, lambda data: put(data, command(data, 0x1D), "I", 0x2E), ".dylib"),
        emitted(MAC, ".dylib")),
    Row("macho-signature", case("macho-dylib/lld_arm64_edited.dylib"), case("macho-dylib/lld_arm64.dylib")),
    Row("macho-segments", patched(MAC, lambda data: put(data, command(data, 0x19) + 24, "Q", 4096), ".dylib"),
        emitted(MAC, ".dylib")),
    Row("macho-segment-writable-code", patched(MAC, lambda data: put(data, command(data, 0x19) + 60, "I", 7), ".dylib"),
        emitted(MAC, ".dylib")),
    Row("macho-section-place", patched(MAC, lambda data: put(data, command(data, 0x19) + 72 + 48, "I", 8), ".o"),
        emitted(MAC, ".o")),
    Row("macho-install-name", patched(MAC, lambda data: data.replace(b"@rpath/", b"/home//"), ".dylib"),
        emitted(MAC, ".dylib")),
    Row("macho-exports", patched(MAC, lambda data: put(data, command(data, 0x80000022), "I", 0x2E), ".dylib"),
        emitted(MAC, ".dylib")),
    Row("macho-section-alignment", patched(MAC, lambda data: put(data, command(data, 0x19) + 72 + 52, "I", 20), ".o"),
        emitted(MAC, ".o")),
    Row("macho-interior-symbol", patched(MAC, cuttable, ".o", retain=True, tensor_symbols=True),
        emitted(MAC, ".o", retain=True, tensor_symbols=True)),
    Row("macho-debug-map", patched(MAC, mapped, ".dylib"), emitted(MAC, ".dylib")),
    Row("macho-uuid", patched(MAC, lambda data: put(data, command(data, 0x1B), "I", 0x2A), ".dylib"),
        emitted(MAC, ".dylib")),
    # PE and COFF
    Row("pe-machine", patched(WIN, lambda data: put(data, pe_header(data) + 4, "H", 0xAA64), ".dll"),
        emitted(WIN, ".dll"), {"target": WIN}),
    Row("pe-protections", patched(WIN, lambda data: put(data, pe_header(data) + 24 + 70, "H", 0), ".dll"),
        emitted(WIN, ".dll")),
    Row("pe-relocations-stripped", patched(WIN, lambda data: put(data, pe_header(data) + 22, "H", 0x2023), ".dll"),
        emitted(WIN, ".dll")),
    Row("pe-section-writable-code",
        patched(WIN, lambda data: put(data, pe_header(data) + 24 + 240 + 36, "I", 0xE0000040), ".dll"),
        emitted(WIN, ".dll")),
    Row("pe-layout", patched(WIN, lambda data: put(data, pe_header(data) + 24 + 56, "I", 4096), ".dll"),
        emitted(WIN, ".dll")),
    Row("pe-section-count", lambda _: ("x.obj", many_sections(65300)), lambda _: ("x.obj", many_sections(65000))),
    Row("pe-section-name",
        lambda files: (
            "x.dll",
            files.run("windebug", f"{MINGW} -shared -g x.c -o out.dll", {"x.c": "int x;\n"}, "out.dll"),
        ),
        emitted(WIN, ".dll")),
    Row("pe-section-alignment", lambda _: ("x.obj", coff_object(b"abcd", flags=0x40F00040)), emitted(WIN, ".obj")),
    Row("pe-exports", patched(WIN, lost_export, ".dll"), emitted(WIN, ".dll")),
    Row("pe-time-stamp", case("coff/dllexport.dll"), case("coff/dllexport_brepro.dll")),
    Row("pe-pdb-path", lambda files: ("x.dll", with_pdb(files, "")),
        lambda files: ("x.dll", with_pdb(files, "/pdbaltpath:x.pdb"))),
    Row("pe-address32", lambda files: ("x.obj", files.asm("addr32", ADDRESS.format("long"), MINGW)),
        lambda files: ("x.obj", files.asm("addr64", ADDRESS.format("quad"), MINGW))),
    # device code
    Row("device-ptx", case("device-code/noop_bom.ptx"), case("device-code/noop.ptx")),
    Row("device-program", plain("x.plan", b"ftrt" + bytes(60)), plain("x.plan", b"ftrt" + bytes(range(60)))),
    Row("device-fatbin", case("device-code/trunc.fatbin"), case("device-code/synthetic.fatbin")),
    Row("device-architecture", case("device-code/synthetic.fatbin"), case("device-code/synthetic.fatbin"),
        {"profile": "cuda-architectures = [52, 87]\n"}, {"profile": "cuda-architectures = [37]\n"}),
    Row("device-cubin", lib(lambda data: ehdr(data, e_machine=190)),
        lib(lambda data: ehdr(data, e_machine=190, e_flags=87))),
    Row("device-alignment", with_program(FATBIN, 4), with_program(FATBIN, 8)),
    Row("device-engine-requirements", engine(sm="87"), engine(sm="87", tensorrt=">= 10.3, < 11")),
    Row("device-section", with_program(FATBIN, 8, ".so"), emitted(X86)),
    # packages
    Row("android-abi-folder", zipped("x.apk", "lib/arm64-v8a/libx.so", Files.lib),
        zipped("x.apk", "lib/x86_64/libx.so", Files.lib)),
    Row("apk-library-stored", zipped("x.apk", "lib/x86_64/libx.so", Files.lib, compress=True),
        zipped("x.apk", "lib/x86_64/libx.so", Files.lib)),
    Row("apk-library-aligned", zipped("x.apk", "lib/x86_64/libx.so", Files.lib, at=4096 + 4),
        zipped("x.apk", "lib/x86_64/libx.so", Files.lib, at=16384)),
    Row("wheel-platform", zipped("x-1-cp311-cp311-linux_aarch64.whl", "x/libx.so", Files.lib),
        zipped("x-1-cp311-cp311-linux_x86_64.whl", "x/libx.so", Files.lib)),
    Row("wheel-glibc",
        zipped("x-1-py3-none-manylinux_2_17_x86_64.whl", "x/libx.so",
               lambda f: linked("new", source=RANDOM)(f)[1]),
        zipped("x-1-py3-none-manylinux_2_28_x86_64.whl", "x/libx.so",
               lambda f: linked("new", source=RANDOM)(f)[1])),
    Row("wheel-musl", zipped("x-1-py3-none-musllinux_1_2_x86_64.whl", "x/libx.so",
                             lambda f: program("pie", "-pie", "-fPIE")(f)[1]),
        zipped("x-1-py3-none-manylinux_2_34_x86_64.whl", "x/libx.so",
               lambda f: program("pie", "-pie", "-fPIE")(f)[1])),
]  # fmt: skip


def place(files: Files, made: tuple[str, bytes], folder: Path) -> Path:
    """Write a made file, and return what is verified: the file, or the folder of one that lies in a folder."""
    name, content = made
    del files
    if name.startswith("sparse:"):
        path = folder / name.removeprefix("sparse:")
        path.write_bytes(content)
        # One member of 4 GiB, then a small one behind it.
        with path.open("r+b") as file:
            file.seek(0, os.SEEK_END)
            size = 1 << 32
            file.write(b"big/            0           0     0     644     " + str(size).encode().ljust(10) + b"`\n")
            file.seek(size, os.SEEK_CUR)
            file.write(b"small/          0           0     0     644     4         `\nabcd")
        return path
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path.parent if name.startswith("dir/") else path


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Return the maker of files, which makes each once a session."""
    return Files(tmp_path_factory.mktemp("verify"))
