"""The modules of TVM for programs without dlopen: a constructor registers them when the program starts.

LLVM compiles the constructor, a few lines of IR, with one byte in place of the modules, alone in the last section; then
that section grows to what they need. So the bytes pass neither through LLVM nor through memory.

Source: apache-tvm-ffi 0.1.15, TVMFFIEnvModRegisterSystemLibSymbol in tvm/ffi/extra/c_env_api.h.
"""

from __future__ import annotations

from emitter.errors import UsageError, shown
from emitter.interop.tvm_object import ALIGNMENT
from emitter.interop.tvm_wire import LIBRARY_BIN
from emitter.layout import FilePlan, Piece, identifier
from emitter.records import TYPE_CHECKING
from emitter.symbols import use_large_data

if TYPE_CHECKING:
    from emitter.interop.tvm_wire import Wire
    from emitter.targets._base import Target

__all__ = ["REGISTER", "plan_system_lib"]

REGISTER = "TVMFFIEnvModRegisterSystemLibSymbol"

# By object format: the section of pointers to constructors, and that of the modules.
_CONSTRUCTORS = {"elf": ".init_array", "macho": "__DATA,__mod_init_func,mod_init_funcs", "coff": ".CRT$XCU"}
_SECTIONS = {"elf": ".rodata.tvm", "macho": "__TEXT,__tvm", "coff": ".rdata$tvm"}


def plan_system_lib(target: Target, wire: Wire, prefix: str) -> FilePlan:
    """Return an object with the symbol `<prefix>__tvm_ffi__library_bin`, and a constructor that registers it.

    Raises UsageError for a prefix that cannot begin a C identifier, TargetError where llvmlite is missing or LLVM
    refuses, LayoutError for what the format cannot hold.
    """
    name = f"{prefix}{LIBRARY_BIN}"
    if identifier(name) != name:
        raise UsageError(
            "the prefix does not begin a C identifier", expected="letters, digits and _", actual=shown(prefix)
        )
    from emitter.interop.grow import grow
    from emitter.llvm import emit_object, property_flags

    large = target.large_data if use_large_data(target, wire.size, "auto") else None
    section = f"{large.section}.tvm" if large else _SECTIONS[target.object_format]
    constructors = _CONSTRUCTORS[target.object_format]
    word = target.pointer_width // 8
    ir = f"""\
@name = private constant [{len(name) + 1} x i8] c"{name}\\00"
@constructor = internal global ptr @_GLOBAL__sub_I_{prefix}devc, section "{constructors}", align {word}
@{name} = constant [1 x i8] zeroinitializer, section "{section}", align {ALIGNMENT}
@llvm.compiler.used = appending global [1 x ptr] [ptr @constructor], section "llvm.metadata"
declare i32 @{REGISTER}(ptr, ptr)
define internal void @_GLOBAL__sub_I_{prefix}devc() nounwind {{
  %ignored = call i32 @{REGISTER}(ptr @name, ptr @{name})
  ret void
}}
{property_flags(target)}"""
    start, size, pieces = grow(target, emit_object(target, ir), name, wire.size)
    pieces += (Piece(start + piece.offset, piece.data) for piece in wire.pieces)
    pieces.sort(key=lambda piece: piece.offset)
    return FilePlan(size, pieces, [copy.moved(start) for copy in wire.copies])
