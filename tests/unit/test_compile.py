"""LLVM in a process of its own: everything that goes wrong there is one error, and what is there already stays."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from elftools.elf.elffile import ELFFile

from emitter import emit, targets
from emitter.code import code_input, producer
from emitter.compile import compile_code, settings_of
from emitter.compile.cache import Cache
from emitter.compile.platform import contradiction, parts
from emitter.compile.signatures import signatures
from emitter.errors import EmitterError, InputError, TargetError
from emitter.llvm import llvm_major
from tests.code_packages import IR, package

if TYPE_CHECKING:
    from collections.abc import Callable

    from emitter.compile import Compiled

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

pytestmark = pytest.mark.usefixtures("code_cache")

# Dear for LLVM: blocks of 20000 steps that depend on one another.
HEAVY = "".join(
    f"define void @g{k}(ptr %p) {{\n"
    + "".join(
        f"%a{i} = load volatile i64, ptr %p\n%b{i} = mul i64 %a{i}, %a{i}\nstore i64 %b{i}, ptr %p\n"
        for i in range(20000)
    )
    + "ret void\n}\n"
    for k in range(4)
)
BITCODE_FOLDER = Path(__file__).parent.parent / "data" / "bitcode"
BITCODE = sorted(BITCODE_FOLDER.glob("llvm-*.bc"))
NEW = [(int(path.stem.removeprefix("new-")), path) for path in sorted(BITCODE_FOLDER.glob("new-*.bc"))]
ARM_ASM = 'define void @g() {\n call void asm sideeffect "dmb ish", ""()\n ret void\n}\n'


def make(tmp_path: Path, *code: str | bytes, target: str = "x86_64-linux-gnu", **options: Any) -> bytes:
    """Emit 12 floats and code as an archive, which needs no linker."""
    output = tmp_path / "libnet.a"
    emit(package(*code), output, target=target, **options)
    return output.read_bytes()


def identified(bitcode: bytes, made: str, epoch: int = 0) -> bytes:
    """Return bitcode with another IDENTIFICATION_BLOCK, as LLVM's `writeIdentificationBlock` writes it."""
    bits = at = 0

    def put(*fields: tuple[int, int]) -> None:
        nonlocal bits, at
        for width, value in fields:
            bits |= value << at
            at += width

    def put_vbr6(*values: int) -> None:
        for value in values:
            rest = value
            while rest > 31:
                put((6, rest & 31 | 32))
                rest >>= 5
            put((6, rest))

    char6 = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
    put((5, 2), (5, 3), (1, 1), (8, 1), (1, 0), (3, 3), (1, 0), (3, 4))  # DEFINE_ABBREV: STRING, an array of char6
    if set(made) <= set(char6):
        put((5, 4))
        put_vbr6(len(made))
        put(*((6, char6.index(character)) for character in made))
    else:
        put((5, 3))  # UNABBREV_RECORD
        put_vbr6(1, len(made), *made.encode())
    put((5, 2), (5, 2), (1, 1), (8, 2), (1, 0), (3, 2), (5, 6))  # DEFINE_ABBREV: EPOCH, in vbr6
    put((5, 5))
    put_vbr6(epoch)
    put((5, 0))  # END_BLOCK
    words = -(-at // 32)
    end = 12 + 4 * int.from_bytes(bitcode[8:12], "little")
    return bitcode[:8] + words.to_bytes(4, "little") + bits.to_bytes(4 * words, "little") + bitcode[end:]


def compiled_of(code: object, say: Callable[[str], None] = lambda _: None) -> Compiled:
    """Compile code for x86-64 Linux as it is compiled without options."""
    target = targets.resolve("x86_64-linux-gnu").target
    settings = settings_of(target, None, None, None, None, None, None, None)
    return compile_code([code_input(code)], target, settings, cache=False, say=say)


@pytest.mark.parametrize(
    ("code", "target", "options", "message"),
    [
        ("define float @f( {\n ret\n}\n", "x86_64-linux-gnu", {}, "LLVM cannot read it.*error: expected type"),
        (b"BC\xc0\xde" + bytes(64), "x86_64-linux-gnu", {},
         r"LLVM cannot read it.*an unknown version; LLVM 22\S* reads it up to its own"),
        (IR.replace("ret float %v", "ret float %x"), "x86_64-linux-gnu", {}, "use of undefined value '%x'"),
        ('target triple = "x86_64-unknown-linux-gnu"\n' + IR, "aarch64-linux-gnu", {},
         "for another platform: expected aarch64-unknown-linux-gnu, found x86_64-unknown-linux-gnu"),
        ('target datalayout = "E-m:e"\n' + IR, "x86_64-linux-gnu", {},
         "another data layout.*expected e-m:e.*found E"),
        (IR + ARM_ASM, "aarch64-linux-gnu", {}, "holds assembly.*dmb ish; assemble"),
        ('module asm "nop"\n' + IR, "riscv64-linux-gnu", {}, "holds assembly.*found nop"),
        (IR + ARM_ASM, "x86_64-linux-gnu", {}, "invalid instruction mnemonic 'dmb'"),
        (IR + 'define i32 @g() {\n %x = call i32 @llvm.read_register.i32(metadata !0)\n ret i32 %x\n}\n'
         'declare i32 @llvm.read_register.i32(metadata)\n!0 = !{!"nosuch"}\n', "aarch64-linux-gnu", {},
         "LLVM gave up on the code.*nosuch"),
        (IR + HEAVY, "x86_64-linux-gnu", {"compile_seconds": 1}, "did not come to an end in time.*at most 1 seconds"),
        (IR + "@big = constant [800000000 x i8] zeroinitializer\n", "x86_64-linux-gnu", {"compile_memory": 400},
         "more memory than it may have.*at most 400 MiB"),
        (IR, "x86_64-linux-gnu", {"compile_memory": 60}, "more memory than it may have.*at most 60 MiB"),
        (IR, "aarch64-linux-gnu", {"cpu": "nosuch"}, "'nosuch' is not a recognized processor"),
        (IR, "x86_64-linux-gnu", {"features": "+nosuch"}, r"'\+nosuch' is not a recognized feature"),
        (IR, "riscv64-linux-gnu", {"features": "-d"}, r"expected \+d among --features"),
        (IR, "riscv64-linux-gnu", {"abi": "lp64"}, "another ABI.*expected lp64d, found lp64"),
    ],
)  # fmt: skip
def test_what_goes_wrong_in_llvm_is_one_error(
    code: str | bytes, target: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    output = tmp_path / "libnet.a"
    output.write_bytes(b"old")
    with pytest.raises(EmitterError, match=message) as caught:
        make(tmp_path, code, target=target, **options)
    assert "\n" not in str(caught.value)
    assert output.read_bytes() == b"old"
    assert {entry.name for entry in tmp_path.iterdir()} <= {"libnet.a", "cache"}


def test_there_is_bitcode_of_every_version_that_is_promised() -> None:
    assert [path.stem for path in BITCODE] == [f"llvm-{version}" for version in range(13, 24)]
    for path in BITCODE:
        assert producer(path.read_bytes()).startswith(f"LLVM{path.stem.removeprefix('llvm-')}.")


@pytest.mark.parametrize("path", BITCODE, ids=[path.stem for path in BITCODE])
def test_bitcode_of_other_versions_is_read(path: Path) -> None:
    compiled = compiled_of(path)
    assert compiled.variables["net_t_w"].size == 48
    assert compiled.signatures == {"at": ["float", "const void *", "int32_t"]}
    symbols: Any = ELFFile(io.BytesIO(compiled.data)).get_section_by_name(".symtab")
    (at,), (weights,) = (symbols.get_symbol_by_name(name) for name in ("at", "net_t_w"))
    assert at.entry.st_info.type == "STT_FUNC"
    assert at.entry.st_size > 32
    assert weights.entry.st_shndx == "SHN_UNDEF"


@pytest.mark.parametrize(("version", "path"), NEW, ids=[path.stem for _, path in NEW])
def test_bitcode_with_what_a_newer_version_brought_names_both_versions(
    version: int, path: Path, tmp_path: Path
) -> None:
    if llvm_major() >= version:
        assert b"at\0" in make(tmp_path, path.read_bytes())
        return
    with pytest.raises(
        InputError, match=rf"cannot read it.*; made by LLVM{version}\.\d\S*; LLVM \d+\.\S* reads it up to its own"
    ):
        make(tmp_path, path.read_bytes())


def test_a_limit_of_the_process_itself_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emitter.compile._own_limit", lambda: 50)
    with pytest.raises(InputError, match=r"at most 50 MiB; allow more with `ulimit -v`"):
        make(tmp_path, IR, compile_memory=60)
    with pytest.raises(InputError, match=r"at most 40 MiB; allow more with --compile-memory"):
        make(tmp_path, IR, compile_memory=40)


def test_bitcode_that_cannot_be_read_names_both_versions(tmp_path: Path) -> None:
    data = bytearray(BITCODE[0].read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(64)
    reads = r"made by LLVM13\.0\.1; LLVM \d\S* reads it up to its own"
    with pytest.raises(InputError, match=rf"LLVM gave up.*Assertion.*{reads}"):
        make(tmp_path, bytes(data))  # LLVM ends the process
    with pytest.raises(InputError, match=rf"cannot read it.*{reads}"):
        make(tmp_path, bytes(data[: middle // 4 * 4]))


def test_bitcode_of_another_epoch_names_both_versions(tmp_path: Path) -> None:
    data = BITCODE[-1].read_bytes()
    edited = identified(data, producer(data), epoch=1)  # no LLVM has written one so far
    with pytest.raises(
        InputError, match=r"Incompatible epoch: Bitcode '1' vs current: '0'; made by LLVM\d\S*; LLVM \d\S* reads it"
    ):
        make(tmp_path, edited)


@pytest.mark.parametrize("made", ["LLVM17.0.6-rust-1.74.0-stable", "APPLE_1_1600.0.26.6_0", "x" * 60, "y-" * 30])
def test_what_made_bitcode_is_named_as_llvm_names_it(made: str, tmp_path: Path) -> None:
    (version, path) = NEW[-1]
    data = identified(path.read_bytes(), made)
    assert producer(data) == made
    if llvm_major() < version:
        with pytest.raises(InputError, match=rf"Producer: '{made}' Reader: 'LLVM.*; made by {made}; LLVM"):
            make(tmp_path, data)


def test_bitcode_in_a_wrapper_is_read(tmp_path: Path) -> None:
    data = BITCODE[0].read_bytes()
    assert identified(data, producer(data)) == data
    wrapper = b"\xde\xc0\x17\x0b" + b"".join(word.to_bytes(4, "little") for word in (0, 20, len(data), 7))
    assert producer(wrapper + data) == "LLVM13.0.1"
    assert b"at\0" in make(tmp_path, wrapper + data)


def test_text_of_a_newer_version_names_both_versions(tmp_path: Path) -> None:
    new = IR.replace("ret float %v", "ret nosuch %v")  # a type of some later version
    with pytest.raises(InputError, match=r"expected type.*; LLVM \d\S* reads it up to its own version"):
        make(tmp_path, new)
    ident = '!llvm.ident = !{!0}\n!0 = !{!"Debian clang version 99.1.0 (3~deb12u1)"}\n'
    with pytest.raises(InputError, match=r"expected type.*; made by clang version 99\.1\.0; LLVM \d\S* reads it"):
        make(tmp_path, new + ident)


def test_features_that_only_the_compiler_of_the_code_knew_are_told() -> None:
    said: list[str] = []
    attribute = ' "target-features"="+sse2,-nosuch"'
    compiled_of(IR.replace("(i64 %i) {", f"(i64 %i){attribute} {{"), said.append)
    assert [line for line in said if "'-nosuch' is not a recognized feature" in line]


def test_two_modules_are_linked_and_may_not_define_the_same(tmp_path: Path) -> None:
    caller = "declare float @at(i64)\ndefine float @first() {\n %v = call float @at(i64 0)\n ret float %v\n}\n"
    assert b"first" in make(tmp_path, IR, caller)
    with pytest.raises(InputError, match=r"cannot link the modules.*at.*multiply defined"):
        make(tmp_path, IR, IR)


def test_assembly_that_is_empty_or_the_hosts_own_compiles(tmp_path: Path) -> None:
    barrier = 'define void @g() {\n call void asm sideeffect "", "~{memory}"()\n ret void\n}\n'
    assert b"\0at\0g\0" in make(tmp_path, IR + barrier, target="aarch64-linux-gnu")  # the index of the archive
    if targets.resolve("native").target.name == "x86_64-linux-gnu":
        pause = b"\xf3\x90"
        assert pause in make(tmp_path, IR + barrier.replace('""', '"pause"'))
        assert pause not in make(tmp_path, IR + barrier)


def test_the_same_code_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make(tmp_path, IR)

    def forbidden(*_arguments: object, **_named: object) -> None:
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", forbidden)
        assert make(tmp_path, IR) == first
        for changed in ({"opt_level": 0}, {"features": "+avx2"}, {"target": "aarch64-linux-gnu"}, {"no_cache": True}):
            with pytest.raises(AssertionError):
                make(tmp_path, IR, **changed)
        with pytest.raises(AssertionError):
            make(tmp_path, IR + "; another byte\n")


@pytest.mark.parametrize("damage", [b"", b"emitter-code/1 00\n{}\n", b"x" * 100])
def test_a_damaged_entry_is_compiled_anew(damage: bytes, tmp_path: Path) -> None:
    first = make(tmp_path, IR)
    (entry,) = (tmp_path / "cache").iterdir()
    kept = entry.read_bytes()
    entry.write_bytes(damage or kept[:-1])
    assert make(tmp_path, IR) == first
    assert entry.read_bytes() == kept


def test_an_entry_under_the_name_of_another_is_not_taken(tmp_path: Path) -> None:
    first = make(tmp_path, IR)
    (entry,) = (tmp_path / "cache").iterdir()
    other = make(tmp_path, IR, opt_level=0)
    (second,) = set((tmp_path / "cache").iterdir()) - {entry}
    kept = entry.read_bytes()
    entry.write_bytes(second.read_bytes())
    assert make(tmp_path, IR) == first != other
    assert entry.read_bytes() == kept


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_no_entry(kind: str, tmp_path: Path) -> None:
    first = make(tmp_path, IR)
    (entry,) = (tmp_path / "cache").iterdir()
    entry.unlink()
    if kind == "folder":
        entry.mkdir()
    else:
        os.mkfifo(entry)
    assert make(tmp_path, IR) == first
    assert list((tmp_path / "cache").iterdir()) == [entry]


def test_a_cache_that_nothing_can_be_written_to_is_no_obstacle(tmp_path: Path) -> None:
    Cache(str(tmp_path / "gone")).put("0", {}, b"object")
    assert not list(tmp_path.iterdir())


def test_a_cache_of_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(EmitterError, match=r"folder that others may write to"):
        make(tmp_path, IR)
    folder.chmod(0o700)
    first = make(tmp_path, IR)
    (entry,) = folder.iterdir()
    entry.chmod(0o666)
    (tmp_path / "other").write_bytes(entry.read_bytes())
    assert make(tmp_path, IR) == first
    assert entry.stat().st_mode & 0o777 == 0o600  # it was not trusted, and is written anew
    entry.unlink()
    entry.symlink_to(tmp_path / "other")
    assert make(tmp_path, IR) == first
    assert not entry.is_symlink()


@pytest.mark.parametrize(
    ("triple", "layout", "target", "contradicts"),
    [
        ("", "", "aarch64-linux-gnu", False),
        ("aarch64-pc-linux-gnu", "", "aarch64-linux-gnu", False),
        ("arm64-linux-gnu", "", "aarch64-linux-gnu", False),
        ("aarch64-unknown-linux-musl", "", "aarch64-linux-gnu", False),
        ("aarch64-unknown-linux-android24", "", "aarch64-linux-gnu", True),
        ("x86_64-apple-macosx10.15.0", "", "x86_64-apple-macos", False),
        ("arm64-apple-macos13", "", "arm64-apple-macos", False),
        ("arm64-apple-ios16.0.0", "", "arm64-apple-macos", True),
        ("x86_64-pc-windows-msvc19.33.0", "", "x86_64-windows-msvc", False),
        ("x86_64-w64-windows-gnu", "", "x86_64-windows-msvc", True),
        ("i686-unknown-linux-gnu", "", "x86_64-linux-gnu", True),
        ("nonsense", "", "x86_64-linux-gnu", True),
        ("", "e", "x86_64-linux-gnu", False),
        ("", "E", "x86_64-linux-gnu", True),
        ("", "e-p:32:32", "x86_64-linux-gnu", True),
        ("", "E-m:e-i1:8:16-i8:8:16-i64:64-f128:64-a:8:16-n32:64", "s390x-linux-gnu", False),
    ],
)
def test_triple_and_data_layout_must_not_contradict_the_target(
    triple: str, layout: str, target: str, contradicts: bool
) -> None:
    one = targets.load(target)
    found = contradiction(triple, layout, {"triple": one.llvm_triple, "data_layout": one.data_layout})
    assert (found is not None) == contradicts


def test_every_target_agrees_with_itself() -> None:
    for one in targets.describe_all():
        target = {"triple": one.llvm_triple, "data_layout": one.data_layout}
        assert contradiction(one.llvm_triple, one.data_layout, target) is None, one.name
        assert parts(one.llvm_triple)[0]


def test_an_abi_needs_its_registers() -> None:
    target = targets.load("riscv64-linux-gnu")
    assert settings_of(target, None, None, "+v", None, None, None, None).features == "+m,+a,+f,+d,+c,+v"
    with pytest.raises(TargetError, match="lp64d"):
        settings_of(target, None, None, "-d", None, None, None, None)
    assert settings_of(target, None, None, "-d,+d", None, None, None, None).level == "2"


DEBUG = """\
define dso_local i32 @f(ptr noundef %0, ptr %1) local_unnamed_addr #0 !dbg !10 {
  ret i32 0, !dbg !20
}
define void @g(ptr sret({ i64, i64, i64 }) %0) {
}
define i1 @h(i1 zeroext %0) {
}
define double @"a.b"(i32, ...) {
}
!4 = !DIBasicType(name: "float", size: 32, encoding: DW_ATE_float)
!5 = !DIDerivedType(tag: DW_TAG_const_type, baseType: !4)
!6 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !5, size: 64)
!7 = !DIBasicType(name: "unsigned int", size: 32, encoding: DW_ATE_unsigned)
!8 = !DIDerivedType(tag: DW_TAG_typedef, name: "count", file: !1, baseType: !7)
!9 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !30, size: 64)
!10 = distinct !DISubprogram(name: "f", scope: !1, file: !1, line: 3, type: !11, unit: !0)
!11 = !DISubroutineType(types: !12)
!12 = !{!8, !6, !9}
!30 = distinct !DICompositeType(tag: DW_TAG_structure_type, name: "s", file: !1, size: 64, elements: !2)
"""


def test_types_of_c_come_from_debug_information_or_from_simple_types() -> None:
    found = signatures(DEBUG, ["f", "g", "h", "a.b", "missing"])
    assert found["f"] == ["uint32_t", "const float *", "void *"]
    assert found["g"] is found["h"] is found["a.b"] is found["missing"] is None
