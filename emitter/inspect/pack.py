"""Reads a pack that is a file of its own."""

from __future__ import annotations

from emitter.inspect.packs import read_packs
from emitter.inspect.report import Fault, Identity, PackEntry, Reader, Report, collect_faults

__all__ = ["PackFile"]


class PackFile(Reader):
    """A pack (docs/pack-format.md)."""

    kind = "pack"

    def report(self, page_size: int = 0) -> Report:
        """Return the report; a pack that cannot be read is a fault of it."""
        faults: list[Fault] = []
        packs: list[PackEntry] = []
        with collect_faults(faults, "packs"):
            packs = read_packs(self.view, faults)
        pack = packs[0] if packs else None
        identity = Identity(
            format="pack",
            kind=self.kind,
            machine="any",
            byte_order=pack.byte_order if pack else "",
            version=".".join(map(str, pack.version)) if pack else "",
        )
        return Report(
            where=self.view.where,
            base=self.view.base,
            size=self.view.size,
            identity=identity,
            page_size=page_size or 4096,
            segments=(),
            sections=(),
            symbol_count=0,
            symbols=lambda: iter(()),
            dependencies=(),
            hardening=(),
            packs=packs,
            faults=faults,
        )
