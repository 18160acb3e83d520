"""Objects that register their fatbins with the CUDA runtime, as those of nvcc do: kernels are started by symbol.

LLVM compiles the constructor and what it refers to, with one byte in place of the fatbins, in the last section; then
that grows to what they need, so that they pass neither through LLVM nor through memory.

Sources: `fatbinary_section.h` of the CUDA toolkit for the wrapper, and for the calls `crt/host_runtime.h`: what nvcc
13.5 compiles makes the same ones, in the same order. The sections of Mach-O are those of clang.
"""

from __future__ import annotations

from emitter.device import FATBIN_MAGIC
from emitter.device.names import names_of_fatbin
from emitter.errors import InputError, TargetError, UsageError, shown
from emitter.inspect.view import View
from emitter.layout import Copy, FilePlan, align_up
from emitter.package import BufferSource
from emitter.records import TYPE_CHECKING, NamedTuple
from emitter.sections import FATBIN_SECTION
from emitter.symbols import check_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from emitter.device.names import Names
    from emitter.model import Visibility
    from emitter.options import Format
    from emitter.package import Extent, Package
    from emitter.targets._base import ObjectFormat, Target

__all__ = ["plan_registered"]

_MAGIC, _VERSION = 0x466243B1, 1  # of the wrapper
_ALIGNMENT = 64
# Names with a dot, which no kernel has.
_PLACEHOLDER = "emitter.fatbins"


class _Place(NamedTuple):
    """Where an object format has what is registered."""

    fatbins: str
    wrappers: str
    constructors: str
    pointer: str = "global"  # what a pointer to a constructor is: "constant" where its section is read-only
    variables: str = ""
    function: str = "nounwind"


_PLACES: Mapping[ObjectFormat, _Place] = {
    "elf": _Place(FATBIN_SECTION, ".nvFatBinSegment", ".init_array"),
    # Whatever is filled with zeros has addresses behind the last section, which grows.
    "macho": _Place(
        "__NV_CUDA,__nv_fatbin",
        "__NV_CUDA,__fatbin",
        "__DATA,__mod_init_func,mod_init_funcs",
        variables=', section "__DATA,__data"',
    ),
    # Every function that uses the stack has unwind data on 64-bit Windows.
    "coff": _Place(FATBIN_SECTION, ".nvFatBinSegment", ".CRT$XCU", pointer="constant", function="nounwind uwtable"),
}


class _Fatbin(NamedTuple):
    """A fatbin: its bytes, where they are in the section, and what it offers."""

    extent: Extent
    offset: int
    names: Names
    module: str


def plan_registered(
    target: Target,
    format_: Format,
    path: str,
    package: Package,
    *,
    prefix: str = "",
    visibility: Visibility = "hidden",
) -> FilePlan:
    """Return an object, or an archive of one, that registers the fatbins of `package` when its program starts.

    For each kernel it defines a symbol `prefix` + name, whose address cudaLaunchKernel takes, and for each variable one
    of its size, for cudaMemcpyToSymbol and its kin. Raises UsageError for a package that holds anything else than
    fatbins, InputError for one whose names cannot be read, TargetError for a target without CUDA and where llvmlite is
    missing, LayoutError for two symbols of one name.
    """
    # ELF has targets of its own for them, whose libraries hold fatbins, too.
    if target.pointer_width != 64 or (target.object_format == "elf" and not target.device_code):
        raise TargetError(
            "no CUDA programs run beside this target",
            where=target.name,
            expected="cuda-host, cuda-host-aarch64, or a 64-bit target of Windows or Apple",
        )
    fatbins = list(_fatbins(package))
    check_names(
        (prefix + name, f"{what} of module {shown(one.module)}")
        for one in fatbins
        for what, names in (("a kernel", one.names.kernels), ("a variable", [row.name for row in one.names.variables]))
        for name in names
    )
    from emitter.interop.grow import grow
    from emitter.llvm import emit_object, property_flags

    place = _PLACES[target.object_format]
    size = align_up(fatbins[-1].offset + fatbins[-1].extent.length, 8)
    ir = "".join([*_module(fatbins, prefix, visibility, place), property_flags(target)])
    start, end, pieces = grow(target, emit_object(target, ir), _PLACEHOLDER, size)
    copies = [Copy(start + one.offset, one.extent.length, one.extent, 1, (one.extent.length,), 8) for one in fatbins]
    plan = FilePlan(end, pieces, copies, compiled=True)
    if format_ == "object":
        return plan
    from emitter.writers import plan_member

    symbols = [
        prefix + name for one in fatbins for name in (*one.names.kernels, *(row.name for row in one.names.variables))
    ]
    return plan_member(target, path, symbols, plan)


def _fatbins(package: Package) -> Iterator[_Fatbin]:
    if package.tensors or package.metadata or package.model_version or not package.modules:
        raise UsageError(
            "--cuda-register takes fatbins alone",
            actual="tensors, metadata or a model version" if package.modules else "no module",
            hint="write what else there is into a second object, and link both",
        )
    position = 0
    for module in package.modules:
        extents = {(id(one.extent.source), one.extent.offset): one.extent for one in module.alternatives}
        for extent in extents.values():
            view = _view(extent)
            with view:
                if view.read_up_to(0, 4) != FATBIN_MAGIC:
                    raise InputError(
                        "not a fatbin, which the CUDA runtime wants",
                        where=extent.where,
                        hint="make one of it: fatbinary --create=k.fatbin --image3=kind=elf,sm=80,file=k.cubin",
                    )
                if any(one.kind != "cuda" for one in module.alternatives):
                    hint = "link the programs first: nvcc -dlink -fatbin"
                    raise InputError("the code is relocatable", where=extent.where, hint=hint)
                names = names_of_fatbin(view.window(extent.offset, extent.length, view.where))
            position = align_up(position, _ALIGNMENT)
            yield _Fatbin(extent, position, names, module.name)
            position += extent.length


def _view(extent: Extent) -> View:
    source = extent.source
    if isinstance(source, BufferSource):
        return View.of_bytes(source.data, source.path)
    return View.open(source.path)


def _module(fatbins: Sequence[_Fatbin], prefix: str, visibility: Visibility, place: _Place) -> Iterator[str]:
    """Yield the IR of the object."""
    seen = "" if visibility == "default" else f"{visibility} "
    yield f"""\
@emitter.constructor = internal {place.pointer} ptr @emitter.cuda_register, section "{place.constructors}", align 8
declare ptr @__cudaRegisterFatBinary(ptr)
declare void @__cudaRegisterFatBinaryEnd(ptr)
declare void @__cudaUnregisterFatBinary(ptr)
declare i32 @__cudaRegisterFunction(ptr, ptr, ptr, ptr, i32, ptr, ptr, ptr, ptr, ptr)
declare void @__cudaRegisterVar(ptr, ptr, ptr, ptr, i32, i64, i32, i32)
declare i32 @atexit(ptr)
declare void @llvm.trap()
"""
    body = [f"define internal void @emitter.cuda_register() {place.function} {{\n"]
    used = ["ptr @emitter.constructor"]
    count = 0
    for number, one in enumerate(fatbins):
        used.append(f"ptr @wrapper.{number}")
        yield (
            f"@handle.{number} = internal global ptr null{place.variables}\n"
            f"@wrapper.{number} = internal constant {{ i32, i32, ptr, ptr }} {{ i32 {_MAGIC}, i32 {_VERSION}, "
            f"ptr getelementptr (i8, ptr @{_PLACEHOLDER}, i64 {one.offset}), ptr null }}, "
            f'section "{place.wrappers}", align 8\n'
            # nvcc does it at exit, too: the runtime is gone when destructors run. In a library, exit is dlclose.
            f"define internal void @unregister.{number}() {place.function} {{\n"
            f"  %h = load ptr, ptr @handle.{number}\n"
            "  call void @__cudaUnregisterFatBinary(ptr %h)\n"
            "  ret void\n}\n"
        )
        handle = f"%h{number}"
        body.append(
            f"  {handle} = call ptr @__cudaRegisterFatBinary(ptr @wrapper.{number})\n"
            f"  store ptr {handle}, ptr @handle.{number}\n"
        )
        for name in one.names.kernels:
            yield _text(number, name)
            # Only its address is used: arguments go through cudaLaunchKernel.
            yield f"define {seen}void @{prefix}{name}() noinline {place.function} {{\n"
            # Linkers that fold equal functions would give all kernels one address, and the runtime start another one.
            count += 1
            yield f"  %own = alloca i32\n  store volatile i32 {count}, ptr %own\n"
            yield "  call void @llvm.trap()\n  unreachable\n}\n"
            text = f"ptr @name.{number}.{name}"
            arguments = f"ptr {handle}, ptr @{prefix}{name}, {text}, {text}, i32 -1, {', '.join(['ptr null'] * 5)}"
            body.append(f"  call i32 @__cudaRegisterFunction({arguments})\n")
        for variable in one.names.variables:
            yield _text(number, variable.name)
            held = f"[{variable.size} x i8] zeroinitializer{place.variables}, align 16"
            yield f"@{prefix}{variable.name} = {seen}global {held}\n"
            text = f"ptr @name.{number}.{variable.name}"
            body.append(
                f"  call void @__cudaRegisterVar(ptr {handle}, ptr @{prefix}{variable.name}, {text}, {text}, i32 0, "
                f"i64 {variable.size}, i32 {int(variable.constant)}, i32 0)\n"
            )
        body.append(f"  call void @__cudaRegisterFatBinaryEnd(ptr {handle})\n")
        body.append(f"  call i32 @atexit(ptr @unregister.{number})\n")
    yield "".join([*body, "  ret void\n}\n"])
    yield f'@llvm.compiler.used = appending global [{len(used)} x ptr] [{", ".join(used)}], section "llvm.metadata"\n'
    held = f'[1 x i8] zeroinitializer, section "{place.fatbins}", align {_ALIGNMENT}'
    yield f"@{_PLACEHOLDER} = internal constant {held}\n"


def _text(number: int, name: str) -> str:
    return f'@name.{number}.{name} = private constant [{len(name) + 1} x i8] c"{name}\\00"\n'
