"""The command: words, exit statuses, errors, JSON."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import emitter
from emitter.cli import main

TARGET = ["--target", "aarch64-linux-gnu"]


def run(*arguments: str, cwd: Path | None = None, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "emitter", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    path = tmp_path / "blob.bin"
    path.write_bytes(bytes(range(200)))
    return path


def test_bare_command_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "example: emitter --target aarch64-linux-gnu" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"emitter {emitter.__version__}\n"


def test_the_distribution_has_the_same_version() -> None:
    from importlib.metadata import version

    assert version("object-emitter") == emitter.__version__


@pytest.mark.parametrize("word", [[], ["emit"]])
def test_the_main_job(word: list[str], blob: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "libx.so"
    assert main([*word, *TARGET, f"raw:{blob}", "-o", str(out)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ""
    with emitter.load(out) as library:
        assert bytes(library["blob.bin"]) == blob.read_bytes()


def test_a_result_as_json(blob: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "libx.so"
    assert main([*TARGET, f"raw:{blob}", "-o", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert next(iter(document)) == "schema"
    assert document["schema"] == "emitter.emit/1"
    assert document["outputs"][0]["size"] == out.stat().st_size
    assert document["outputs"][0]["symbol"] == "x"
    assert document["outputs"][0]["target"] == "aarch64-linux-gnu"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["blob.bin"], "no output"),
        (["-o", "x.so"], "no input"),
        (["--bogus", "x"], "unrecognized arguments: --bogus"),
        (["missing.safetensors", "-o", "libx.so"], "missing.safetensors: cannot open"),
        (["raw:blob.bin", "-o", "libx.so", "--target", "aarch46-linux-gnu"], "aarch64-linux-gnu"),
        (["raw:blob.bin", "-o", "x.dll", *TARGET], "does not belong to aarch64-linux-gnu"),
        (["raw:blob.bin", "-o", "x", *TARGET], "--emit"),
        (["raw:blob.bin", "-o", "x.so", "--align", "3", *TARGET], "power of two"),
        (["raw:blob.bin", "-o", "x.so", "--align", "x", *TARGET], "--align"),
        (["raw:blob.bin", "-o", "x.so", "--meta", "k", *TARGET], "KEY=VALUE"),
        (["raw:blob.bin", "-o", "x.so", "--meta", "k=1", "--meta", "k=2", *TARGET], "two values"),
        (["raw:blob.bin", "raw:blob.bin", "-o", "x.so", *TARGET], "PREFIX=FILE"),
        (["blob.bin", "-o", "x.so", *TARGET], "raw:"),
        (["raw:blob.bin", "-o", "blob.bin", "--emit", "library", *TARGET], "input"),
        (["raw:blob.bin", "-o", "x.so", *TARGET, "--target", "riscv64-linux-gnu"], "{target}"),
        (["raw:blob.bin", "-o", "x.so", "--map", "x.so", *TARGET], "one file"),
        (["raw:blob.bin", "-o", "no/such/dir/x.so", *TARGET], "no/such/dir"),
        (["blob.bin", "-o", "x.o", "--symbols", "ld", *TARGET], "raw"),
        (["@missing.args"], "missing.args"),
        (["@"], "argument file"),
        (["nonsense"], "no such file or command"),
        (["verfy", "x.so"], "did you mean emitter verify"),
        (["--targt", "x", "raw:blob.bin", "-o", "x.so"], "did you mean --target?"),
        (["raw:blob.bin", "-o", "x.so", "-o", "y.so", *TARGET], "-o is given twice"),
        (["=raw:blob.bin", "-o", "x.so", *TARGET], "no name before ="),
        (["raw:blob.bin", "-o", "x.so", "--target", "arm64,riscv64"], "several --target"),
        (["raw:blob.bin", "-o", "x.so", "--target", "loongarch"], "did you mean loongarch64-linux-gnu?"),
        (["raw:blob.bin", "-o", "x.so", "--section", ".x", *TARGET], "expected object or archive, found a library"),
        (["raw:blob.bin", "-o", "{triple}.so", *TARGET, "--target", "arm64"], "for arm64"),
        (["@loop.args"], "too deeply"),
        (["raw:blob.bin", "-o", "-", *TARGET], "not the name of a file"),
        (["raw:blob.bin", "-o", "", *TARGET], "not the name of a file"),
        (["raw:blob.bin", "-o", "x.so", "--depfile", "", *TARGET], "--depfile is empty"),
        (["raw:blob.bin", "-o", "x.o", "--soname", "", *TARGET], "--soname is empty"),
        (["raw:blob.bin", "-o", "x.o", "--large-data", "always", "--section", ".x", *TARGET], "--section"),
        (["raw:blob.bin", "-o", "x.o", "--symbols", "ld", "--meta", "a=b", *TARGET], "metadata"),
        (["raw:blob.bin", "-o", "x.o", "--symbols", "ld", "--model-version", "1", *TARGET], "model version"),
        (["raw:blob.bin", "-o", "x.so", "--target", "aarch64-linux-gnu." + "9" * 5000], "aarch64-linux-gnu"),
        (["targets", "nonsense"], "nonsense"),
        (["targets", "a", "b"], "unrecognized"),
        (["header", "--bogus"], "--bogus"),
        (["header", "-o", "no/such/dir/emitter.h"], "no/such/dir"),
    ],
)
def test_misuse_is_one_line_and_exit_2(
    arguments: list[str],
    message: str,
    blob: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.args").write_text("@loop.args")
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("emitter: error: ")
    assert "internal error" not in captured.err
    assert captured.err.count("\n") == 1
    assert len(captured.err) < 1000
    assert message in captured.err
    assert sorted(os.listdir(tmp_path)) == [blob.name, "loop.args"]

    assert main([*arguments, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.err == ""
    document = json.loads(captured.out)
    assert document["schema"] == "emitter.error/1"
    assert set(document["errors"][0]) == {"kind", "what", "where", "expected", "actual", "hint"}


def test_control_characters_of_names_do_not_reach_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["evil\x1b[31m\n\u202ename", "-o", "x.so"]) == 2
    error = capsys.readouterr().err
    assert "\x1b" not in error
    assert "\u202e" not in error
    assert error.count("\n") == 1


def test_a_file_called_like_a_command_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "targets").write_bytes(b"data")
    assert main(["./targets", "-o", "x.pack"]) == 2
    assert "not recognised" in capsys.readouterr().err
    assert main(["emit", "raw:targets", "-o", "x.pack"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["a=raw:{a}", "-o", "{out}", "b=raw:{b}"],
        ["-o", "{out}", "a=raw:{a}", "--target", "x86_64-linux-gnu", "b=raw:{b}", "--quiet"],
        ["-o", "{out}", "--", "a=raw:{a}", "b=raw:{b}"],
    ],
)
def test_inputs_may_stand_among_the_options(arguments: list[str], tmp_path: Path) -> None:
    places = {"a": tmp_path / "a", "b": tmp_path / "b", "out": tmp_path / "out.pack"}
    places["a"].write_bytes(b"first")
    places["b"].write_bytes(b"second")
    assert main([argument.format(**places) for argument in arguments]) == 0
    with emitter.load(places["out"]) as model:
        assert {name: bytes(model[name]) for name in model} == {"a": b"first", "b": b"second"}


def test_arguments_from_a_file(blob: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "args").write_text("--target\naarch64-linux-gnu\n\n-o\nwith space.pack\nraw:blob.bin\n")
    assert main(["@args"]) == 0
    assert (tmp_path / "with space.pack").exists()


def test_raw_takes_every_input_as_it_is(blob: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.pack"
    assert main(["--raw", f"a={blob}", f"b=raw:{blob}", "-o", str(out)]) == 0
    with emitter.load(out) as library:
        assert sorted(library) == ["a", "b"]


def test_metadata_and_model_version(blob: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.pack"
    options = ["--meta", "k=v=w", "--meta", "empty=", "--model-version", "2026-03"]
    assert main([f"raw:{blob}", "-o", str(out), *options]) == 0
    with emitter.load(out) as library:
        assert dict(library.metadata) == {"k": "v=w", "empty": ""}
        assert library.model_version == "2026-03"


def test_what_is_said_wins_over_what_the_inputs_say(blob: Path, tmp_path: Path) -> None:
    first, second, third = (str(tmp_path / f"{name}.pack") for name in "abc")
    assert main([f"raw:{blob}", "-o", first, "--meta", "k=1", "--meta", "other=x", "--model-version", "7"]) == 0
    assert main([first, "-o", second, "--keep-metadata", "--meta", "k=2", "--model-version", "8"]) == 0
    with emitter.load(second) as library:
        assert dict(library.metadata) == {"k": "2", "other": "x"}
        assert library.model_version == "8"
    assert main([first, "-o", third]) == 0
    with emitter.load(third) as library:
        assert dict(library.metadata) == {}
        assert library.model_version == ""


@pytest.mark.parametrize(
    ("option", "warned"), [([], True), (["--quiet"], False), (["--linker-script", "far.ld"], False)]
)
def test_a_payload_beyond_the_reach_of_code_is_warned_of(
    option: list[str], warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with open("big", "wb") as file:
        file.truncate((1 << 31) + 1)
    assert main(["raw:big", "-o", "big.o", "--target", "riscv64", *option]) == 0
    error = capsys.readouterr().err
    assert ("warning: the payload exceeds the 2 GiB" in error) is warned
    assert warned or not error


@pytest.mark.parametrize("name", ["x.o", "x.a", "x.so", "x.pack"])
def test_what_a_32_bit_target_cannot_address_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with open("big", "wb") as file:
        file.truncate(1 << 32)
    assert main(["raw:big", "-o", name, "--target", "armhf"]) == 2
    assert "too large" in capsys.readouterr().err
    assert os.listdir() == ["big"]


def test_targets_are_listed_and_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets"]) == 0
    assert "aarch64-linux-gnu" in capsys.readouterr().out
    assert main(["targets", "arm64"]) == 0
    assert "e_machine" in capsys.readouterr().out
    assert main(["targets", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert next(iter(document)) == "schema"


def test_the_header_is_written_and_found(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    out = tmp_path / "emitter.h"
    assert main(["header", "-o", str(out)]) == 0
    stamp = out.stat().st_mtime_ns
    assert main(["header", "-o", str(out)]) == 0
    assert out.stat().st_mtime_ns == stamp
    capsysbinary.readouterr()
    assert main(["header"]) == 0
    assert capsysbinary.readouterr().out == out.read_bytes()
    assert main(["--include-dir"]) == 0
    directory = capsysbinary.readouterr().out.decode().rstrip("\n")
    assert (Path(directory) / "emitter.h").read_bytes() == out.read_bytes()


def test_several_targets_in_one_call(blob: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for directory in ("arm64", "s390x"):
        os.mkdir(directory)
    options = ["--target", "arm64", "--target", "s390x", "--name", "m", "--map", "{target}/map.json", "--header", "m.h"]
    assert main([f"raw:{blob}", "-o", "{target}/{lib}", *options]) == 0
    for directory, order in (("arm64", "little"), ("s390x", "big")):
        with emitter.load(tmp_path / directory / "libm.so") as library:
            assert bytes(library["blob.bin"]) == blob.read_bytes()
        assert json.loads((tmp_path / directory / "map.json").read_text())["byte_order"] == order


def test_verbose_says_what_is_decided(blob: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TARGET, f"raw:{blob}", "-o", str(tmp_path / "libx.so"), "-v"]) == 0
    error = capsys.readouterr().err
    assert "1 tensors" in error
    assert "64-bit Arm Linux" in error


@pytest.mark.parametrize("arguments", [["targets"], ["header"], ["--version"], ["nonsense", "--json"]])
def test_a_reader_that_has_gone_away_is_no_failure_of_ours(arguments: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "emitter", *arguments]
    result = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(write_end)
    assert result.returncode == 2
    assert result.stderr == ""


@pytest.mark.parametrize("arguments", [["targets"], ["header"], ["--version"], ["targets", "--json"]])
def test_a_full_standard_output_is_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "emitter", *arguments]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert result.returncode == 2
    assert result.stderr == "emitter: error: standard output: cannot write: No space left on device\n"


def test_json_may_be_asked_for_in_an_argument_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "args").write_text("--json\nmissing\n-o\nx.so\n")
    assert main([f"@{tmp_path / 'args'}"]) == 2
    assert json.loads(capsys.readouterr().out)["schema"] == "emitter.error/1"


def test_an_install_name_is_no_argument_file(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"w")
    output = tmp_path / "libw.dylib"
    arguments = ["--target", "arm64-apple-macos", f"raw:{tmp_path / 'w.bin'}", "-o", str(output)]
    (tmp_path / "args").write_text("\n".join([*arguments, "--install-name", "@loader_path/args"]))
    for name, given in (
        (b"@rpath/args", [*arguments, "--install-name", "@rpath/args"]),
        (b"@rpath/other", [*arguments, "--install-name=@rpath/other"]),
        (b"@loader_path/args", [f"@{tmp_path / 'args'}"]),
    ):
        assert main(given) == 0
        assert name + b"\0" in output.read_bytes()


def test_an_argument_file_need_not_be_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "args").write_bytes(b"raw:\xff\xfe\n-o\nx.pack\n")
    assert main([f"@{tmp_path / 'args'}"]) == 2
    assert "cannot open" in capsys.readouterr().err


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("seconds", "options", "shown"), [(2.0, [], True), (0.01, [], False), (2.0, ["--quiet"], False)]
)
def test_progress_appears_on_a_terminal_after_a_second(
    seconds: float, options: list[str], shown: bool, blob: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from emitter import transfer

    clock = iter(range(10_000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock) * seconds)
    monkeypatch.setattr(transfer, "_PROGRESS_INTERVAL", 0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    blob.write_bytes(bytes(range(256)) * (3 * transfer.STEP // 256))
    inputs = [f"{name}=raw:{blob}" for name in "abc"]
    assert main(["--align", "4096", *inputs, "-o", str(tmp_path / "x.pack"), *options]) == 0
    written = terminal.getvalue()
    assert ("MiB" in written) is shown
    assert not shown or written.endswith("\r\x1b[K")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", ">&- 2>&- <&-"])
@pytest.mark.parametrize("options", ["", "--json", "-v"])
def test_closed_streams_do_not_matter(closed: str, options: str, blob: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.so"
    command = f"{sys.executable} -m emitter raw:{blob} --target arm64 -o {out} {options} {closed}"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0
    assert "Traceback" not in result.stderr
    with emitter.load(out) as library:
        assert bytes(library["blob.bin"]) == blob.read_bytes()


@pytest.mark.parametrize(
    ("stream", "message"),
    [("<&-", "standard input: is closed"), ("</proc/self/mem", "standard input: cannot read: ")],
)
def test_a_standard_input_that_cannot_be_read(stream: str, message: str) -> None:
    command = f"{sys.executable} -m emitter --manifest - -o x.pack {stream}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602 - a redirection
    assert done.returncode == 2
    assert done.stderr.startswith(f"emitter: error: {message}")


def test_an_endless_manifest_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("emitter.manifest.MAX_SIZE", 1000)
    with open("/dev/zero", encoding="latin-1") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert main(["--manifest", "-", "-o", "x.pack"]) == 2
    assert "standard input: the manifest is too long: expected at most 1000 bytes" in capsys.readouterr().err


def test_a_part_of_python_that_cannot_be_loaded_is_no_fault_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: list[str]) -> int:
        raise ImportError("fcntl.so: cannot open shared object file: Too many open files")

    monkeypatch.setattr("emitter.cli._emit", fail)
    assert main(["a.npy"]) == 2
    assert "cannot be loaded: fcntl.so: cannot open" in (said := capsys.readouterr().err)
    assert "ulimit -n" in said


def test_an_error_that_cannot_be_said_is_still_an_error() -> None:
    for redirection in ("2>/dev/full", "2>&-", ">/dev/full --json", ">&- --json"):
        command = f"{sys.executable} -m emitter missing -o x.so {redirection}"
        result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
        assert result.returncode == 2, redirection
        assert "Traceback" not in result.stderr


def test_a_folder_that_is_gone_is_no_matter_of_standard_output(blob: Path, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    command = f"cd {tmp_path}/gone && rmdir ../gone && {sys.executable} -m emitter raw:{blob} -o x.pack"
    result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 2
    assert "standard output" not in result.stderr
    assert "internal error" not in result.stderr
    assert "directory" in result.stderr


def test_an_endless_argument_file_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emitter.arguments._MAX_ARGUMENTS", 1000)
    assert main(["@/dev/zero"]) == 2
    assert "too long" in capsys.readouterr().err


def test_ctrl_c_while_the_command_is_loaded_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "emitter", "targets"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert result.returncode == -signal.SIGINT  # a shell shows it as 130
    assert result.stderr == ""


def test_what_looks_like_a_placeholder_is_spoken_of(
    blob: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"raw:{blob}", "-o", str(tmp_path / "{targets}.pack")]) == 0
    assert "the placeholders are {target}, {triple} and {lib}" in capsys.readouterr().err


def test_an_internal_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from emitter import commands

    def broken(arguments: list[str]) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(commands.COMMANDS, "targets", broken)
    assert main(["targets"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "emitter: error: internal error: ZeroDivisionError: oops; this is a bug in emitter; -v shows where"
    ]


def test_an_interrupt_is_exit_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from emitter import commands

    def interrupted(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(commands.COMMANDS, "targets", interrupted)
    assert main(["targets"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_the_module_can_be_run(tmp_path: Path) -> None:
    result = run("--version")
    assert result.returncode == 0
    assert result.stdout.startswith("emitter ")
