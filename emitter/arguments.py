"""What the command line says: its options, files of arguments, and the package that an emission is asked for."""

from __future__ import annotations

import argparse
import os

from emitter import console
from emitter.errors import UsageError, shown
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emitter.package import Package

__all__ = ["emit_parser", "expand", "include_dir", "new_parser", "only_output", "package_of"]

_MAX_DEPTH = 10
_MAX_ARGUMENTS = 64 << 20

_EPILOG = """\
inputs, recognised by content: safetensors (and the index of a sharded model), .npy, .npz, .pack;
programs for GPUs (fatbin, cubin, PTX, TensorRT plans, AMD code objects, SPIR-V), each a module;
LLVM IR (.ll, .bc), objects and archives (.o, .a) are code, which is compiled and linked with the rest.
raw:FILE takes the bytes of any file. NAME=INPUT names the tensor of an input that holds one, and goes
before the names of an input that holds several.
An argument @FILE is replaced by the lines of FILE, one argument a line.

other commands: emitter plan, inspect, verify, rules, extract, diff, targets, header; each has --help. A file that
is called like a command is written ./targets.

exit status: 0 done, 1 findings (verify, diff), 2 error or misuse, 130 interrupted

example: emitter --target aarch64-linux-gnu resnet18.safetensors -o libresnet18.so
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are ours, and which takes files wherever they stand among the options."""

    def parse_args(  # type: ignore[override] # the original has more forms
        self, args: Sequence[str], namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Return the options and files; behind `--` all is files, and those before it stand together."""
        return super().parse_args(args, namespace) if "--" in args else self.parse_intermixed_args(args, namespace)

    def error(self, message: str) -> None:  # type: ignore[override] # it raises, as the original exits
        hint = f"see {self.prog} --help"
        unknown = message.removeprefix("unrecognized arguments: ").split()
        if unknown and unknown[0].startswith("--"):
            from difflib import get_close_matches

            near = get_close_matches(unknown[0], self._option_string_actions, n=1)
            hint = f"did you mean {near[0]}?" if near else hint
        raise UsageError(message, hint=hint)

    def _print_message(self, message: str, file: object = None) -> None:  # noqa: ARG002 - help goes to one place
        console.write(message)


def _formatter(prog: str) -> argparse.HelpFormatter:
    # Without a width the formatter imports shutil, for every option that is declared.
    try:
        width = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        try:
            width = os.get_terminal_size().columns
        except OSError:
            width = 80
    return argparse.RawDescriptionHelpFormatter(prog, width=max(width, 40) - 2)


def new_parser(prog: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of a command, with what every command takes."""
    parser = _Parser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print the result, or the error, as JSON")
    return parser


def emit_parser(
    prog: str = "emitter",
    description: str = "Turn constants into objects, archives and shared libraries for other CPUs.",
    epilog: str | None = _EPILOG,
) -> argparse.ArgumentParser:
    """Return the parser of what an emission takes."""
    from emitter.options import FORMATS

    parser = new_parser(prog, description, epilog)
    add = parser.add_argument
    add("inputs", nargs="*", metavar="INPUT", help="[NAME=]FILE or [NAME=]raw:FILE")
    add(
        "-o",
        dest="output",
        action="append",
        metavar="FILE",
        help="output, required: .o, .a, .so, .dylib, .obj, .lib, .dll or .pack; may hold {target}, {triple}, {lib}",
    )
    add(
        "--target",
        action="append",
        metavar="T",
        help="platform, as its own tools name it (default: native); may be repeated",
    )
    add("--emit", choices=FORMATS, help="what to write, where the suffix of -o does not say it")
    add(
        "--manifest",
        action="append",
        default=[],
        metavar="FILE",
        help="TOML or JSON document that describes tensors and modules; - is standard input; may be repeated",
    )
    add("--raw", action="store_true", help="take every input as raw bytes, as raw:FILE does")
    add("--name", metavar="SYMBOL", help="symbol of the pack (default: the output's name without lib and suffix)")
    add("--align", type=int, metavar="N", help="alignment of each tensor in bytes (default: 64)")
    add("--section", metavar="S", help="section of the payload in objects and archives (default: .rodata.NAME in ELF)")
    add(
        "--visibility",
        choices=("default", "protected", "hidden"),
        help="of symbols in objects and archives (default: hidden)",
    )
    add("--tensor-symbols", action="store_true", help="give every tensor a symbol of its own")
    add("--symbol-prefix", metavar="P", help="prefix of the tensors' symbols (default: NAME_t_)")
    add(
        "--symbols",
        choices=("ld", "incbin", "xxd", "aoti", "tvm"),
        help="objects and archives with the symbols of that tool (ld, incbin and xxd are for raw inputs)",
    )
    add("--soname", metavar="S", help="DT_SONAME of an ELF library (default: its file name)")
    add("--install-name", metavar="S", help="install name of a Mach-O library (default: @rpath/ and its file name)")
    add(
        "--retain",
        action="store_true",
        help="keep the payload of objects under --gc-sections, and let loaders find it in the linked program",
    )
    add(
        "--large-data",
        choices=("auto", "always", "never"),
        help="large-data section for objects, on x86-64 (default: auto, for payloads above 1 GiB)",
    )
    add("--header", metavar="FILE.h", help="write a C header that declares the symbols; new values do not change it")
    add("--depfile", metavar="FILE.d", help="write the dependencies for make and ninja")
    add("--map", metavar="FILE.json", help="write symbol, offset, size and CRC-32C of every tensor")
    add(
        "--linker-script",
        metavar="FILE",
        help="write a fragment that places a payload beyond the reach of code (for -Wl,-T,FILE) or, on bare metal, in "
        "a memory region (for INCLUDE FILE)",
    )
    add("--region", metavar="R", help="the memory region of the board's linker script (default: FLASH)")
    add("--implib", metavar="FILE", help="write the import library of a DLL")
    add("--sidecar", action="store_true", help="libraries: leave the bytes to a .pack beside the library")
    add("--sidecar-name", metavar="FILE", help="its name (default: that of the library, with .pack)")
    add("--pin", action="store_true", help="let the library take no other sidecar than this, by its SHA-256")
    add(
        "--cuda-register",
        action="store_true",
        help="objects and archives of fatbins: register them with the CUDA runtime, as nvcc's objects do",
    )
    add("-O", dest="opt_level", type=int, metavar="N", help="code: how much LLVM optimises, 0 to 3 (default: 2)")
    add("--cpu", metavar="C", help="code: the CPU that it is compiled for (default: the oldest of the target)")
    add("--features", metavar="F", help="code: features of the CPU beside those of the target, as +v,-d32")
    add("--abi", metavar="A", help="code: the ABI, which must be the target's")
    add("--linker", metavar="L", help="code: the linker (default: ld.lld, the target's GNU ld, or that of ziglang)")
    add("-l", dest="libs", action="append", default=[], metavar="LIB", help="code: library to use; m and c are known")
    add("-L", dest="lib_dirs", action="append", default=[], metavar="DIR", help="code: where the libraries of -l are")
    add(
        "--allow-undefined",
        action="append",
        default=[],
        metavar="S",
        help="code: a symbol that the program will define; may be repeated",
    )
    add("--export", action="append", default=[], metavar="S", help="code: export this alone; may be repeated")
    add("--version-script", metavar="FILE", help="code: the linker's version script, which says what is exported")
    add("--no-cache", action="store_true", help="code: compile anew, and keep nothing (EMITTER_CACHE_DIR)")
    add("--compile-seconds", type=int, metavar="N", help="code: what LLVM may take (default: 300)")
    add("--compile-memory", type=int, metavar="MIB", help="code: memory that LLVM may take (default: 4096)")
    add("--meta", action="append", default=[], metavar="K=V", help="metadata of the pack; may be repeated")
    add(
        "--keep-metadata",
        action="store_true",
        help="keep the inputs' own metadata and model version (default: dropped)",
    )
    add("--model-version", default="", metavar="V", help="version string of the model")
    add("--include-dir", action="store_true", help="print the directory of emitter.h")
    add("--version", action="store_true", help="print the version")
    add("-v", "--verbose", action="store_true", help="say what is decided, on standard error")
    add("-q", "--quiet", action="store_true", help="no progress on the terminal, no warnings")
    return parser


def expand(arguments: Sequence[str], depth: int = 0) -> list[str]:
    """Return `arguments` with each @FILE replaced by the lines of FILE that are not blank.

    What follows --install-name stays as it is: most install names begin with @rpath, @loader_path or @executable_path.
    """
    expanded: list[str] = []
    for argument in arguments:
        if not argument.startswith("@") or expanded[-1:] == ["--install-name"]:
            expanded.append(argument)
            continue
        path = argument[1:]
        if depth == _MAX_DEPTH:
            raise UsageError(
                "argument files name one another too deeply", where=path, expected=f"at most {_MAX_DEPTH} levels"
            )
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read(_MAX_ARGUMENTS + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"cannot read the argument file: {reason}", where=path or "@") from error
        if len(text) > _MAX_ARGUMENTS:
            raise UsageError(
                "the argument file is too long", where=path, expected=f"at most {_MAX_ARGUMENTS} characters"
            )
        expanded += expand([line for line in text.splitlines() if line.strip()], depth + 1)
    return expanded


def only_output(outputs: Sequence[str]) -> str:
    """Return the one -o; raise UsageError for several."""
    if len(outputs) > 1:
        raise UsageError("-o is given twice", hint="write {target} into one -o for several targets")
    return outputs[0]


def package_of(options: argparse.Namespace) -> Package:
    """Return the inputs and the metadata that the command was given."""
    from emitter.inputs import split_argument
    from emitter.options import BLOB_STYLES
    from emitter.package import Package

    package = Package()
    for argument in options.inputs:
        if argument.startswith("="):
            raise UsageError(
                "there is no name before =", where=shown(argument), hint="write NAME=FILE, or ./=FILE for a path"
            )
        prefix, path = split_argument(argument)
        if options.raw and not path.startswith("raw:"):
            path = f"raw:{path}"
        if options.symbols in BLOB_STYLES:
            # The names of a style come from the path as it is typed, folders and all.
            if not path.startswith("raw:"):
                raise UsageError(f"--symbols {options.symbols} takes raw inputs", where=argument, hint="write raw:FILE")
            prefix = prefix or path.removeprefix("raw:")
        package.add_input(path, prefix=prefix, keep_metadata=options.keep_metadata)

    for path in options.manifest:
        if path == "-":
            from emitter.manifest import MAX_SIZE, read_manifest

            read_manifest(package, console.STANDARD_INPUT, console.read(MAX_SIZE + 1))
        else:
            package.add_manifest(path)

    # What is said here wins over what the inputs say.
    package.metadata.update(_metadata(options.meta))
    package.model_version = options.model_version or package.model_version
    return package


def _metadata(arguments: Sequence[str]) -> dict[str, str]:
    metadata: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key:
            raise UsageError("--meta cannot be read", expected="KEY=VALUE", actual=shown(argument))
        if metadata.setdefault(key, value) != value:
            raise UsageError(
                "--meta gives one key two values", where=shown(key), actual=f"{shown(metadata[key])} and {shown(value)}"
            )
    return metadata


def include_dir() -> str:
    """Return the folder of emitter.h."""
    import emitter.loaders

    return os.path.join(os.path.dirname(emitter.loaders.__file__), "c")
