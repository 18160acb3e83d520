"""The check after writing: reads the output back and compares it with its plan and its target.

It reads headers and tables, never payload, whose checksums prove themselves: a few milliseconds for any file. It is
written apart from the writers: what one gets wrong, the other finds.
"""

from __future__ import annotations

from importlib import import_module

from emitter.check.pack import check_pack
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from emitter.layout import FilePlan
    from emitter.options import Format
    from emitter.pack.plan import PackPlan
    from emitter.targets._base import Target

__all__ = ["check", "check_of"]

# The module and the function for a format; each takes (fd, target, plan, pack, symbol).
_CHECKS: Mapping[tuple[str, Format], tuple[str, str]] = {
    ("elf", "object"): ("emitter.check.elf", "check_object"),
    ("elf", "archive"): ("emitter.check.archive", "check_archive"),
    ("elf", "library"): ("emitter.check.elf", "check_image"),
    ("macho", "object"): ("emitter.check.macho", "check_object"),
    ("macho", "archive"): ("emitter.check.archive_bsd", "check_archive"),
    ("macho", "library"): ("emitter.check.macho", "check_image"),
    ("coff", "object"): ("emitter.check.coff", "check_object"),
    ("coff", "archive"): ("emitter.check.archive_coff", "check_archive"),
    ("coff", "library"): ("emitter.check.pe", "check_image"),
}


def check_of(format: Format, target: Target) -> Callable[..., object]:  # noqa: A002 - the word of the options
    """Return the check of a format, which is imported; a bare pack has another."""
    module, function = _CHECKS[target.object_format, format]
    found: Callable[..., object] = getattr(import_module(module), function)
    return found


def check(  # noqa: PLR0917 - six facts about one output, in the order in which they arise
    fd: int,
    format: Format,  # noqa: A002 - the word of the options
    target: Target,
    plan: FilePlan,
    pack: PackPlan | None,
    symbol: str | None,
) -> None:
    """Compare the written file `fd` with its plan; raise OutputError that names the first field which differs.

    `pack` and `symbol` (the pack's name) are None where the output holds no pack.
    """
    if format == "pack":
        check_pack(fd, target, plan, pack)
        return
    if plan.compiled or any(one.plan.compiled for one in plan.slices):
        from emitter.check.pieces import check_pieces

        check_pieces(fd, plan)
        return
    check_format = check_of(format, target)
    if plan.slices:
        from emitter.check.universal import check_universal

        check_universal(fd, plan, pack, symbol, check_format)
    else:
        check_format(fd, target, plan, pack, symbol)
