"""Limits of formats: the numbers, their edges in real plans, and what is proposed beyond them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from emitter import Package, emit
from emitter.errors import LayoutError
from emitter.limits import (
    PE_MAX_IMAGE_SIZE,
    Limit,
    exceeded,
    limits_of,
    linkers,
    proposals,
    sidecar_exceeded,
    sidecar_limit,
)
from emitter.options import make_options
from emitter.planner import Planner
from emitter.targets import describe_all, resolve

if TYPE_CHECKING:
    from pathlib import Path

    from emitter.options import Format

GIB = 1 << 30

# What the specifications say, written down here again.
TIGHTEST: list[tuple[str, Format, int | None]] = [
    ("x86_64-linux-gnu", "object", None),
    ("x86_64-linux-gnu", "library", None),
    ("x86_64-linux-gnu", "archive", 9_999_999_999),
    ("x86_64-linux-gnu", "pack", None),
    ("armv7-linux-gnueabihf", "object", 0xFFFFFFFF),
    ("armv7-linux-gnueabihf", "archive", 0xFFFFFFFF),
    ("armv7-linux-gnueabihf", "library", GIB),
    ("armv7-linux-gnueabihf", "pack", 0xFFFFFFFF),
    ("thumbv7em-none-eabihf", "object", 0xFFFFFFFF),
    ("arm64-apple-macos", "object", 0xFFFFFFFF),
    ("arm64-apple-macos", "archive", 0xFFFFFFFF),
    ("arm64-apple-macos", "library", 0xFFFFFFFF),
    ("arm64-apple-macos", "pack", None),
    ("x86_64-windows-msvc", "object", 0xFFFFFFFF),
    ("x86_64-windows-msvc", "archive", 0xFFFFFFFF),
    ("x86_64-windows-msvc", "library", 0x7FFFFFFF),
    ("i686-windows-gnu", "library", GIB),
    ("x86_64-windows-msvc", "pack", None),
]


@pytest.mark.parametrize(("name", "format_", "size"), TIGHTEST)
def test_the_tightest_limit(name: str, format_: Format, size: int | None) -> None:
    target = resolve(name).target
    limits = limits_of(target, format_)
    assert limits == sorted(limits)
    assert (limits[0].size if limits else None) == size
    if size is None:
        assert exceeded(target, format_, 1 << 62) is None
    else:
        assert exceeded(target, format_, size) is None
        assert exceeded(target, format_, size + 1) == limits[0]


def sparse(folder: Path, size: int, name: str = "w") -> Package:
    path = folder / name
    with path.open("wb") as file:
        file.truncate(size)
    package = Package()
    package.add_input(f"raw:{path}")
    return package


def planned(package: Package, target: str, output: str, **options: Any) -> int:
    """Return the size of the output, which is planned and not written."""
    planner = Planner(package, make_options(options), lambda _line: None, lambda _line: None)
    (job,) = planner.plan(output, [resolve(target)])
    return job.plan.size


@pytest.mark.parametrize(
    ("target", "output", "limit"),
    [
        ("armv7-linux-gnueabihf", "x.so", GIB),
        ("armv7-linux-gnueabihf", "x.o", 0xFFFFFFFF),
        ("arm64-apple-macos", "x.dylib", 0xFFFFFFFF),
        ("arm64-apple-macos", "x.o", 0xFFFFFFFF),
        ("arm64-apple-macos", "x.a", 0xFFFFFFFF),
        ("x86_64-windows-msvc", "x.dll", 0x7FFFFFFF),
        ("x86_64-windows-msvc", "x.obj", 0xFFFFFFFF),
        ("x86_64-windows-msvc", "x.lib", 0xFFFFFFFF),
        ("x86_64-linux-gnu", "x.a", 9_999_999_999),
    ],
)
def test_the_largest_file_that_is_planned_keeps_the_limit(target: str, output: str, limit: int, tmp_path: Path) -> None:
    # By bisection: sparse files, and nothing is written. What stands around the payload counts too.
    low, high = limit - (64 << 20), limit
    assert planned(sparse(tmp_path, low), target, output) <= limit + (1 << 20)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            planned(sparse(tmp_path, middle), target, output)
        except LayoutError:
            high = middle
        else:
            low = middle
    size = planned(sparse(tmp_path, low), target, output)
    assert limit - (8 << 20) < size <= limit + (1 << 20)  # that of an archive's member is below that of the archive
    if not output.endswith(".a") or target == "arm64-apple-macos":
        assert size <= limit
    # Beyond it all are refused, also where what stands around the payload is beyond what fields of the format hold.
    for beyond in (high, limit - (2 << 20), limit - (1 << 20), limit, limit + 1):
        if beyond >= high:
            with pytest.raises(LayoutError, match=str(limit)):
                planned(sparse(tmp_path, beyond), target, output)


@pytest.mark.parametrize(
    ("target", "output", "size", "hints"),
    [
        ("x86_64-windows-msvc", "x.dll", 2 * GIB, ["--sidecar", ".pack: a pack holds it"]),  # no program has that .lib
        ("x86_64-windows-msvc", "x.dll", 5 * GIB, ["--sidecar", ".pack: a pack holds it"]),
        ("arm64-apple-macos", "x.dylib", 4 * GIB, ["--sidecar", ".pack: a pack holds it"]),
        ("arm64-apple-macos", "x.o", 4 * GIB, ["a .dylib with --sidecar", ".pack: a pack holds it"]),
        ("x86_64-linux-gnu", "x.a", 10 * GIB, ["a .so with --sidecar", ".so: a library holds it"]),
        ("armv7-linux-gnueabihf", "x.so", 2 * GIB, [".a: an archive holds it"]),
        ("armv7-linux-gnueabihf", "x.pack", 5 * GIB, ["nothing holds the largest tensor, 5368709120 bytes"]),
    ],
)
def test_an_emission_over_a_limit_says_what_works(
    target: str, output: str, size: int, hints: list[str], tmp_path: Path
) -> None:
    package = sparse(tmp_path, size)
    with pytest.raises(LayoutError, match="is too large: expected at most") as caught:
        emit(package, tmp_path / output, target=target)
    assert caught.value.hint is not None
    found = caught.value.hint.split("; or ")
    assert [text[: len(hint)] for text, hint in zip(found, hints, strict=True)] == hints
    assert [path.name for path in tmp_path.iterdir()] == ["w"]


@pytest.mark.parametrize("name", ["x86_64-windows-msvc", "arm64-apple-macos", "x86_64-linux-gnu"])
def test_what_is_proposed_can_be_planned(name: str, tmp_path: Path) -> None:
    target = resolve(name).target
    package = sparse(tmp_path, 11 * GIB)
    assert planned(package, name, f"x{target.image_suffix}", sidecar=True) < 1 << 20
    assert planned(package, name, "x.pack") > 11 * GIB


def test_several_libraries_are_proposed_if_the_tensors_fit(tmp_path: Path) -> None:
    package = Package()
    for number in range(4):
        path = tmp_path / f"w{number}"
        with path.open("wb") as file:
            file.truncate(GIB)
            file.seek(number << 12)
            file.write(b"differs")
        package.add_input(f"raw:{path}", prefix=f"w{number}")
    with pytest.raises(LayoutError) as caught:
        emit(package, tmp_path / "x.dll", target="x86_64-windows-msvc")
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("or libraries for parts of the model: 3 or more")


def test_a_sidecar_has_the_room_of_a_library_in_32_bits(tmp_path: Path) -> None:
    arm, x86 = resolve("armv7-linux-gnueabihf").target, resolve("x86_64-linux-gnu").target
    assert sidecar_limit(arm) == Limit(GIB, "one piece of a 32-bit address space")
    assert sidecar_limit(x86) is None
    assert sidecar_exceeded(arm, GIB) is None
    assert sidecar_exceeded(arm, GIB + 1)
    with pytest.raises(LayoutError, match="the sidecar is too large"):
        planned(sparse(tmp_path, GIB), arm.name, "x.so", sidecar=True)
    assert planned(sparse(tmp_path, GIB - (64 << 10)), arm.name, "x.so", sidecar=True) < 1 << 20


def test_proposals_are_for_every_target_and_format() -> None:
    for target in describe_all():
        for format_ in ("object", "archive", "library", "pack"):
            for size in (GIB + 1, 2 * GIB, 4 * GIB, 10 * GIB):
                if exceeded(target, format_, size):
                    assert proposals(target, format_, size, 1)


@pytest.mark.parametrize(
    ("name", "large", "script", "good"),
    [
        ("x86_64-linux-gnu", False, False, []),
        ("x86_64-linux-gnu", True, False, ["GNU ld"]),
        ("x86_64-linux-gnu", True, True, ["GNU ld", "lld"]),
        ("aarch64-linux-gnu", False, False, []),
        ("aarch64-linux-gnu", False, True, ["GNU ld", "lld"]),
        ("riscv64-linux-gnu", False, True, ["GNU ld"]),
        ("s390x-linux-gnu", False, True, ["GNU ld"]),
        ("powerpc64le-linux-gnu", False, False, []),
    ],
)
def test_linkers_beyond_the_reach(name: str, large: bool, script: bool, good: list[str]) -> None:
    target = resolve(name).target
    found = linkers(target, target.reach + 1, large=large, script=script)
    assert found is not None
    assert [linker.name for linker in found if linker.links] == good
    assert linkers(target, target.reach, large=large, script=script) == ()


@pytest.mark.parametrize("name", ["loongarch64-linux-gnu", "armv7-linux-gnueabihf", "x86_64-apple-macos"])
def test_what_was_not_measured_is_not_claimed(name: str) -> None:
    target = resolve(name).target
    assert linkers(target, target.reach + 1, large=False, script=True) is None


def test_a_file_that_its_headers_make_too_large_has_proposals_too(tmp_path: Path) -> None:
    # The bytes alone would fit; with what a DLL puts around them they do not.
    package = sparse(tmp_path, (2 << 30) - (70 << 10))
    with pytest.raises(LayoutError) as caught:
        planned(package, "x86_64-windows-msvc", "x.dll")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("--sidecar: ")


def test_targets_and_writers_have_these_limits() -> None:
    for target in describe_all():
        if target.object_format == "coff" and target.pointer_width == 64:
            assert target.max_image_size == PE_MAX_IMAGE_SIZE, target.name
