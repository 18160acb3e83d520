"""The process that enters LLVM with a user's code: it may die of it, and its parent says why.

It takes a request on standard input and gives a reply on standard output, both a line of JSON and then bytes: of the
modules, and of the object. What LLVM has to say goes to standard error, behind a line with its version.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from emitter.code import producer
from emitter.compile import READER
from emitter.compile.baseline import beyond, shared_features
from emitter.compile.constructors import as_arrays
from emitter.compile.constructors import names as constructors
from emitter.compile.platform import contradiction
from emitter.compile.signatures import signatures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["main"]

_SPEED = {"0": 0, "1": 1, "2": 2, "3": 3}

# A call of inline assembly, in a line of a function; and the text of the assembly, which may be empty.
_CALL = re.compile(r"\s+(?:%\S+ = )?(?:tail |musttail |notail )?(?:call|invoke|callbr) ")
_ASM = re.compile(r'\basm (?:sideeffect |alignstack |inteldialect |unwind )*"((?:[^"\\]|\\.)*)"')
# What made a text, from the metadata that !llvm.ident names: "clang version 14.0.6".
_IDENT = re.compile(rb'^!\d+ = !\{!"[^"\n]*?((?:\w+ )?version \d[\w.+-]*)', re.MULTILINE)
_EXTERNAL = ("external", "extern_weak")
_LOCAL = ("internal", "private")


class _Refusal(Exception):  # noqa: N818 - it is a reply, not a fault of this program
    def __init__(self, what: str, **parts: str | None) -> None:
        super().__init__(what)
        self.reply = {"what": what, **parts}


def main() -> int:
    """Serve one request; the exit status is 0 whenever there is a reply."""
    reply_to = os.dup(1)
    os.dup2(2, 1)  # LLVM prints some things on standard output
    request = json.loads(sys.stdin.buffer.readline())
    _limit(request["memory"], request["seconds"])
    try:
        data, facts = _compile(request)
    except _Refusal as refusal:
        data, facts = b"", {"error": refusal.reply}
    except UnicodeDecodeError as error:
        name = error.object[max(error.start - 20, 0) : error.end + 20]
        data, facts = b"", {"error": {"what": "the code has names that are not UTF-8", "actual": repr(name)}}
    except MemoryError:
        data, facts = b"", {"error": {"what": "LLVM needs more memory than it may have", "kind": "memory"}}
    with os.fdopen(reply_to, "wb") as out:
        out.write(json.dumps(facts).encode() + b"\n" + data)
    return 0


def _limit(memory: int, seconds: int) -> None:
    try:
        import resource
    except ImportError:
        return  # Windows: the parent's clock is the only limit
    for what, limit in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds)):
        _, hard = resource.getrlimit(what)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)  # noqa: PLW2901 - the same limit
        resource.setrlimit(what, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _compile(request: Mapping[str, Any]) -> tuple[bytes, dict[str, object]]:
    from llvmlite import binding

    sys.stderr.write(f"{READER}{_version(binding)}\n")
    sys.stderr.flush()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()
    target = request["target"]
    modules = [_parse(binding, one, target) for one in request["modules"]]
    module = modules[0]
    for one, other in zip(request["modules"][1:], modules[1:], strict=True):
        _link(module, other, one["path"])
    module.triple = target["triple"]
    module.data_layout = target["data_layout"]
    where = ", ".join(one["path"] for one in request["modules"])
    try:
        module.verify()
    except RuntimeError as error:
        raise _Refusal(f"LLVM refuses the code: {_words(error)}", where=where) from error
    text = str(module)
    _screen_asm(text, where, target, binding)
    exports = _hide(module, request["exports"], coff=target["object_format"] == "coff")
    variables = _variables(module, binding.create_target_data(target["data_layout"]))
    asked = _asked(module, target["triple"])
    features = [one for one in (target["features"], *shared_features(asked)) if one]

    level = _SPEED[request["level"]]
    machine = binding.Target.from_triple(target["triple"]).create_target_machine(
        cpu=target["cpu"],
        features=",".join(features),
        opt=level,
        reloc=target["relocation_model"],
        codemodel=target["code_model"],
        abiname=target["abi"],
    )
    if str(machine.target_data) != target["data_layout"]:
        raise _Refusal(
            "LLVM has another data layout for these options",
            where=where,
            expected=target["data_layout"],
            actual=str(machine.target_data),
        )
    tuning = binding.create_pipeline_tuning_options(speed_level=level)
    if level >= 2:
        tuning.loop_vectorization = tuning.slp_vectorization = True
    builder = binding.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    started = constructors(str(module))
    if started and target["object_format"] == "elf":
        module = binding.parse_assembly(as_arrays(str(module)))
    try:
        data = bytes(machine.emit_object(module))
    except RuntimeError as error:
        raise _Refusal(f"LLVM cannot compile the code: {_words(error)}", where=where) from error
    more = {name: features for name, features in asked.items() if features}
    facts = {"variables": variables, "signatures": signatures(text, exports), "beyond": more, "constructors": started}
    return data, facts


def _link(module: Any, other: Any, path: str) -> None:
    try:
        module.link_in(other)
    except RuntimeError as error:
        raise _Refusal(f"LLVM cannot link the modules: {_words(error)}", where=path) from error


def _parse(binding: Any, one: Mapping[str, Any], target: Mapping[str, Any]) -> Any:
    data = sys.stdin.buffer.read(one["size"])
    path = one["path"]
    try:
        if one["kind"] == "ir":
            module = binding.parse_assembly(data.decode("utf-8", "surrogateescape"))
        else:
            module = binding.parse_bitcode(data)
    except (RuntimeError, UnicodeError) as error:
        hint = f"LLVM {_version(binding)} reads it up to its own version"
        if one["kind"] == "bitcode":
            hint = f"made by {producer(data) or 'an unknown version'}; {hint}"
        elif ident := _IDENT.search(data):
            hint = f"made by {ident.group(1).decode('ascii', 'replace')}; {hint}"
        raise _Refusal(f"LLVM cannot read it: {_words(error)}", where=path, hint=hint) from error
    found = contradiction(str(module.triple), str(module.data_layout), target)
    if found is not None:
        what, expected, actual = found
        hint = "name another --target, or compile the code for this one"
        raise _Refusal(what, where=path, expected=expected, actual=actual, hint=hint)
    # Linked modules must agree; that they do with the target is known now.
    module.triple = target["triple"]
    module.data_layout = target["data_layout"]
    return module


def _version(binding: Any) -> str:
    return ".".join(map(str, binding.llvm_version_info))


def _words(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__


def _screen_asm(text: str, where: str, target: Mapping[str, Any], binding: Any) -> None:
    """Refuse assembly for a CPU that LLVM cannot read the assembly of: it would abort."""
    family = {"x86_64": "x86", "i686": "x86", "i386": "x86"}
    native = str(binding.get_process_triple()).partition("-")[0]
    cpu = target["triple"].partition("-")[0]
    if family.get(native, native) == family.get(cpu, cpu):
        return
    held = [found.group(1) for found in re.finditer(r"^module asm \"(.*)\"", text, re.MULTILINE)]
    held += (found.group(1) for line in text.splitlines() if _CALL.match(line) and (found := _ASM.search(line)))
    if any(held):
        raise _Refusal(
            f"the code holds assembly, and llvmlite reads that of {native} alone",
            where=where,
            actual=next(filter(None, held))[:80],
            hint=f"assemble this part for {target['name']} with a compiler, and give its object",
        )


def _hide(module: Any, wanted: Sequence[str] | None, *, coff: bool) -> list[str]:
    """Hide every definition that is not to be exported; return the names of the functions that are.

    Without a list these are the functions of default visibility. COFF has no visibility, and LLVM's stand-in for MinGW,
    the directive -exclude-symbols, is an error to older linkers.
    """
    exports = []
    for is_function, value in _definitions(module):
        if value.linkage.name in _LOCAL:
            continue
        listed = wanted is None and is_function and value.visibility.name == "default"
        if listed or (wanted is not None and value.name in wanted):
            value.visibility = "default"
            if is_function:
                exports.append(value.name)
        else:
            if value.storage_class.name == "dllexport":
                value.storage_class = "default"
            value.visibility = "default" if coff else "hidden"
    return exports


def _definitions(module: Any) -> Iterator[tuple[bool, Any]]:
    for is_function, values in ((True, module.functions), (False, module.global_variables)):
        for value in values:
            if not value.is_declaration and value.linkage.name not in ("available_externally", "appending"):
                yield is_function, value


def _asked(module: Any, triple: str) -> dict[str, list[str]]:
    """Return what each function that is defined asks of the CPU beyond the baseline."""
    asked = {}
    for function in module.functions:
        if not function.is_declaration:
            words = dict(
                re.findall(r'"(target-cpu|target-features)"="([^"]*)"', b" ".join(function.attributes).decode())
            )
            features = words.get("target-features", "").split(",")
            asked[function.name] = beyond(triple, words.get("target-cpu", ""), features)
    return asked


def _variables(module: Any, layout: Any) -> dict[str, dict[str, object]]:
    """Return what the modules say of the variables that they use and do not define; sizes in bytes, 0 for unknown."""
    found: dict[str, dict[str, object]] = {}
    for value in module.global_variables:
        if value.is_declaration and not value.name.startswith("llvm."):
            kind = value.global_value_type
            text = str(value)
            # An opaque structure has no size, and says so by an abort.
            size = 0 if re.search(r"\btype opaque\b", str(kind)) else layout.get_abi_size(kind)
            near = value.visibility.name != "default" or " dso_local " in text
            found[value.name] = {"size": size, "near": near, "constant": " constant " in text, "type": str(kind)}
    return found


if __name__ == "__main__":
    sys.exit(main())
