"""The command. Exit status: 0 done, 1 findings, 2 error or misuse, 130 interrupted."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time

from emitter import __version__, console
from emitter.errors import EmitterError, OutputError, UsageError, shown
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from emitter.package import Package

__all__ = ["main"]

EXIT_DONE = 0
EXIT_FINDINGS = 1
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130

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

_VERIFY_EPILOG = """

`emitter rules` lists the rules, `emitter rules ID` explains one.

exit status: 0 no findings that count, 1 findings, 2 something could not be verified, or there was nothing to verify
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


def _expand(arguments: Sequence[str], depth: int = 0) -> list[str]:
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
        expanded += _expand([line for line in text.splitlines() if line.strip()], depth + 1)
    return expanded


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


def _new_parser(prog: str, description: str, epilog: str | None = None) -> _Parser:
    parser = _Parser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=_formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print the result, or the error, as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with `argv` (default: the process's arguments) and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        gc.disable()  # a process of ours leaves no cycles worth the time: to look for them takes 3 ms
    console.open_missing()
    try:
        return _run(arguments)
    except EmitterError as error:
        return _report(error, arguments)


def _run(arguments: list[str]) -> int:
    """Run the command, and turn what is not an error of ours into one. `arguments` is expanded in place."""
    try:
        arguments[:] = _expand(arguments)
        if not arguments:
            _emit_parser().print_help()
            return EXIT_DONE
        command = _COMMANDS.get(arguments[0])
        return command(arguments[1:]) if command else _emit(arguments)
    except EmitterError:
        raise
    except KeyboardInterrupt:
        console.say("interrupted")
        return EXIT_INTERRUPTED
    except MemoryError as error:
        raise EmitterError("out of memory", hint="free some, or split the input") from error
    except ImportError as error:
        # A limit of the process is met while a part of Python is loaded.
        hint = "raise the limits of the process (`ulimit -n`, `ulimit -v`), or install Python and emitter anew"
        raise EmitterError(f"a part of Python cannot be loaded: {error}", hint=hint) from error
    except OSError as error:
        # A relative path in a folder that is gone, a table of open files that is full.
        where = str(error.filename or "the current directory, or a limit of the process")
        raise OutputError(f"the system refuses: {error.strerror or error}", where=where) from error
    except Exception as error:
        if {"-v", "--verbose"} & set(arguments):
            import traceback

            traceback.print_exc()
        what = f"internal error: {type(error).__name__}: {error}"
        raise EmitterError(what, hint="this is a bug in emitter; -v shows where") from error


def _report(error: EmitterError, arguments: Sequence[str]) -> int:
    if "--json" in arguments and error.where != console.STANDARD_OUTPUT:
        try:
            _print_json({"schema": "emitter.error/1", "errors": [error.to_json()]})
        except OutputError as second:
            error = second
        else:
            return EXIT_ERROR
    console.say(f"error: {error}")
    return EXIT_ERROR


def _print_json(document: dict[str, object]) -> None:
    import json

    console.write(json.dumps(document, indent=1) + "\n")


def _emit_parser(
    prog: str = "emitter",
    description: str = "Turn constants into objects, archives and shared libraries for other CPUs.",
    epilog: str | None = _EPILOG,
) -> _Parser:
    from emitter.options import FORMATS

    parser = _new_parser(prog, description, epilog)
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


def _emit(arguments: list[str]) -> int:
    options = _emit_parser().parse_args(arguments)
    if options.version:
        console.write(f"emitter {__version__}\n")
        return EXIT_DONE
    if options.include_dir:
        console.write(f"{_include_dir()}\n")
        return EXIT_DONE
    if not options.inputs and not options.manifest:
        raise UsageError("no input", hint="name at least one file; see emitter --help")
    if options.output is None:
        first = options.inputs[0] if options.inputs else ""
        if first and not os.path.lexists(first.rpartition("raw:")[2]):
            from difflib import get_close_matches

            near = get_close_matches(first, _COMMANDS, n=1)
            hint = f"did you mean emitter {near[0]}?" if near else f"the commands are {', '.join(_COMMANDS)}"
            raise UsageError("no such file or command", where=shown(first), hint=hint)
        raise UsageError("no output", hint="add -o FILE")
    from emitter.driver import emit
    from emitter.options import Options
    from emitter.output import cleanup_on_signals

    cleanup_on_signals()
    artefacts = emit(
        _package(options),
        _only_output(options.output),
        target=options.target or ["native"],
        progress=None if options.quiet or not sys.stderr.isatty() else _progress(),
        note=console.say if options.verbose else None,
        warn=None if options.quiet else lambda line: console.say(f"warning: {line}"),
        **{name: getattr(options, name) for name in Options._fields},
    )
    if options.json:
        _print_json({"schema": "emitter.emit/1", "outputs": [artefact.to_json() for artefact in artefacts]})
    return EXIT_DONE


def _plan(arguments: list[str]) -> int:
    parser = _emit_parser(
        "emitter plan",
        "Say what an emission would write, and whether its formats can hold it; nothing is written. It takes the "
        "options of the emission; -o may be missing. Exit status 2 if it does not fit.",
        None,
    )
    options = parser.parse_args(arguments)
    if not options.inputs and not options.manifest:
        raise UsageError("no input", hint="name at least one file; see emitter plan --help")
    from emitter.options import Options
    from emitter.plan_report import fits, forecast, plan_json, plan_text

    package = _package(options)
    output = None if options.output is None else _only_output(options.output)
    given = {name: getattr(options, name) for name in Options._fields}
    forecasts = forecast(package, output, options.target or ["native"], given)
    if options.json:
        _print_json(plan_json(package, forecasts))
    else:
        console.write(plan_text(package, forecasts))
    return EXIT_DONE if fits(forecasts) else EXIT_ERROR


def _only_output(outputs: Sequence[str]) -> str:
    if len(outputs) > 1:
        raise UsageError("-o is given twice", hint="write {target} into one -o for several targets")
    return outputs[0]


def _package(options: argparse.Namespace) -> Package:
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


def _progress() -> Callable[[int, int], None]:
    """Return a display of bytes done, which appears after a second of work and is wiped when all are."""
    start = time.monotonic()
    visible = False

    def show(done: int, total: int) -> None:
        nonlocal visible
        if done >= total:
            if visible:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            visible = False
        elif time.monotonic() - start > 1:
            visible = True
            print(f"\remitter: {done >> 20} of {total >> 20} MiB", end="", file=sys.stderr, flush=True)

    return show


def _targets(arguments: list[str]) -> int:
    from emitter.targets._describe import targets_json, targets_text

    parser = _new_parser("emitter targets", "List the targets, or describe one.")
    parser.add_argument("name", nargs="?", metavar="NAME", help="any name of a target")
    options = parser.parse_args(arguments)
    if options.json:
        _print_json(targets_json(options.name))
    else:
        console.write(targets_text(options.name) + "\n")
    return EXIT_DONE


def _include_dir() -> str:
    import emitter.loaders

    return os.path.join(os.path.dirname(emitter.loaders.__file__), "c")


def _header(arguments: list[str]) -> int:
    from emitter.output import write_if_changed

    parser = _new_parser("emitter header", "Write emitter.h, the C and C++ reader of packs.")
    parser.add_argument("--cuda", action="store_true", help="write emitter_cuda.h, which loads CUDA programs of packs")
    parser.add_argument("-o", dest="output", metavar="FILE", help="output (default: standard output)")
    options = parser.parse_args(arguments)
    with open(os.path.join(_include_dir(), "emitter_cuda.h" if options.cuda else "emitter.h"), "rb") as file:
        text = file.read()
    if options.output is None:
        console.write(text)
    else:
        write_if_changed(options.output, text)
        if options.json:
            _print_json({"schema": "emitter.header/1", "path": options.output, "size": len(text)})
    return EXIT_DONE


def _diff(arguments: list[str]) -> int:
    from emitter.diff import diff
    from emitter.diff.output import FORMATS, to_json

    parser = _new_parser(
        "emitter diff", "Say what differs between two artefacts, packs or inputs; exit status 1 if so."
    )
    parser.add_argument("a", metavar="A", help="a file: of any CPU; nothing of it is run")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="how to print it (default: text)")
    options = parser.parse_args(arguments)
    difference = diff(options.a, options.b)
    if options.json:
        _print_json(to_json(difference))
    else:
        console.write(FORMATS[options.format](difference))
    return EXIT_DONE if difference.empty else EXIT_FINDINGS


def _extract(arguments: list[str]) -> int:
    from emitter.extract import extract
    from emitter.output import cleanup_on_signals

    parser = _new_parser(
        "emitter extract",
        "Take the tensors out of a library, an object, an archive, a .pack or any input, whatever CPU it is for.",
    )
    parser.add_argument("file", metavar="FILE", help="the file; nothing of it is run")
    parser.add_argument(
        "-o",
        dest="output",
        required=True,
        metavar="OUT",
        help="FILE.safetensors, FILE.pack, or a new directory: a .npy file for each tensor, and manifest.json",
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="only tensors of such names (*, ?); repeatable"
    )
    parser.add_argument("--pack", type=int, metavar="N", help="which pack, if the file holds several (from 0)")
    options = parser.parse_args(arguments)
    cleanup_on_signals()
    done = extract(
        options.file,
        options.output,
        only=options.only,
        number=options.pack,
        progress=_progress() if sys.stderr.isatty() else None,
    )
    if options.json:
        _print_json({"schema": "emitter.extract/1", **done._asdict()})
    return EXIT_DONE


def _inspect(arguments: list[str]) -> int:
    from emitter.inspect.command import add_options, run

    parser = _new_parser("emitter inspect", "Show what a file holds, whatever CPU and system it is for.")
    add_options(parser)
    return run(parser.parse_args(arguments), console.write)


def _verify(arguments: list[str]) -> int:
    from emitter.verify.command import run_verify, verify_options
    from emitter.verify.profile import shipped

    names = shipped()
    rows = [", ".join(names[start : start + 5]) for start in range(0, len(names), 5)]
    parser = _new_parser(
        "emitter verify",
        "Prove that artefacts are right for where they will run.",
        "profiles:\n  " + ",\n  ".join(rows) + _VERIFY_EPILOG,
    )
    verify_options(parser)
    return run_verify(parser.parse_args(arguments), console.write)


def _rules(arguments: list[str]) -> int:
    from emitter.verify.command import run_rules

    parser = _new_parser("emitter rules", "List the rules of `emitter verify`, or explain some.")
    parser.add_argument("ids", nargs="*", metavar="ID", help="of a rule")
    options = parser.parse_args(arguments)
    console.write(run_rules(options.ids, as_json=options.json))
    return EXIT_DONE


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "diff": _diff,
    "emit": _emit,
    "extract": _extract,
    "header": _header,
    "inspect": _inspect,
    "plan": _plan,
    "rules": _rules,
    "targets": _targets,
    "verify": _verify,
}
