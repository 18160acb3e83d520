"""Mach-O, PE, COFF files and archives made by other people's tools, for tests of what reads them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

__all__ = ["archive", "compile_c", "dylib", "pe_dll", "run_tool", "tool", "universal"]

MACHO_SOURCE = """
extern int far_away(int);
__attribute__((weak)) int weak_one(void) { return 7; }
__attribute__((visibility("hidden"))) int hidden_one = 3;
static int local_one = 5;
int common_one;
const char table[64] __attribute__((aligned(64))) = "table";
int twice(int x) { return 2 * x + far_away(x) + local_one + hidden_one + weak_one() + common_one; }
"""

PE_SOURCE = """
typedef unsigned long long u64;
__declspec(dllimport) int twice(int);
__declspec(dllimport) int late(int);
void *__delayLoadHelper2(void *a, void *b) { return 0; }
unsigned _tls_index;
static char tls_data[16];
static void callback(void *a, unsigned b, void *c) {}
static void (*callbacks[])(void *, unsigned, void *) = {callback, 0};
struct { u64 start, end, index, callbacks; unsigned zero, flags; } const _tls_used = {
    (u64)tls_data, (u64)(tls_data + 16), (u64)&_tls_index, (u64)callbacks, 8, 0};
u64 __security_cookie = 1;
struct { unsigned size, stamp; char skip[80]; u64 cookie; u64 more[6]; unsigned guard, pad; }
const _load_config_used = {
    152, 0, {0}, (u64)&__security_cookie, {1, 2, 3, 4, 5, 6}, 0x100};
__declspec(dllexport) int both(int x) { return twice(x) + late(x); }
__declspec(dllexport) const int table[4] = {1, 2, 3, 4};
"""


def tool(name: str) -> str:
    """Return the command of a tool of LLVM, which Debian may have under a versioned name alone; skip where it lacks."""
    found = next((one for one in (name, f"{name}-14") if shutil.which(one)), None)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run_tool(
    name: str,
    *arguments: str | os.PathLike[str],
    cwd: str | None = None,
    environment: dict[str, str] | None = None,
) -> str:
    """Run a tool and return what it prints; the test fails with its words."""
    command = [tool(name), *map(str, arguments)]
    env = os.environ | environment if environment else None
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=cwd, env=env)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return done.stdout


def compile_c(folder: str, triple: str, source: str, name: str, *flags: str) -> str:
    """Compile C (or assembly, for a name that ends in `.s.o`) with clang for a target; return the object's path."""
    text = f"{name}.{'s' if name.endswith('.s.o') else 'c'}"
    with open(os.path.join(folder, text), "w", encoding="utf-8") as file:
        file.write(source)
    # Within the folder: without -g the object says nothing of where it was made.
    run_tool("clang", f"--target={triple}", "-w", "-c", text, "-o", name, *flags, cwd=folder)
    return os.path.join(folder, name)


def dylib(folder: str, arch: str = "arm64", *, reexport: bool = True, debug: bool = True) -> str:
    """Link a dylib with ld64.lld, that needs others: one plainly, one weakly, and one that it re-exports.

    With `debug` its symbol table has entries for debuggers, which name files.
    """
    triple = f"{arch}-apple-macos11"
    link = ["-dylib", "-arch", arch, "-platform_version", "macos", "11.0", "12.3"]
    paths = []
    for number, symbol in enumerate(("far_away", "unused_one", "unused_two")):
        # What lazy binding calls, and libSystem has on a Mac.
        binder = f'int binder{number}(void) __asm__("dyld_stub_binder"); int binder{number}(void) {{ return 0; }}'
        source = f"int {symbol}(int x) {{ return x; }} {'' if number else binder}"
        source = compile_c(folder, triple, source, f"inner{number}.o")
        paths.append(os.path.join(folder, f"libinner{number}.dylib"))
        install_name = f"@rpath/libinner{number}.dylib"
        run_tool("ld64.lld", *link, "-install_name", install_name, source, "-o", paths[-1])
    source = compile_c(folder, triple, MACHO_SOURCE, "outer.o", *(["-g"] if debug else []))
    path = os.path.join(folder, "libouter.dylib")
    last = ["-reexport_library", paths[2]] if reexport else []
    run_tool(
        "ld64.lld", *link, source, paths[0], "-weak_library", paths[1], *last, "-o", path,
        "-install_name", "@rpath/libouter.dylib", "-current_version", "3.2.1", "-compatibility_version", "2.0.0",
        "-rpath", "@loader_path/lib", "-adhoc_codesign",
    )  # fmt: skip
    return path


def universal(folder: str, paths: list[str], name: str = "universal") -> str:
    """Join thin files, or archives of them, with llvm-lipo."""
    path = os.path.join(folder, name)
    run_tool("llvm-lipo", "-create", *paths, "-output", path)
    return path


def pe_dll(folder: str, *flags: str) -> str:
    """Link a DLL with lld-link: imports, delayed imports, a forwarder, TLS, load configuration, relocations, a PDB."""
    triple = "x86_64-windows-msvc"
    source = compile_c(folder, triple, PE_SOURCE, "outer.obj", "-g", "-gcodeview")
    libraries = []
    for library, symbol in (("near", "twice"), ("later", "late")):
        definition = os.path.join(folder, f"{library}.def")
        with open(definition, "w", encoding="utf-8") as file:
            file.write(f"LIBRARY {library}.dll\nEXPORTS\n{symbol}\n")
        libraries.append(os.path.join(folder, f"{library}.lib"))
        run_tool("llvm-dlltool", "-m", "i386:x86-64", "-d", definition, "-l", libraries[-1])
    path = os.path.join(folder, "outer.dll")
    run_tool(
        "lld-link", "/dll", "/noentry", "/nodefaultlib", f"/out:{path}", source, *libraries, "/delayload:later.dll",
        "/debug", f"/pdb:{path}.pdb", "/export:forward=other.name", *flags,
    )  # fmt: skip
    return path


def archive(path: str, members: list[str], form: str = "gnu", **environment: str) -> str:
    """Make an archive with llvm-ar; `coff` with the newer one of ziglang. `SYM64_THRESHOLD` lowers a limit."""
    if form != "coff":
        run_tool("llvm-ar", f"--format={form}", "rcs", path, *members, environment=environment)
        return path
    pytest.importorskip("ziglang", reason="ziglang is not installed")
    command = [sys.executable, "-m", "ziglang", "ar", "--format=coff", "rcs", path, *members]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return path
