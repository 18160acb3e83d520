"""Code that compilers make by default and that would not work: made to work, refused with what to do, or warned of."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from emitter import Package, emit, targets
from emitter.compile.baseline import beyond
from emitter.compile.constructors import as_arrays, names
from emitter.compile.platform import contradiction
from emitter.errors import EmitterError, InputError, UsageError
from emitter.inspect import open_file
from emitter.inspect.macho import MachOFile
from emitter.link.find import linkers
from tests.c_tools import need
from tests.code_packages import package_of_four

HOST = "x86_64-linux-gnu"
# Constructors of every kind: the order of priorities, one that belongs to a comdat; and a destructor.
STARTED = """
@net_t_w = external constant [4 x float]
@seen = global [4 x i32] zeroinitializer
@count = global i32 0
@llvm.global_ctors = appending global [3 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @last, ptr null }, \
{ i32, ptr, ptr } { i32 101, ptr @first, ptr null }, { i32, ptr, ptr } { i32 65535, ptr @shared, ptr @shared }]
@llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @end, ptr null }]
$shared = comdat any
define internal void @note(i32 %what) {
  %n = load volatile i32, ptr @count
  %at = getelementptr i32, ptr @seen, i32 %n
  store volatile i32 %what, ptr %at
  %more = add i32 %n, 1
  store volatile i32 %more, ptr @count
  ret void
}
define internal void @last() {
  call void @note(i32 2)
  ret void
}
define internal void @first() {
  call void @note(i32 1)
  ret void
}
define linkonce_odr void @shared() comdat {
  call void @note(i32 3)
  ret void
}
define internal void @end() {
  call void @note(i32 4)
  ret void
}
define i32 @seen_at(i32 %i) {
  %at = getelementptr i32, ptr @seen, i32 %i
  %v = load i32, ptr %at
  ret i32 %v
}
"""
PLAIN = "define i32 @one() {\n  ret i32 1\n}\n"


pytestmark = pytest.mark.usefixtures("code_cache")


def built(tmp_path: Path, name: str, *code: str | bytes | Path, target: str = HOST, **options: Any) -> list[str]:
    """Emit, and return the warnings."""
    warnings: list[str] = []
    emit(package_of_four(*code), tmp_path / name, target=target, name="net", warn=warnings.append, **options)
    return warnings


def compiled(tmp_path: Path, source: str, *flags: str, suffix: str = ".c") -> Path:
    """Compile a source to bitcode by clang."""
    need("clang")
    path, output = tmp_path / f"source{suffix}", tmp_path / "source.bc"
    path.write_text(source)
    subprocess.run(["clang", "-O1", "-emit-llvm", "-c", *flags, str(path), "-o", str(output)], check=True)
    return output


def test_constructors_are_called_whatever_links(tmp_path: Path) -> None:
    found = [one.command[0] if "ziglang" not in one.name else "zig" for one in linkers(targets.load(HOST))]
    found += ["mold"] if shutil.which("mold") else []
    assert found
    for number, linker in enumerate(found):
        output = tmp_path / f"libnet{number}.so"
        built(tmp_path, output.name, STARTED, linker=linker)
        library = ctypes.CDLL(str(output))
        assert [library.seen_at(i) for i in range(4)] == [1, 2, 3, 0], linker
        need("readelf")
        shown = subprocess.run(["readelf", "-SdW", str(output)], check=True, capture_output=True, text=True).stdout
        assert "(INIT_ARRAY)" in shown and "(FINI_ARRAY)" in shown and ".ctors" not in shown, linker


@pytest.mark.parametrize("target", [name for name in targets.names() if targets.load(name).object_format == "elf"])
def test_objects_have_the_arrays_that_every_linker_knows(target: str, tmp_path: Path) -> None:
    built(tmp_path, "net.a", STARTED, target=target)
    need("llvm-ar", "readelf")
    subprocess.run(["llvm-ar", "x", "net.a"], cwd=tmp_path, check=True)
    (code,) = tmp_path.glob("*code*.o")
    shown = subprocess.run(["readelf", "-SW", str(code)], check=True, capture_output=True, text=True).stdout
    sections = re.findall(r"\] (\.(?:init|fini)_array\S*) +(\w+)", shown)
    assert sorted(set(sections)) == [
        (".fini_array", "FINI_ARRAY"),
        (".init_array", "INIT_ARRAY"),
        (".init_array.00101", "INIT_ARRAY"),
    ]
    assert ".ctors" not in shown and ".dtors" not in shown


def test_the_lists_become_arrays() -> None:
    assert names(STARTED) == ["@last", "@first", "@shared", "@end"]
    text = as_arrays(STARTED)
    assert "llvm.global" not in text
    assert '@".emitter.init_array.1" = internal global ptr @first, section ".init_array.00101"\n' in text
    assert 'ptr @shared, section ".init_array", comdat($shared)\n' in text
    assert as_arrays(PLAIN) == PLAIN and names(PLAIN) == []


@pytest.mark.parametrize("target", ["arm64-apple-macos", "x86_64-apple-macos"])
def test_constructors_and_destructors_for_apple(target: str, tmp_path: Path) -> None:
    """Dyld calls what is in __mod_init_func; LLVM registers the destructors there."""
    for linker in linkers(targets.load(target)):
        named = "zig" if "ziglang" in linker.name else linker.command[0]
        code = STARTED.replace("$shared = comdat any\n", "").replace(" comdat {", " {")
        built(tmp_path, "libnet.dylib", code, target=target, libs=["c"], linker=named)
        with open_file(str(tmp_path / "libnet.dylib")) as artefact:
            assert isinstance(artefact.reader, MachOFile)
            sizes = {one.sectname: one.size for one in artefact.reader.sections}
            assert sizes.get("__mod_init_func", 0) + sizes.get("__init_offsets", 0) >= 16, linker.name


def test_destructors_of_static_objects_need_the_start_up_code_of_gcc(tmp_path: Path) -> None:
    need("clang++", "gcc")
    source = """
        extern "C" int* mark;
        int* mark;
        struct S { S() {} ~S() { if (mark) *mark = 7; } };
        static S s;
    """
    code = compiled(tmp_path, source, "-fPIC", "-fno-exceptions", suffix=".cpp")
    with pytest.raises(InputError, match=r"__dso_handle.*crtbeginS\.o"):
        built(tmp_path, "libnet.so", code, libs=["c"])
    inputs = []
    for name in ("crtbeginS.o", "crtendS.o"):
        argv = ["gcc", f"-print-file-name={name}"]
        inputs.append(Path(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()))
    built(tmp_path, "libnet.so", inputs[0], code, inputs[1], libs=["c"], export=["mark"])
    library = ctypes.CDLL(str(tmp_path / "libnet.so"))
    marked = ctypes.c_int(0)
    ctypes.c_void_p.in_dll(library, "mark").value = ctypes.addressof(marked)
    ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle))
    assert marked.value == 7


@pytest.mark.parametrize("target", ["x86_64-windows-msvc", "x86_64-windows-gnu"])
def test_a_dll_calls_no_constructors(target: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"constructors, and nothing in a DLL.*@last.*run-time library"):
        built(tmp_path, "net.dll", STARTED, target=target)
    suffix = targets.load(target).object_suffix
    built(tmp_path, f"net{suffix}", STARTED, target=target)  # the C library of a program calls them


def test_old_sections_of_constructors_are_refused_where_linkers_leave_them_out(tmp_path: Path) -> None:
    need("gcc", "ld", "ld.lld")
    source = tmp_path / "old.s"
    source.write_text('.section .ctors,"aw"\n.quad start\n.text\n.globl start\nstart: ret\n')
    subprocess.run(["gcc", "-c", str(source), "-o", str(tmp_path / "old.o")], check=True)
    with pytest.raises(InputError, match=r"constructors in \.ctors, which .*lld leaves out.*GNU ld"):
        built(tmp_path, "libnet.so", tmp_path / "old.o", linker="ld.lld")
    built(tmp_path, "libnet.so", tmp_path / "old.o", linker=str(shutil.which("ld.bfd") or shutil.which("ld")))


@pytest.mark.parametrize("target", ["x86_64-windows-msvc", "x86_64-windows-gnu"])
def test_a_dll_leaves_nothing_undefined(target: str, tmp_path: Path) -> None:
    code = "declare i32 @given()\ndefine i32 @call() {\n  %v = call i32 @given()\n  ret i32 %v\n}\n"
    with pytest.raises(UsageError, match="a DLL leaves nothing to the program"):
        built(tmp_path, "net.dll", code, target=target, allow_undefined=["given"])
    with pytest.raises(InputError, match="given") as caught:
        built(tmp_path, "net.dll", code, target=target)
    assert "--allow-undefined" not in str(caught.value)


def test_an_object_for_link_time_optimisation_holds_no_code(tmp_path: Path) -> None:
    need("gcc")
    (tmp_path / "v.c").write_text("int scale(int x) { return 2 * x; }\n")
    for flags, name in ((["-flto"], "slim.o"), (["-flto", "-ffat-lto-objects"], "fat.o")):
        subprocess.run(["gcc", "-O2", "-fPIC", *flags, "-c", "v.c", "-o", name], cwd=tmp_path, check=True)
    for output in ("libnet.so", "libnet.a"):
        with pytest.raises(InputError, match=r"LTO.*-ffat-lto-objects"):
            built(tmp_path, output, tmp_path / "slim.o")
    built(tmp_path, "libnet.so", tmp_path / "fat.o")
    assert ctypes.CDLL(str(tmp_path / "libnet.so")).scale(21) == 42


@pytest.mark.parametrize(
    ("target", "flags", "wanted"),
    [
        (HOST, ["-mavx2"], r"\+avx, \+avx2, .* \(one\).*not every CPU of x86_64-linux-gnu"),
        ("aarch64-linux-gnu", ["-march=armv8.2-a+dotprod"], r"\+dotprod"),
        ("riscv64-linux-gnu", ["-march=rv64gcv"], r"\+v\b"),
        ("armv7-linux-gnueabihf", ["-mfpu=neon"], r"\+neon"),
        (HOST, [], None),
        ("aarch64-linux-gnu", [], None),
        ("riscv64-linux-gnu", [], None),
        ("armv7-linux-gnueabihf", [], None),
        ("s390x-linux-gnu", [], None),
        ("powerpc64le-linux-gnu", [], None),
        ("arm64-apple-macos", [], None),
    ],
)
def test_code_that_wants_another_cpu_is_told_of(
    target: str, flags: list[str], wanted: str | None, tmp_path: Path
) -> None:
    triple = targets.load(target).llvm_triple
    code = compiled(tmp_path, "int one(void) { return 1; }\n", f"--target={triple}", "-ffreestanding", *flags)
    warnings = built(tmp_path, "net.a", code, target=target)
    assert [one for one in warnings if "not every CPU" in one] == warnings
    assert bool(warnings) == (wanted is not None)
    if wanted is not None:
        assert re.search(wanted, warnings[0])
    # A build with nothing new says it again.
    assert built(tmp_path, "net.a", code, target=target) == warnings


def test_the_attributes_of_riscv_say_what_all_functions_use(tmp_path: Path) -> None:
    need("readelf")
    code = compiled(
        tmp_path, "int one(void) { return 1; }\n", "--target=riscv64-linux-gnu", "-ffreestanding", "-march=rv64gcv"
    )
    built(tmp_path, "net.o", code, target="riscv64-linux-gnu")
    shown = subprocess.run(
        ["readelf", "-A", str(tmp_path / "net.o")], check=True, capture_output=True, text=True
    ).stdout
    assert re.search(r"Tag_RISCV_arch: \"rv64i\S*_v1p0", shown)
    built(tmp_path, "both.a", PLAIN.replace("one", "other"), code, target="riscv64-linux-gnu")
    data = (tmp_path / "both.a").read_bytes()
    assert b"rv64i" in data and not re.search(rb"rv64i\w*_v1p0", data)  # one function is compiled without


@pytest.mark.parametrize(
    ("triple", "cpu", "features", "expected"),
    [
        ("x86_64-unknown-linux-gnu", "x86-64", ["+sse2", "+cx8", "-avx"], []),
        ("x86_64-unknown-linux-gnu", "skylake", ["+avx2", "+nopl"], ["+avx2"]),
        ("i686-unknown-linux-gnu", "", ["+sse2"], ["+sse2"]),
        ("s390x-unknown-linux-gnu", "z196", [], []),
        ("s390x-unknown-linux-gnu", "z14", ["+transactional-execution"], ["z14"]),
        ("thumbv7em-none-unknown-eabihf", "", ["+mve.fp", "+dsp"], ["+mve.fp"]),
        ("powerpc64le-unknown-linux-gnu", "pwr9", ["+power8-vector", "+power9-vector"], ["+power9-vector"]),
        ("arm64-apple-macosx11.0.0", "apple-m1", ["+dotprod"], []),
        ("loongarch64-unknown-linux-gnu", "", ["+lsx", "+lasx"], ["+lasx"]),
    ],
)
def test_what_is_beyond_the_baseline(triple: str, cpu: str, features: list[str], expected: list[str]) -> None:
    assert beyond(triple, cpu, features) == expected


@pytest.mark.parametrize(
    ("target", "triple", "layout"),
    [
        ("riscv64-linux-gnu", "riscv64-unknown-linux-gnu", "e-m:e-p:64:64-i64:64-i128:128-n64-S128"),
        (HOST, "unknown-unknown-unknown", ""),
        (HOST, "", ""),
        ("riscv64gc-none-elf", "riscv64-unknown-unknown-elf", ""),
        ("riscv64gc-none-elf", "riscv64-unknown-elf", ""),
        ("riscv32imac-none-elf", "riscv32-unknown-elf", ""),
        ("riscv32imac-none-elf", "riscv32-none-elf", ""),
        ("thumbv7em-none-eabihf", "thumbv7em-none-eabihf", ""),
        ("thumbv7em-none-eabihf", "thumbv7em-unknown-none-eabihf", ""),
        ("aarch64-none-elf", "aarch64-none-unknown-elf", ""),
    ],
)
def test_names_that_are_no_contradiction(target: str, triple: str, layout: str) -> None:
    one = targets.load(target)
    assert contradiction(triple, layout, {"triple": one.llvm_triple, "data_layout": one.data_layout}) is None


@pytest.mark.parametrize(
    ("target", "triple", "layout"),
    [
        ("riscv64-linux-gnu", "riscv64-unknown-elf", ""),
        ("riscv64gc-none-elf", "riscv32-unknown-elf", ""),
        ("thumbv7em-none-eabihf", "thumbv7em-none-eabi", ""),
        (HOST, "aarch64-unknown-linux-gnu", ""),
        (HOST, "", "e-p:32:32"),
        (HOST, "", "E-n32:64"),
        ("armv7-linux-gnueabihf", "armv7-unknown-linux-eabihf", ""),
    ],
)
def test_names_that_are_a_contradiction(target: str, triple: str, layout: str) -> None:
    one = targets.load(target)
    assert contradiction(triple, layout, {"triple": one.llvm_triple, "data_layout": one.data_layout}) is not None


def test_a_module_of_llvmlite_is_taken_as_it_is(tmp_path: Path) -> None:
    ir: Any = pytest.importorskip("llvmlite.ir", reason="llvmlite is not installed")
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.IntType(32), []), "one")
    ir.IRBuilder(function.append_basic_block()).ret(ir.Constant(ir.IntType(32), 1))
    built(tmp_path, "libnet.so", str(module))
    assert ctypes.CDLL(str(tmp_path / "libnet.so")).one() == 1


def test_what_gcc_calls_on_32_bit_arm_has_a_library(tmp_path: Path) -> None:
    """The advice for each name, followed, gives a library."""
    code = "declare void @given()\ndefine void @call() {\n  call void @given()\n  ret void\n}\n"
    options: dict[str, Any] = {"target": "armv7-linux-gnueabihf", "allow_undefined": ["given"]}
    with pytest.raises(InputError, match=r"__aeabi_unwind_cpp_pr0 \(-l gcc_s\).*add -l gcc_s"):
        built(tmp_path, "libnet.so", code, **options)
    built(tmp_path, "libnet.so", code, libs=["gcc_s"], **options)
    need("readelf")
    shown = subprocess.run(["readelf", "-d", str(tmp_path / "libnet.so")], check=True, capture_output=True, text=True)
    assert "[libgcc_s.so.1]" in shown.stdout


def test_thread_local_variables_and_the_loader(tmp_path: Path) -> None:
    source = "_Thread_local int t = 5; int get(void) { return t++; }\n"
    with pytest.raises(InputError, match="compile it with -fPIC"):
        built(tmp_path, "libnet.so", compiled(tmp_path, source), linker="ld.lld")
    with pytest.raises(InputError, match=r"__tls_get_addr \(-l c\)"):
        built(tmp_path, "libnet.so", compiled(tmp_path, source, "-fPIC"))
    built(tmp_path, "libnet.so", compiled(tmp_path, source, "-fPIC"), libs=["c"])
    library = ctypes.CDLL(str(tmp_path / "libnet.so"))
    assert (library.get(), library.get()) == (5, 6)


def test_names_of_cpp_are_in_the_header_as_a_remark(tmp_path: Path) -> None:
    code = compiled(tmp_path, "namespace k { float f(float x) { return x; } }\n", suffix=".cpp")
    built(tmp_path, "libnet.so", code, header=tmp_path / "net.h")
    assert '"_ZN1k1fEf": its types are not told' in (tmp_path / "net.h").read_text()


def test_aliases_of_functions_are_exported(tmp_path: Path) -> None:
    code = compiled(tmp_path, 'int f(void) { return 6; }\nint g(void) __attribute__((alias("f")));\n')
    built(tmp_path, "libnet.so", code)
    assert ctypes.CDLL(str(tmp_path / "libnet.so")).g() == 6


@pytest.mark.parametrize(
    ("declaration", "wanted"),
    [
        ("@net_t_w = external constant [4 x float]", []),
        ("@net_t_w = external constant [16 x i8]", []),
        ("@net_t_w = external constant [4 x i32]", []),
        ("@net_t_w = external constant [2 x [2 x float]]", []),
        (
            "@net_t_w = external constant [8 x half]",
            ["declared as [8 x half], and the elements of the tensor are float32"],
        ),
        ("@net_t_w = external constant [2 x i64]", ["declared as [2 x i64]"]),
        ("@net_t_w = external global [4 x float]", ["declare it const"]),
    ],
)
def test_a_declaration_that_is_not_the_tensors(declaration: str, wanted: list[str], tmp_path: Path) -> None:
    code = f"{declaration}\ndefine ptr @where() {{\n  ret ptr @net_t_w\n}}\n"
    warnings = built(tmp_path, "net.a", code)
    assert len(warnings) == len(wanted) and all(text in one for text, one in zip(wanted, warnings, strict=True))


def test_what_has_no_effect_is_told(tmp_path: Path) -> None:
    missing = str(tmp_path / "nodir")
    warnings = built(tmp_path, "libnet.so", PLAIN, lib_dirs=[missing], allow_undefined=["typo"])
    assert [one for one in warnings if missing in one] and [one for one in warnings if "typo" in one]
    subprocess.run(
        ["gcc", "-fPIC", "-c", "-x", "c", "-", "-o", str(tmp_path / "m.o")], input=b"int m(void){return 1;}", check=True
    )
    subprocess.run(["ar", "rc", str(tmp_path / "libm1.a"), str(tmp_path / "m.o")], check=True)
    (warning,) = built(tmp_path, "libnet.so", tmp_path / "libm1.a")
    assert "no function of the code is exported" in warning and "--export" in warning
    assert built(tmp_path, "libnet.so", tmp_path / "libm1.a", export=["m"]) == []


def test_the_name_that_the_code_has_in_mind_is_proposed(tmp_path: Path) -> None:
    code = "@model_t_w = external constant [4 x float]\ndefine ptr @where() {\n  ret ptr @model_t_w\n}\n"
    with pytest.raises(InputError, match="add --name model"):
        built(tmp_path, "libnet.so", code)
    code = code.replace("model_t_w", "model_descriptor").replace("constant [4 x float]", "hidden global { i64, i64 }")
    with pytest.raises(InputError, match="add --name model") as caught:
        built(tmp_path, "net.a", code)
    assert "--symbol-prefix" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpu": "nosuch"}, r"LLVM knows no such CPU.*nosuch.*--cpu"),
        ({"features": "avx2"}, r"neither added nor taken away.*\+avx2"),
        ({"features": "+avx2,,"}, "neither added nor taken away"),
    ],
)
def test_cpus_and_features_that_are_none(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(EmitterError, match=message):
        built(tmp_path, "net.a", PLAIN, **options)


def test_a_source_is_to_be_compiled_first(tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text("int f(void) { return 1; }\n")
    made = Package()
    with pytest.raises(InputError, match=r"compile it first.*clang.*-emit-llvm"):
        made.add_input(tmp_path / "k.c")
