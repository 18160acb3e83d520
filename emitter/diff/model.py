"""What differs between two files: plain records, which every output prints."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal, TypeAlias

__all__ = ["SECTIONS", "Change", "Difference", "TensorChange"]

ChangeKind: TypeAlias = 'Literal["added", "removed", "changed"]'

# The parts of a difference, in the order in which they are shown.
SECTIONS = ("identity", "dependencies", "hardening", "sections", "symbols", "packs", "modules", "metadata", "sizes")


class Change(NamedTuple):
    """One thing that is in one file alone, or not the same in both; `before` is of the first file, None if not in it.

    `member` is the archive member, or the slice, that it is about; empty for the file itself.
    """

    member: str
    subject: str
    before: str | None
    after: str | None

    @property
    def kind(self) -> ChangeKind:
        """Whether it was added, removed, or changed."""
        return "added" if self.before is None else "removed" if self.after is None else "changed"


class TensorChange(NamedTuple):
    """A tensor that is in one file alone, or not the same in both.

    `before` and `after` are type and shape, as in `float32 [3, 4]`. Where these are equal, `elements` is how many there
    are, `different` how many of them have other bits, and `largest_difference` the largest absolute difference of two
    that are numbers in both: None where nothing can be subtracted (bool, encoded bytes), infinity between a number and
    an infinity. `unit` is what was counted: "elements", or "bytes" where elements share bytes or are unknown.
    """

    name: str
    before: str | None
    after: str | None
    elements: int = 0
    different: int = 0
    largest_difference: float | None = None
    unit: str = "elements"

    @property
    def kind(self) -> ChangeKind:
        """Whether it was added, removed, or changed."""
        return "added" if self.before is None else "removed" if self.after is None else "changed"


class Difference(NamedTuple):
    """All that differs between the files `a` and `b`; `same_tensors` is how many tensors are equal in both."""

    a: str
    b: str
    sections: Mapping[str, Sequence[Change]]
    tensors: Sequence[TensorChange]
    same_tensors: int

    @property
    def empty(self) -> bool:
        """Whether nothing differs."""
        return not self.tensors and not any(self.sections.values())
