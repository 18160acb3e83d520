"""What bionic's loader and Android's package tools demand of a library, judged by pyelftools and GNU readelf.

The rules are those of bionic's linker_phdr.cpp and linker.cpp, its document "Android linker changes for NDK
developers", and Android's check of ELF alignment; the numbers are the API levels that began to enforce them. There is
no Android here: glibc's loader opens the libraries of three CPUs with pages of 4 and 16 KiB, and clang and lld link
objects and libraries as the NDK does.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from elftools.elf.elffile import ELFFile

from tests.c_tools import need
from tests.run.device import emit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.run.device import Completed, Device, Model

PF_X, PF_W = 1, 2


class Android(NamedTuple):
    """An Android target: the name that is typed, e_machine, and what readelf says of e_flags."""

    name: str
    e_machine: str
    wide: bool
    flags: str


ANDROID = (
    Android("aarch64-linux-android24", "EM_AARCH64", True, "0x0"),
    Android("x86_64-linux-android24", "EM_X86_64", True, "0x0"),
    Android("riscv64-linux-android35", "EM_RISCV", True, "0x5, RVC, double-float ABI"),
    Android("armv7a-linux-androideabi21", "EM_ARM", False, "0x5000200, Version5 EABI, soft-float ABI"),
)

every_android = pytest.mark.parametrize("android", ANDROID, ids=lambda android: android.name)


@pytest.fixture(scope="module")
def library(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Android], Path]:
    """Return a function that emits the library of a target once."""
    folder = tmp_path_factory.mktemp("android")

    def emitted(android: Android) -> Path:
        path = folder / android.name / "libfirst.so"
        if not path.exists():
            path.parent.mkdir()
            emit("--target", android.name, model.path, "-o", path, "--header", path.parent / "first.h")
        return path

    return emitted


class Parsed:
    """A library as pyelftools reads it."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        with path.open("rb") as file:
            elf = ELFFile(file)
            self.header: Any = elf.header
            self.elfclass = elf.elfclass
            self.segments: list[Any] = [dict(segment.header) for segment in elf.iter_segments()]
            self.sections: list[Any] = [(section.name, dict(section.header)) for section in elf.iter_sections()]
            dynamic: Any = elf.get_section_by_name(".dynamic")
            self.tags: list[tuple[str, Any]] = [
                (tag.entry.d_tag, getattr(tag, "soname", tag.entry.d_val)) for tag in dynamic.iter_tags()
            ]

    def loads(self) -> list[Any]:
        return [segment for segment in self.segments if segment["p_type"] == "PT_LOAD"]

    def only(self, p_type: str) -> Any:
        [segment] = [segment for segment in self.segments if segment["p_type"] == p_type]
        return segment


@every_android
def test_file_header(android: Android, library: Callable[[Android], Path]) -> None:
    """ElfReader::VerifyElfHeader; the size of section headers and e_shstrndx since 26."""
    found = Parsed(library(android))
    header = found.header
    assert (header["e_type"], header["e_machine"], header["e_version"]) == ("ET_DYN", android.e_machine, "EV_CURRENT")
    assert (found.elfclass, header["e_ident"]["EI_DATA"]) == (64 if android.wide else 32, "ELFDATA2LSB")
    assert header["e_shentsize"] == (64 if android.wide else 40)
    assert header["e_phentsize"] == (56 if android.wide else 32)
    assert 0 < header["e_phnum"] <= 65536 // header["e_phentsize"]
    assert 0 < header["e_shstrndx"] < header["e_shnum"]
    assert header["e_shoff"] + header["e_shnum"] * header["e_shentsize"] <= len(found.data)
    need("readelf")
    said = subprocess.run(["readelf", "-hW", library(android)], check=True, capture_output=True, text=True).stdout
    assert re.search(rf"^  Flags: +{re.escape(android.flags)}$", said, re.MULTILINE)


@every_android
def test_segments(android: Android, library: Callable[[Android], Path]) -> None:
    """Aligned for pages of 16 KiB (asked of 64-bit libraries since 35), in the file, none executable (26)."""
    found = Parsed(library(android))
    loads = found.loads()
    assert len(loads) == 2
    for load in loads:
        alignment = load["p_align"]
        assert alignment & (alignment - 1) == 0
        assert alignment >= 16384
        assert load["p_vaddr"] % alignment == load["p_offset"] % alignment
        assert load["p_offset"] + load["p_filesz"] <= len(found.data)
        assert not load["p_flags"] & PF_X
    first, second = loads
    assert (first["p_vaddr"], first["p_offset"]) == (0, 0)  # where the loader looks for the program headers
    # No page of 16 KiB has parts of both, or one of them could not be protected.
    assert (first["p_vaddr"] + first["p_memsz"] + 16383) // 16384 <= second["p_vaddr"] // 16384
    relro = found.only("PT_GNU_RELRO")
    assert (relro["p_vaddr"], relro["p_memsz"]) == (second["p_vaddr"], second["p_memsz"])
    assert (relro["p_vaddr"] + relro["p_memsz"]) % 16384 == 0
    assert found.only("PT_GNU_STACK")["p_flags"] & PF_X == 0


@every_android
def test_dynamic_section(android: Android, library: Callable[[Android], Path]) -> None:
    """ElfReader::ReadDynamicSection (26), soinfo::prelink_image; DT_GNU_HASH is read since 23, DT_HASH always."""
    found = Parsed(library(android))
    [(number, dynamic)] = [(n, header) for n, (name, header) in enumerate(found.sections) if name == ".dynamic"]
    segment = found.only("PT_DYNAMIC")
    assert (segment["p_offset"], segment["p_filesz"]) == (dynamic["sh_offset"], dynamic["sh_size"])
    assert found.sections[dynamic["sh_link"]][1]["sh_type"] == "SHT_STRTAB"
    assert number < found.header["e_shnum"]
    tags = dict(found.tags)
    assert {"DT_HASH", "DT_GNU_HASH", "DT_STRTAB", "DT_STRSZ", "DT_SYMTAB", "DT_SYMENT"} <= tags.keys()
    assert tags["DT_SONAME"] == "libfirst.so"  # the file's name (23)
    # Text relocations (23), dependencies, code that runs at loading, run paths, flags that bionic does not know.
    assert not tags.keys() & {
        "DT_TEXTREL", "DT_NEEDED", "DT_INIT", "DT_INIT_ARRAY", "DT_FINI", "DT_FINI_ARRAY", "DT_RPATH", "DT_RUNPATH",
        "DT_REL", "DT_RELA", "DT_JMPREL", "DT_RELR", "DT_SYMBOLIC", "DT_VERSYM", "DT_VERNEED",
    }  # fmt: skip
    assert tags.get("DT_FLAGS", 0) & ~0x8 == 0  # DF_BIND_NOW
    assert tags.get("DT_FLAGS_1", 0) & ~(0x1 | 0x2 | 0x8 | 0x8000000) == 0  # NOW, GLOBAL, NODELETE, PIE


@every_android
def test_gnu_hash_is_what_bionic_takes(android: Android, library: Callable[[Android], Path]) -> None:
    """Its Bloom filter has a power of two of words, and it has buckets."""
    found = Parsed(library(android))
    [table] = [header for name, header in found.sections if name == ".gnu.hash"]
    nbuckets, _, maskwords, _ = (
        int.from_bytes(found.data[table["sh_offset"] + at :][:4], "little") for at in (0, 4, 8, 12)
    )
    assert nbuckets > 0
    assert maskwords > 0
    assert maskwords & (maskwords - 1) == 0


@every_android
def test_both_hash_tables_find_every_symbol(android: Android, library: Callable[[Android], Path]) -> None:
    """By pyelftools, which follows each table as a loader does."""
    with library(android).open("rb") as file:
        elf: Any = ELFFile(file)
        symbols = elf.get_section_by_name(".dynsym")
        names = [symbol.name for symbol in symbols.iter_symbols() if symbol.name]
        assert {"first", "first_size", "emitter_pack"} <= set(names)
        for table in (".hash", ".gnu.hash"):
            section = elf.get_section_by_name(table)
            assert [section.get_symbol(name).name for name in names] == names


def test_armv7_passes_nothing_in_vfp_registers(library: Callable[[Android], Path]) -> None:
    """The ABI armeabi-v7a: neither the attributes nor the flags may say hard float."""
    need("readelf")
    path = library(ANDROID[3])
    attributes = subprocess.run(["readelf", "-A", path], check=True, capture_output=True, text=True).stdout
    assert "Tag_CPU_arch: v7" in attributes
    assert "VFP" not in attributes
    assert (
        "hard-float" not in subprocess.run(["readelf", "-h", path], check=True, capture_output=True, text=True).stdout
    )


@pytest.mark.parametrize(
    ("android", "host", "page_size"),
    [
        (ANDROID[0], "aarch64-linux-gnu", 4096),
        (ANDROID[0], "aarch64-linux-gnu", 16384),
        (ANDROID[1], "x86_64-linux-gnu", None),
        (ANDROID[2], "riscv64-linux-gnu", None),
    ],
    ids=lambda value: value.name if isinstance(value, Android) else str(value),
)
def test_another_loader_opens_it(
    android: Android,
    host: str,
    page_size: int | None,
    library: Callable[[Android], Path],
    device_for: Callable[[str], Device],
    model: Model,
) -> None:
    """The one of glibc, since nothing in the library is bionic's."""
    device = device_for(host)
    device.prints(model.tensors, device.program("dump.c"), library(android), page_size=page_size)


USER = """
#include HEADER
const void *first_byte(void);
unsigned long long first_count(void);
const void *first_byte(void) { return first_data(); }
unsigned long long first_count(void) { return first_data_size(); }
"""

BASELINE = "int nothing(void); int nothing(void) { return 0; }\n"


def clang(target: str, where: Path, *arguments: str) -> Completed:
    """Run clang as the NDK's wrappers do, without their C library, and lld."""
    need("clang", "ld.lld")
    options = ["-ffreestanding", "-nostdlib", "-shared", "-fPIC", "-fuse-ld=lld", "-Wl,-z,max-page-size=16384"]
    command = ["clang", f"--target={target}", *options, *arguments]
    return subprocess.run(command, check=False, cwd=where, capture_output=True, text=True)


def facts(path: Path) -> tuple[list[str], list[str]]:
    """Return what readelf says of e_flags and the build attributes."""
    said = [
        subprocess.run(["readelf", option, "-W", path], check=True, capture_output=True, text=True).stdout
        for option in ("-h", "-A")
    ]
    flags = [line for line in said[0].splitlines() if "Flags:" in line or "Machine:" in line]
    return flags, [line.strip() for line in said[1].splitlines() if line.strip().startswith("Tag_")]


@every_android
@pytest.mark.parametrize("form", ["first.o", "libfirst.a", "libfirst.so"])
def test_clang_and_lld_link_it(android: Android, form: str, model: Model, tmp_path: Path) -> None:
    """Against a program that uses it by its header; flags and attributes stay those of the program."""
    emit(
        "--target", android.name, model.path, "-o", tmp_path / form, "--name", "first", "--header", tmp_path / "first.h"
    )
    (tmp_path / "user.c").write_text(USER)
    (tmp_path / "baseline.c").write_text(BASELINE)
    target = android.name.replace("android35", "android")  # Debian's clang is older than API level 35
    if clang(target, tmp_path, "baseline.c", "-o", "baseline.so").returncode != 0:
        pytest.skip(f"lld cannot link this target's own programs: {android.name}")
    used = ["-I.", '-DHEADER="first.h"', "user.c", form, "-o", "libuser.so", "-Wl,--no-undefined"]
    done = clang(target, tmp_path, *used)
    assert (done.returncode, done.stderr) == (0, "")
    assert facts(tmp_path / "libuser.so") == facts(tmp_path / "baseline.so")
    with (tmp_path / "libuser.so").open("rb") as file:
        elf: Any = ELFFile(file)
        needed = [
            tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags() if tag.entry.d_tag == "DT_NEEDED"
        ]
        assert needed == (["libfirst.so"] if form.endswith(".so") else [])
        assert all(s["p_align"] >= 16384 for s in elf.iter_segments() if s["p_type"] == "PT_LOAD")
    held = (tmp_path / form).read_bytes()
    pack = held[held.index(b"\x89EMT\r\n\x1a\n") :][:256]
    assert ((tmp_path / "libuser.so").read_bytes().find(pack) >= 0) == (not form.endswith(".so"))
