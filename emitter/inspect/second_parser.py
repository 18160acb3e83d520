"""Compares what the readers of this package found with what another project's parser finds.

ELF: pyelftools. Mach-O, PE, COFF: lief. Both are slow, and lief reads files whole, so only small files are compared. A
parser that refuses a file, or finds nothing where the other finds something, is a difference like any other.
"""

from __future__ import annotations

from itertools import zip_longest

from emitter.errors import EmitterError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from emitter.inspect.report import Reader

    # A group of facts, such as the sections: each with the name of its subject, in file order.
    Facts = Iterator[tuple[str, object]]
    Groups = dict[str, Callable[[], Facts]]

__all__ = ["MAX_RECORDS", "MAX_SIZE", "Difference", "compare"]

MAX_SIZE = 32 << 20  # bytes of a file
MAX_RECORDS = 20_000  # sections and symbols

_MAX_DIFFERENCES = 20  # of one group


class Difference(NamedTuple):
    """Two parsers disagree on `subject`; `ours` and `theirs` are what each found, as text."""

    parser: str
    subject: str
    ours: str
    theirs: str


def compare(reader: Reader) -> list[Difference] | None:
    """Return where another parser disagrees with `reader`; None where it was not asked.

    It is not asked about files of more than MAX_SIZE bytes or MAX_RECORDS records, about formats that it does not read,
    where it is not installed, and where `reader` itself finds the headers broken.
    """
    if reader.view.size > MAX_SIZE or reader.container:
        return None
    name = type(reader).__module__.rpartition(".")[2]
    try:
        if name == "elf":
            from emitter.inspect import second_elf

            parser, pairs = "pyelftools", second_elf.groups(reader)
        elif name in ("macho", "pe", "coff"):
            from emitter.inspect import second_lief

            parser, pairs = "lief", second_lief.groups(reader)
        else:
            return None
    except (ImportError, EmitterError):
        return None
    if pairs is None:
        return None
    ours, theirs = pairs
    found: list[Difference] = []
    for group, facts in ours.items():
        found += _compare(parser, group, facts, theirs[group])
    return found


def _compare(parser: str, group: str, ours: Callable[[], Facts], theirs: Callable[[], Facts]) -> list[Difference]:
    our_error = their_error = ""
    our_facts: list[tuple[str, object]] = []
    their_facts: list[tuple[str, object]] = []
    try:
        our_facts = list(ours())
    except EmitterError as error:
        our_error = str(error)
    try:
        their_facts = list(theirs())
    except Exception as error:  # whatever a foreign parser raises, it refuses the file
        their_error = f"{type(error).__name__}: {error}"
    if our_error and their_error:
        return []
    if our_error or their_error:
        return [
            Difference(
                parser, group, our_error or f"{len(our_facts)} facts", their_error or f"{len(their_facts)} facts"
            )
        ]
    found = []
    for one, other in zip_longest(our_facts, their_facts, fillvalue=(group, "nothing")):
        if one != other:
            found.append(Difference(parser, one[0], str(one[1]), str(other[1])))
            if len(found) == _MAX_DIFFERENCES:
                break
    return found
