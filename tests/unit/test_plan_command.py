"""`emitter plan`: what it says is what an emission does, and nothing is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from emitter.cli import main

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the empty folder of the test the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sparse(path: Path, size: int) -> str:
    with path.open("wb") as file:
        file.truncate(size)
    return f"raw:{path.name}"


def plan(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Any:
    assert main(["plan", "--json", *arguments]) == status
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


OUTPUTS = [
    ("x86_64-linux-gnu", "libx.so", []),
    ("x86_64-linux-gnu", "x.o", ["--retain"]),
    ("x86_64-linux-gnu", "x.a", ["--section", ".w"]),
    ("x86_64-linux-gnu", "x.o", ["--symbols", "xxd"]),
    ("s390x-linux-gnu", "x.pack", []),
    ("arm64-apple-macos", "x.dylib", ["--align", "4096"]),
    ("arm64-apple-macos", "x.o", []),
    ("x86_64-windows-msvc", "x.dll", ["--tensor-symbols"]),
    ("x86_64-windows-msvc", "x.obj", []),
    ("i686-linux-gnu", "libx.so", ["--sidecar"]),
    ("x86_64-windows-msvc", "x.dll", ["--sidecar", "--pin", "--sidecar-name", "w.bin"]),
]


@pytest.mark.parametrize(("target", "output", "options"), OUTPUTS)
def test_it_says_what_the_emission_does(
    target: str, output: str, options: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a").write_bytes(bytes(range(256)) * 5000)
    (folder / "b").write_bytes(bytes(range(256)) * 5000)
    arguments = ["raw:a", "raw:b", "-o", output, "--target", target, *options]
    document = plan(capsys, *arguments)
    assert sorted(os.listdir(folder)) == ["a", "b"]
    assert main(["--json", "--map", "map.json", *arguments]) == 0
    (written,) = json.loads(capsys.readouterr().out)["outputs"]
    assert document["schema"] == "emitter.plan/1"
    assert document["fits"] is True
    (said,) = document["outputs"]
    for key in ("path", "target", "format", "symbol", "size", "tensors", "payload_size", "deduplicated_size"):
        assert said[key] == written[key], key
    assert said["size"] == (folder / output).stat().st_size
    found = json.loads((folder / "map.json").read_text())
    assert said["payload_offset"] == found["tensors"][0]["file_offset"]
    sidecar = said["sidecar"]
    assert (sidecar and sidecar["path"]) == written["sidecar"]
    assert (sidecar and sidecar["size"]) == written["sidecar_size"]
    assert (sidecar and sidecar["pinned"]) == ("--pin" in options if "--sidecar" in options else None)
    assert (said["problem"], said["proposals"], said["warnings"]) == (None, [], [])


@pytest.mark.parametrize(
    ("target", "options", "path"),
    [
        ("x86_64-linux-gnu", [], "libmodel.so"),
        ("x86_64-linux-gnu", ["--emit", "archive"], "libmodel.a"),
        ("arm64-apple-macos", [], "libmodel.dylib"),
        ("arm64-apple-macos", ["--emit", "object"], "model.o"),
        ("x86_64-windows-msvc", [], "model.dll"),
        ("x86_64-windows-msvc", ["--emit", "object"], "model.obj"),
        ("thumbv7em-none-eabihf", [], "model.o"),
        ("x86_64-linux-gnu", ["--emit", "pack"], "model.pack"),
        ("x86_64-linux-gnu", ["--name", "w"], "libw.so"),
    ],
)
def test_without_an_output_the_input_names_it(
    target: str, options: list[str], path: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (said,) = plan(capsys, sparse(folder / "model.bin", 100), "--target", target, *options)["outputs"]
    assert said["path"] == path


def test_several_targets(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blob = sparse(folder / "w", 3 * GIB)
    targets = ["--target", "x86_64-linux-gnu", "--target", "x86_64-windows-msvc"]
    document = plan(capsys, blob, *targets, status=2)
    assert document["fits"] is False
    assert [(one["path"], one["fits"]) for one in document["outputs"]] == [
        ("x86_64-linux-gnu/libw.so", True),
        ("x86_64-windows-msvc/w.dll", False),
    ]


def test_a_universal_file_is_one_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apple = ["--target", "arm64-apple-macos", "--target", "x86_64-apple-macos", "-o", "x.dylib"]
    (said,) = plan(capsys, sparse(folder / "w", GIB), *apple)["outputs"]
    assert said["target"].split("+") == ["arm64-apple-macos", "x86_64-apple-macos"]
    assert 2 * GIB < said["size"] < 2 * GIB + (64 << 20)
    # Each slice of 2.2 GiB is legal alone, and their sum is not.
    (said,) = plan(capsys, sparse(folder / "w", 2200 << 20), *apple, status=2)["outputs"]
    assert said["problem"]["what"].startswith("too large for a universal file")
    assert said["proposals"]


@pytest.mark.parametrize("size", [5 * GIB, (5 * GIB) + 1])
def test_a_file_with_holes_is_planned_in_little_memory(size: int, folder: Path) -> None:
    blob = sparse(folder / "w", size)
    if not os.path.exists("/proc/self/status"):
        pytest.skip("/proc/self/status is not there to tell of memory")
    # ru_maxrss would be that of the process which started this one, where that is larger.
    program = (
        "import re, sys\nfrom emitter.cli import main\nstatus = main(sys.argv[1:])\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr)\nsys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "plan", blob, "--target", "x86_64-linux-gnu"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0
    assert int(done.stderr) < 64 << 10  # KiB
    assert f"libw.so: library for x86_64-linux-gnu, {size >> 30}" in done.stdout
    assert os.stat(folder / "w").st_blocks == 0


def test_beyond_the_reach_of_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blob = sparse(folder / "w", 3 * GIB)
    (near,) = plan(capsys, sparse(folder / "v", GIB), "-o", "v.o", "--target", "x86_64-linux-gnu")["outputs"]
    assert (near["section"], near["large_data"]) == (".lrodata.v", True)  # index and payload exceed the bound
    assert near["reach"] == {"size": 2 * GIB, "exceeded": False, "linkers": []}
    (far,) = plan(capsys, blob, "-o", "w.o", "--target", "x86_64-linux-gnu")["outputs"]
    assert far["fits"] is True
    assert (far["section"], far["large_data"]) == (".lrodata.w", True)
    assert far["reach"]["exceeded"] is True
    assert [linker["name"] for linker in far["reach"]["linkers"] if linker["links"]] == ["GNU ld"]
    assert "exceeds the 2 GiB" in far["warnings"][0]
    scripted = ["--linker-script", "w.ld", "-o", "w.o", "--target", "x86_64-linux-gnu"]
    (far,) = plan(capsys, blob, *scripted)["outputs"]
    assert [linker["name"] for linker in far["reach"]["linkers"] if linker["links"]] == ["GNU ld", "lld"]
    assert far["warnings"] == []
    (other,) = plan(capsys, sparse(folder / "u", 5 * GIB), "-o", "u.o", "--target", "loongarch64-linux-gnu")["outputs"]
    assert (other["reach"]["exceeded"], other["reach"]["linkers"]) == (True, None)
    (library,) = plan(capsys, blob, "-o", "w.so", "--target", "x86_64-linux-gnu")["outputs"]
    assert library["reach"] is None


def test_text_that_fits(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "w").write_bytes(bytes(1000))
    assert main(["plan", "raw:w", "-o", "w.o", "--target", "x86_64-linux-gnu", "--align", "16"]) == 0
    size = capsys.readouterr().out
    assert main(["raw:w", "-o", "w.o", "--target", "x86_64-linux-gnu", "--align", "16"]) == 0
    assert size == (
        f"w.o: object for x86_64-linux-gnu, {_with_unit((folder / 'w.o').stat().st_size)}\n"
        "  tensors    1, 1000 bytes\n"
        "  pack       1304 bytes (1.3 KiB), index 296\n"
        "  payload    at 384 of the file\n"
        "  alignment  16\n"
        "  section    .rodata.w\n"
        "  reach      code of the target reaches 2147483648 bytes (2.0 GiB)\n"
        "  linkers    all\n"
    )


def _with_unit(size: int) -> str:
    return f"{size} bytes ({size / 1024:.1f} KiB)"


def test_text_that_does_not_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blob = sparse(folder / "w", 3 * GIB)
    assert main(["plan", blob, "-o", "w.dll", "--target", "x86_64-windows-msvc"]) == 2
    captured = capsys.readouterr()
    assert captured.err == ""
    limit = f"{2 * GIB - 1} bytes (PE images: 2 GiB, as Microsoft documents it)"
    assert captured.out.splitlines() == [
        "w.dll: library for x86_64-windows-msvc, does not fit",
        "  tensors    1, 3221225472 bytes (3.0 GiB)",
        "  pack       3221291008 bytes (3.0 GiB), index 296",
        "  alignment  64",
        "  pages      segments at multiples of 4096",
        "  reach      any: libraries are opened, no linker places the payload",
        "  limit      2147483647 bytes (2.0 GiB): PE images: 2 GiB, as Microsoft documents it; EXCEEDED",
        f"  problem    the library is too large: expected at most {limit}, found 3221291008",
        "  instead    --sidecar: the library holds the index, a .pack beside it the bytes",
        "             .pack: a pack holds it",
    ]


def test_other_layouts_that_cannot_be_are_problems_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [sparse(folder / "w", 10), "--align", "65536", "--target", "x86_64-linux-gnu"]
    (said,) = plan(capsys, *arguments, status=2)["outputs"]
    assert said["problem"]["what"] == "a library cannot keep the alignment of a tensor"
    assert said["proposals"] == [said["problem"]["hint"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no input"),
        (["raw:nobody"], "nobody: cannot open"),
        (["raw:w", "-o", "x.dll", "--target", "x86_64-linux-gnu"], "the suffix does not belong"),
        (["raw:w", "-o", "x.so", "-o", "y.so"], "-o is given twice"),
        (["raw:w", "--pin"], "add --sidecar"),
        (["raw:w", "--target", "nowhere"], "nowhere"),
        (["raw:w", "--emit", "library", "--target", "thumbv7em-none-eabihf"], "nothing loads a shared library"),
    ],
)
def test_misuse_is_an_error(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sparse(folder / "w", 10)
    assert main(["plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("emitter: error: ")
    assert message in captured.err
    assert os.listdir(folder) == ["w"]


@pytest.mark.parametrize(
    ("target", "page_size"),
    [
        ("x86_64-linux-gnu", 4096),
        ("aarch64-linux-gnu", 65536),
        ("x86_64-apple-macos", 16384),  # a file for any of Apple's CPUs has segments as the largest page wants them
        ("x86_64-windows-msvc", 4096),
        ("thumbv7em-none-eabihf", None),
    ],
)
def test_pages_are_those_of_the_segments(
    target: str, page_size: int | None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blob = sparse(folder / "w", 10)
    (said,) = plan(capsys, blob, "--target", target)["outputs"]
    assert said["page_size"] == page_size


def test_a_manifest_is_input_enough(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sparse(folder / "w", 10)
    (folder / "m.toml").write_text('schema = "emitter.manifest/1"\n[[tensors]]\nname = "t"\nraw = "w"\n')
    (said,) = plan(capsys, "--manifest", "m.toml", "--target", "x86_64-linux-gnu", "-o", "x.so")["outputs"]
    assert (said["format"], said["payload_size"]) == ("library", 10)


def test_two_outputs_in_one_file_are_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blob = sparse(folder / "w", 10)
    targets = ["--target", "x86_64-linux-gnu", "--target", "amd64", "-o", "{triple}.so"]
    assert main(["plan", blob, *targets]) == 2
    assert "two outputs would be one file" in capsys.readouterr().err


def test_a_package_of_modules_alone() -> None:
    from emitter import Package
    from emitter.plan_report import fits, forecast, plan_json, plan_text

    package = Package()
    package.add_module("engine", "tensorrt", bytes(5000))
    found = forecast(package, "x.so", ["x86_64-linux-gnu"], {"sidecar": True})
    assert fits(found)
    said = json.loads(json.dumps(plan_json(package, found)))["outputs"][0]
    assert (said["tensors"], said["payload_size"], said["deduplicated_size"]) == (0, 5000, 0)
    assert "x.pack" in plan_text(package, found)
