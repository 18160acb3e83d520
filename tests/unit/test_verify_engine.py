"""What `emitter verify` makes of paths, containers, configurations and baselines, and how it reports."""

from __future__ import annotations

import errno
import io
import json
import os
import struct
import subprocess
import tarfile
import zipfile
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest

from emitter import EmitterError, Package, cli, emit
from emitter.errors import FormatError, InputError, UsageError
from emitter.inspect.view import View
from emitter.pack import format as fmt
from emitter.verify import assert_ok, containers, model, unpack, verify
from emitter.verify.output import github, junit, text
from emitter.verify.result import Result, Verified
from tests.c_tools import need
from tests.device_files import bundle, cubin, hsaco, plan, spirv
from tests.loader_support import set_field
from tests.support import build_pack

if TYPE_CHECKING:
    from pathlib import Path

X86 = "x86_64-linux-gnu"


def library(path: Path, target: str = X86, name: str = "m") -> bytes:
    package = Package()
    package.add_raw("w", bytes(range(256)) * 4)
    emit(package, path, target=target, name=name)
    return path.read_bytes()


@pytest.fixture
def good(tmp_path: Path) -> bytes:
    return library(tmp_path / "good.so")


@pytest.fixture
def bad(tmp_path: Path) -> bytes:
    """Return a library for AArch64: for x86-64 it has one error."""
    return library(tmp_path / "bad.so", "aarch64-linux-gnu")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder without a configuration above it."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)


def zip_of(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as container:
        for name, data in members.items():
            container.writestr(name.replace("__", "/") + ".so", data)
    return out.getvalue()


def tar_of(mode: str, **members: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{mode}") as container:  # type: ignore[call-overload] # the modes of tests
        for name, data in members.items():
            info = tarfile.TarInfo(f"./lib/{name}.so")
            info.size = len(data)
            container.addfile(info, io.BytesIO(data))
    return out.getvalue()


def places(result: Result) -> list[tuple[str, str]]:
    return [(finding.rule, finding.member) for finding in result.findings if finding.severity == "error"]


# Paths


def test_a_folder_is_searched_and_the_rest_is_counted(good: bytes, bad: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "x.so").write_bytes(bad)
    (folder / "y.so").write_bytes(good)
    (folder / "readme.txt").write_text("hello")
    (folder / "empty").write_text("")
    (folder / "loop").symlink_to(folder)
    (folder / "out.so").symlink_to(tmp_path / "bad.so")
    result = verify(folder, target=X86)
    assert [os.path.relpath(file.path, folder) for file in result.files] == ["y.so", "a/b/x.so"]
    assert result.passed_over == 2
    assert [finding.rule for finding in result.findings] == ["elf-machine"]
    assert result.status == 1


def test_nothing_to_verify_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="nothing to verify"):
        verify(tmp_path / "empty")
    with pytest.raises(UsageError, match="no file to verify"):
        verify()


@pytest.mark.parametrize("content", [b"", b"hello world", b"\x7fEL", b"\0" * 100])
def test_a_named_file_that_is_no_artefact_is_an_error(content: bytes, tmp_path: Path, good: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    result = verify(path, tmp_path / "good.so")
    assert result.status == 2
    assert len(result.errors) == 1
    assert len(result.files) == 1  # the other one was verified all the same
    del good


def test_a_name_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    assert verify(tmp_path / "nobody.so").status == 2
    (tmp_path / "link.so").symlink_to("nobody.so")
    assert verify(tmp_path / "link.so").status == 2


def test_a_file_that_cannot_be_read_does_not_hide_the_others(
    bad: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("d/a", "d/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.so").write_bytes(bad)
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("a"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return scandir(path)

    monkeypatch.setattr("os.scandir", refuse)
    result = verify(tmp_path / "d", target=X86)
    assert [one.path for one in result.findings] == [str(tmp_path / "d" / "b" / "x.so")]
    assert ([str(one.where) for one in result.errors], result.status) == ([str(tmp_path / "d" / "a")], 2)
    assert text(result).endswith("; 1 could not be verified\n")


def test_a_path_without_an_artefact_is_told(good: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.so").write_bytes(good)
    (tmp_path / "d").mkdir()
    assert f"{tmp_path / 'd'}: holds no artefact" in verify(tmp_path / "x.so", tmp_path / "d").notes


def test_many_broken_members_take_no_longer_each_than_few(tmp_path: Path) -> None:
    # 20,000 members: with a search through all that came before it took minutes, and the time limit of tests ends it.
    member = b"x.o/            0           0     0     100644  8         `\n\x7fELF\2\1\1\0"
    members = [member.replace(b"x.o/    ", f"{number}.o/".encode().ljust(8)) for number in range(20_000)]
    (tmp_path / "x.a").write_bytes(b"!<arch>\n" + b"".join(members))
    result = verify(tmp_path / "x.a", target=X86)
    assert len(result.files) == 20_001
    assert sum(one.rule == "file-malformed" for one in result.findings) == 20_000


@pytest.mark.parametrize(
    ("program", "rule"),
    [(one, "device-program") for one in (hsaco(), bundle("gfx90a"), plan(), spirv())] + [(cubin(), "file-malformed")],
)
def test_programs_for_gpus_are_verified_as_files(program: bytes, rule: str, tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(program)
    (tmp_path / "bad").write_bytes(program[:30])
    result = verify(tmp_path / "good", tmp_path / "bad")
    assert [(one.rule, one.path) for one in result.findings] == [(rule, str(tmp_path / "bad"))]
    assert len(result.files) == 2


def test_what_amds_linker_takes_is_no_broken_program(tmp_path: Path) -> None:
    data = bytearray(hsaco())
    data[16] = 1  # ET_REL
    (tmp_path / "x.o").write_bytes(data)
    assert [one.rule for one in verify(tmp_path / "x.o").findings] == []


def test_a_linker_script_is_passed_over(tmp_path: Path, good: bytes) -> None:
    (tmp_path / "libc.so").write_text("/* GNU ld script */\nGROUP ( /lib/libc.so.6 )\n")
    result = verify(tmp_path / "libc.so", tmp_path / "good.so")
    assert (result.status, result.passed_over) == (0, 1)
    del good


def test_a_broken_header_is_a_finding(tmp_path: Path, good: bytes) -> None:
    (tmp_path / "x.so").write_bytes(good[:4] + b"\x09" + good[5:])
    result = verify(tmp_path / "x.so")
    assert [finding.rule for finding in result.findings] == ["file-malformed"]
    assert "EI_CLASS" in result.findings[0].actual


def test_without_a_target_the_report_says_that_identity_was_not_judged(good: bytes, tmp_path: Path) -> None:
    result = verify(tmp_path / "good.so")
    assert any("identity not judged" in note for note in result.notes)
    assert [(file.target, file.identity_judged) for file in result.files] == [(X86, False)]
    result = verify(tmp_path / "good.so", target="amd64")
    assert result.notes == []
    assert [(file.target, file.identity_judged) for file in result.files] == [(X86, True)]
    del good


# Containers


@pytest.mark.parametrize("mode", ["", "gz", "bz2", "xz"])
def test_members_of_tar_archives(mode: str, good: bytes, bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"x.tar.{mode}"
    path.write_bytes(tar_of(mode, x=bad, y=good))
    result = verify(path, target=X86)
    assert [file.member for file in result.files] == ["lib/x.so", "lib/y.so"]
    assert places(result) == [("elf-machine", "lib/x.so")]


def test_members_of_zip_files_and_what_lies_in_them(good: bytes, bad: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(zip_of(a__b=bad, c=good))
    assert places(verify(tmp_path / "x.zip", target=X86)) == [("elf-machine", "a/b.so")]
    outer = io.BytesIO()
    with zipfile.ZipFile(outer, "w") as container:
        container.writestr("inner.zip", zip_of(x=bad))
        container.writestr("more.tar.gz", tar_of("gz", y=bad))
        container.writestr("notes.txt", "hello")
    (tmp_path / "outer.zip").write_bytes(outer.getvalue())
    result = verify(tmp_path / "outer.zip", target=X86)
    assert places(result) == [("elf-machine", "inner.zip!x.so"), ("elf-machine", "more.tar.gz!lib/y.so")]
    assert result.passed_over == 1


@pytest.mark.parametrize("mode", ["gz", "xz"])
def test_files_of_debian_packages(mode: str, good: bytes, bad: bytes, tmp_path: Path) -> None:
    need("dpkg-deb")
    root = tmp_path / "root"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(
        "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n"
    )
    (root / "usr" / "lib").mkdir(parents=True)
    (root / "usr" / "lib" / "x.so").write_bytes(bad)
    (root / "usr" / "lib" / "y.so").write_bytes(good)
    command = ["dpkg-deb", f"-Z{'gzip' if mode == 'gz' else mode}", "--build", str(root), str(tmp_path / "x.deb")]
    subprocess.run(command, check=True, capture_output=True)
    result = verify(tmp_path / "x.deb", target=X86)
    assert {file.member for file in result.files} == {"usr/lib/x.so", "usr/lib/y.so"}
    assert places(result) == [("elf-machine", "usr/lib/x.so")]


def test_a_container_that_unpacks_to_too_much_is_refused(tmp_path: Path, good: bytes) -> None:
    path = tmp_path / "bomb.zip"
    path.write_bytes(zip_of(x=good + bytes(50 << 20)))
    assert path.stat().st_size < 1 << 20
    view = View.open(path)
    with view:
        item = containers.Item(str(path), "", view, named=True)
        found = list(containers.items_of_container("zip", item, view, unpack.Budget(1 << 20), lambda *_: True))
        assert [one.view for one in found] == [None]
        assert "too large" in str(found[0].error)
        with pytest.raises(FormatError, match="too much"):
            list(
                containers.items_of_container("gz", *_bomb(tmp_path), unpack.Budget(1 << 30, 1 << 20), lambda *_: True)
            )


def test_members_of_a_zip_file_may_not_share_bytes(good: bytes, tmp_path: Path) -> None:
    data = zip_of(x=good)
    start, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    directory = data[start:end]
    for count, found in ((1, []), (1000, [("file-malformed", "")])):
        tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(directory) * count, start, 0)
        (tmp_path / "x.zip").write_bytes(data[:start] + directory * count + tail)
        assert places(verify(tmp_path / "x.zip", target=X86)) == found


def _bomb(folder: Path) -> tuple[containers.Item, View]:
    path = folder / "bomb.tar.gz"
    path.write_bytes(tar_of("gz", x=bytes(50 << 20)))
    view = View.open(path)
    return containers.Item(str(path), "", view, named=True), view


@pytest.mark.parametrize("cut", [3, 30, 200, 1500])
def test_a_broken_container_is_a_finding(cut: int, good: bytes, tmp_path: Path) -> None:
    for name, data in (("x.zip", zip_of(x=good)), ("x.tar.gz", tar_of("gz", x=good)), ("x.tar", tar_of("", x=good))):
        path = tmp_path / name
        path.write_bytes(data[:-cut])
        try:
            result = verify(path)
        except InputError:
            continue  # nothing was left of it
        assert result.status in (0, 1, 2)
        assert result.files or result.errors


def test_a_damaged_member_does_not_hide_the_others(good: bytes, bad: bytes, tmp_path: Path) -> None:
    data = bytearray(zip_of(a=good, b=bad))
    data[200] ^= 0xFF  # in the compressed bytes of the first
    (tmp_path / "x.zip").write_bytes(data)
    assert places(verify(tmp_path / "x.zip", target=X86)) == [("file-malformed", "a.so"), ("elf-machine", "b.so")]


def test_a_link_in_a_zip_file_is_no_broken_library(good: bytes, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("lib/x.so")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as container:
        container.writestr("lib/x.so.1", good)
        container.writestr(link, "x.so.1")
    result = verify(tmp_path / "x.zip", target=X86)
    assert [file.member for file in result.files] == ["lib/x.so.1"]
    assert places(result) == []


def test_an_encrypted_library_is_no_pass(good: bytes, tmp_path: Path) -> None:
    data = bytearray(zip_of(a=good, b=good))
    for at in (6, data.index(b"PK\1\2") + 8):
        data[at] |= 1  # general purpose bit 0 of the first member
    (tmp_path / "x.zip").write_bytes(data)
    result = verify(tmp_path / "x.zip", target=X86)
    assert [(one.rule, one.member, one.actual) for one in result.findings if one.severity == "error"] == [
        ("file-malformed", "a.so", "the member is encrypted")
    ]


@pytest.mark.parametrize("options", ["-cS", "-cSz", "-cS --format=posix"])
def test_members_with_holes_are_verified(options: str, tmp_path: Path) -> None:
    need("tar")
    package = Package()
    package.add_raw("w", bytes(4 << 20) + b"x")
    emit(package, tmp_path / "x.so", target="aarch64-linux-gnu")
    data = (tmp_path / "x.so").read_bytes()
    with open(tmp_path / "x.so", "wb") as file:
        for at in range(0, len(data), 4096):
            if any(data[at : at + 4096]):
                os.pwrite(file.fileno(), data[at : at + 4096], at)
        os.truncate(file.fileno(), len(data))
    subprocess.run(["tar", *options.split(), "-f", "x.tar.gz", "x.so"], cwd=tmp_path, check=True)
    with tarfile.open(tmp_path / "x.tar.gz") as container:
        if not container.getmembers()[0].issparse():
            pytest.skip("the file system has no holes")
    assert places(verify(tmp_path / "x.tar.gz", target=X86)) == [("elf-machine", "x.so")]


def test_class_files_of_java_are_not_taken_for_universal_files(good: bytes, tmp_path: Path) -> None:
    java = bytes.fromhex("cafebabe0000003d") + bytes(100)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "A.class").write_bytes(java)
    (tmp_path / "d" / "x.so").write_bytes(good)
    with zipfile.ZipFile(tmp_path / "d" / "x.jar", "w") as container:
        container.writestr("A.class", java)
    result = verify(tmp_path / "d", target=X86)
    assert (places(result), len(result.files), result.passed_over) == ([], 1, 2)


def test_a_full_disk_is_no_finding(good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.zip").write_bytes(zip_of(a=good))

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.write", full)
    result = verify(tmp_path / "x.zip", target=X86)
    assert (result.findings, result.status) == ([], 2)
    assert "No space left on device" in str(result.errors[0])
    assert "TMPDIR" in str(result.errors[0])


@pytest.mark.skipif(os.name == "nt", reason="an open file has a name there")
def test_a_process_that_is_killed_leaves_nothing(good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spool"))
    (tmp_path / "x.zip").write_bytes(zip_of(a=good))
    with View.open(tmp_path / "x.zip") as view:
        item = containers.Item("x.zip", "", view, named=True)
        for member in containers.items_of_container("zip", item, view, unpack.Budget(), lambda *_: True):
            assert member.view is not None
            assert member.view.size == len(good)
            assert list((tmp_path / "spool").iterdir()) == []


def test_nothing_is_left_of_what_was_unpacked(good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spool"))
    (tmp_path / "x.tar.gz").write_bytes(tar_of("gz", x=good, y=good))
    assert len(verify(tmp_path / "x.tar.gz", target=X86).files) == 2
    assert list((tmp_path / "spool").iterdir()) == []


# Configuration


CONFIG = """
edition = 1
fail-on = "warning"

[[path]]
match = "*/bad.so"
target = "aarch64-linux-gnu"
profile = "mine"

[[path]]
match = "*.so"
target = "x86_64-linux-gnu"

[profiles.mine]
extends = "jetson"
max-size = 100

[[waiver]]
rule = "elf-machine"
path = "nobody/*"
reason = "never used"
"""


def test_paths_have_targets_and_profiles(
    good: bytes, bad: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "emitter-verify.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path / "cwd")  # it is found upwards
    result = verify("../good.so", "../bad.so")
    assert [(file.target, file.profile) for file in result.files] == [
        (X86, "generic-linux"),
        ("aarch64-linux-gnu", "mine"),
    ]
    assert [finding.rule for finding in result.findings] == ["file-size"]
    assert result.fail_on == "warning"
    assert any("is not used (never used)" in note for note in result.notes)
    assert verify("../good.so", "../bad.so", config="").findings == []
    del good, bad


@pytest.mark.parametrize(
    ("expires", "waived"), [("", True), ('expires = "2999-01-01"', True), ("expires = 2001-02-03", False)]
)
def test_a_waiver_holds_until_it_expires(expires: str, waived: bool, bad: bytes, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    row = f'[[waiver]]\nrule = "elf-machine"\npath = "*/bad.so"\nsubject = "e_*"\nreason = "known"\n{expires}\n'
    config.write_text(row)
    result = verify(tmp_path / "bad.so", target=X86, config=config)
    assert [reason for _, reason in result.waived] == (["known"] if waived else [])
    assert bool(result.findings) != waived
    assert any("expired on 2001-02-03" in note for note in result.notes) != waived
    assert result.status == (0 if waived else 1)
    del bad


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("targett = 'x'", "did you mean target?"),
        ("[[path]]\nmatsh = 'x'", "did you mean match?"),
        ("[[path]]\ntarget = 'x'", "match is missing"),
        ("[[waiver]]\nrule = 'elf-machine'\npath = 'x'", "reason is missing"),
        ("[[waiver]]\nrule = 'elf-machin'\npath = 'x'\nreason = 'x'", "did you mean elf-machine?"),
        ("[[waiver]]\nrule = 'elf-machine'\npath = 'x'\nreason = 'x'\nexpires = 'soon'", "not a date"),
        ("edition = 99", "no such edition"),
        ("fail-on = 'info'", "not a severity"),
        ("max-size = 'big'", "not a size"),
        ("page-size = 5000", "not a page size"),
        ("target = 3", "another type"),
        ("profile = 'mine'\n[profiles.mine]\nsonam = true", "did you mean soname?"),
        ("profile = 'mine'\n[profiles.mine]\nsoname = 'x'", "another type"),
        ("profile = 'mine'\n[profiles.mine.rules]\nelf-machine = 'bad'", "not a severity"),
        ("profile = 'mine'\n[profiles.mine.rules]\nelf-machin = 'off'", "did you mean elf-machine?"),
        ("profile = 'mine'\n[profiles.mine]\nextends = 'mine'", "circle"),
        ("profile = 'generic-linus'", "did you mean generic-linux?"),
        ("profile = 'mine'\n[profiles.mine]\nformats = ['exe']", "something else"),
        ("[profiles.unused]\nsonam = true", "did you mean soname?"),
        ("[[path]]\nmatch = 'nothing'\nprofile = 'generic-linus'", "did you mean generic-linux?"),
        ("[profiles.mine]\nminimum-os = 'eleven'", "not a version of a system"),
        ("[profiles.mine]\nsymbol-versions = {GLIBC = '2.\u00b2'}", "not a version of 'GLIBC'"),
        ("[profiles.mine]\nx86-isa-level = 5", "expected 1 or 2 or 3 or 4"),
        ("profile = 'mine'\n[profiles.mine]\nsysroot = 'not/there'", "no folder"),
        ("[[waiver]]\nrule = 'elf-machine'\npath = 'x'\nreason = 'x'\nexpires = '20240101'", "not a date"),
        ("not toml", "not TOML"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(config: str, message: str, good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(config, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        verify(tmp_path / "good.so", config=path)
    assert message in str(caught.value)
    del good


def test_a_configuration_for_other_files_is_told(good: bytes, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[[path]]\nmatch = '*.dll'\n[[path]]\nmatch = '*.so'\n")
    notes = verify(tmp_path / "good.so", config=config).notes
    assert [note for note in notes if "means no file" in note] == [
        "[[path]] match = '*.dll' of the configuration means no file"
    ]
    config.write_text("[[path]]\nmatch = 'nothing'\ntarget = 'vax-dec-vms'\n")
    with pytest.raises(EmitterError, match="vax-dec-vms"):
        verify(tmp_path / "good.so", config=config)
    del good


def test_profiles_say_how_bad_an_unreadable_file_is(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x.o").write_text("a note about oxygen")
    config = tmp_path / "c.toml"
    for severity, found in (("error", ["error"]), ("info", ["info"]), ("off", [])):
        config.write_text(f"profile = 'mine'\n[profiles.mine.rules]\nfile-no-artefact = '{severity}'\n")
        result = verify(tmp_path / "d", config=config)
        assert [one.severity for one in result.findings] == found
        assert len(result.files) == 1


def test_pyproject_is_read_where_it_has_the_table(good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.emitter.verify]\nmax-size = '1K'\n")
    inner = tmp_path / "cwd"
    (inner / "pyproject.toml").write_text("[tool.other]\nx = 'emitter'\n")
    monkeypatch.chdir(inner)
    assert [finding.rule for finding in verify("../good.so").findings] == ["file-size"]
    del good


def test_rules_of_a_newer_edition_do_not_turn_green_red(
    bad: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = model.RULES["elf-machine"]._replace(since=2)
    monkeypatch.setitem(model.RULES, "elf-machine", newer)
    assert [finding.severity for finding in verify(tmp_path / "bad.so", target=X86).findings] == ["info"]
    del bad


def test_every_shipped_profile_loads() -> None:
    from emitter.verify.profile import load_profile, shipped

    assert {
        "generic-linux", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34", "android-21", "android-35",
        "yocto-strict", "jetson", "apple-macos-11", "apple-ios-15", "windows-x64", "bare-metal-cortex-m",
        "reproducible",
    } == set(shipped())  # fmt: skip
    for name in shipped():
        assert load_profile(name).get("description")


def test_a_profile_takes_over_the_keys_of_another() -> None:
    from emitter.verify.profile import load_profile

    profile = load_profile("manylinux_2_34")
    assert profile.get("symbol-versions")["GLIBC"] == "2.34"
    assert "libc.so.6" in profile.get("libraries")


# Baseline


def test_findings_of_a_baseline_do_not_count(bad: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, baseline = str(tmp_path / "bad.so"), str(tmp_path / "base.json")
    arguments = ["verify", path, "--target", X86, "--baseline", baseline]
    assert cli.main([*arguments, "--write-baseline"]) == 0
    assert json.loads((tmp_path / "base.json").read_text())["schema"] == "emitter.baseline/1"
    assert cli.main(arguments) == 0
    assert "1 known from the baseline" in capsys.readouterr().out
    (tmp_path / "base.json").write_text("[]")
    assert cli.main(arguments) == 2
    library(tmp_path / "bad.so")
    assert cli.main([*arguments[:-1], str(_written(tmp_path))]) == 0
    assert "is gone" in capsys.readouterr().out
    del bad


def _written(folder: Path) -> Path:
    path = folder / "old.json"
    row = {"rule": "elf-machine", "path": "gone.so", "member": "", "subject": "e_machine"}
    path.write_text(json.dumps({"schema": "emitter.baseline/1", "findings": [row]}))
    return path


# Reports


def test_a_baseline_that_the_configuration_names_can_be_written_first(
    bad: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "emitter-verify.toml").write_text('baseline = "known.json"\n')
    file, known = str(tmp_path / "bad.so"), str(tmp_path / "known.json")
    run = ["verify", file, "--target", X86]
    assert cli.main(run) == 2  # it is not there
    for _ in range(2):  # what is known stays in it
        assert cli.main([*run, "--baseline", known, "--write-baseline"]) == 0
        assert cli.main(run) == 0
    assert "1 known from the baseline" in capsys.readouterr().out
    del bad


@pytest.mark.parametrize("option", ["--target", "--profile", "--baseline", "--config", "--max-size"])
def test_an_empty_name_is_refused(option: str, good: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # As a script has it whose variable is not set.
    assert cli.main(["verify", str(tmp_path / "good.so"), option, ""]) == 2
    assert capsys.readouterr().out == ""
    del good


def test_the_exit_status(good: bytes, bad: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g, b = str(tmp_path / "good.so"), str(tmp_path / "bad.so")
    assert cli.main(["verify", g, "--target", X86]) == 0
    assert cli.main(["verify", b, "--target", X86]) == 1
    assert cli.main(["verify", b, "--target", X86, "--fail-on", "never"]) == 0
    assert cli.main(["verify", b, "--target", X86, "--rule", "elf-machine=warning"]) == 0
    assert cli.main(["verify", b, "--target", X86, "--rule", "elf-machine=warning", "--fail-on", "warning"]) == 1
    assert cli.main(["verify", b, "--target", X86, "--rule", "elf-machine=off"]) == 0
    assert cli.main(["verify", g, "--target", "nonsense"]) == 2
    assert cli.main(["verify", g, "--rule", "elf-machin=off"]) == 2
    assert cli.main(["verify", g, "--page-size", "5000"]) == 2
    assert cli.main(["verify", g, "--write-baseline"]) == 2
    assert cli.main(["verify", g, "--json", "--format", "junit"]) == 2
    assert cli.main(["verify"]) == 2
    captured = capsys.readouterr()
    assert "did you mean elf-machine?" in captured.err
    assert "Traceback" not in captured.err
    del good, bad


def test_the_text_says_what_why_and_what_to_do(bad: bytes, tmp_path: Path) -> None:
    result = verify(tmp_path / "bad.so", target=X86)
    said = text(result)
    finding = result.findings[0]
    for part in (str(tmp_path / "bad.so"), finding.rule, finding.expected, finding.actual, finding.why, finding.fix):
        assert part in said
    assert "\x1b" not in said
    assert "\x1b[1;31merror[elf-machine]\x1b[0m" in text(result, colour=True)
    assert said.endswith("1 artefact verified: 1 error\n")
    del bad


def hostile(tmp_path: Path) -> Result:
    result = Result()
    path = f"{tmp_path}/a\x1b[2J,b:c%.so"
    result.files.append(Verified(path, "", "x", "", identity_judged=False, profile=""))
    finding = model.Finding("elf-machine", "error", path, "", "<&\"'\n]]>", "x\0y", "\ud800", "why", "fix")
    result.findings.append(finding)
    result.findings.append(finding._replace(severity="warning"))
    result.errors.append(EmitterError("what\x07", where="<w>"))
    return result


def test_control_characters_reach_nobody(tmp_path: Path) -> None:
    result = hostile(tmp_path)
    for render in (text, junit, github):
        said = render(result)
        assert all(character.isprintable() or character == "\n" for character in said), render
        said.encode()
    json.dumps(result.to_json()).encode()


def test_junit_is_xml_that_counts(tmp_path: Path) -> None:
    root = ElementTree.fromstring(junit(hostile(tmp_path)))  # noqa: S314 - we wrote it
    assert root.tag == "testsuites"
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "1", "1")
    for suite in root:
        assert suite.tag == "testsuite"
        cases = list(suite)
        assert int(suite.get("tests", "")) == len(cases)
        assert int(suite.get("failures", "")) == len(suite.findall("testcase/failure"))
        assert all(case.get("name") and case.get("classname") for case in cases)


def test_junit_fails_what_the_run_fails(tmp_path: Path) -> None:
    result = hostile(tmp_path)
    result.fail_on = "warning"
    root = ElementTree.fromstring(junit(result))  # noqa: S314 - we wrote it
    assert (root.get("failures"), len(root.findall("testsuite/testcase/failure"))) == ("2", 2)


def test_annotations_are_escaped(tmp_path: Path) -> None:
    line = github(hostile(tmp_path)).split("\n")[0]
    properties, _, message = line.removeprefix("::error ").partition("::")
    fields = dict(field.split("=") for field in properties.split(","))
    assert fields["title"] == "elf-machine"
    assert fields["file"].endswith("\\x1b[2J%2Cb%3Ac%25.so")
    assert "%0A" in message


def test_the_json_document(good: bytes, bad: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(tmp_path / "bad.so"), "--target", X86, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert next(iter(document)) == "schema"
    assert document["schema"] == "emitter.verify/1"
    assert set(document["findings"][0]) == set(model.Finding._fields)
    assert document["status"] == 1
    del good, bad


def test_the_rules_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rules"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(model.RULES)
    assert cli.main(["rules", "elf-load-alignment"]) == 0
    said = capsys.readouterr().out
    assert "why: " in said and "fix: " in said and "max-page-size" in said
    assert cli.main(["rules", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "emitter.rules/1"
    assert [rule["id"] for rule in document["rules"]] == list(model.RULES)
    assert cli.main(["rules", "elf-load-alignmen"]) == 2
    assert "did you mean elf-load-alignment?" in capsys.readouterr().err


def test_assert_ok(good: bytes, bad: bytes, tmp_path: Path) -> None:
    assert_ok(tmp_path / "good.so", target=X86)
    with pytest.raises(AssertionError, match="elf-machine"):
        assert_ok(tmp_path / "bad.so", target=X86)
    with pytest.raises(AssertionError, match="file-size"):
        assert_ok(tmp_path / "good.so", target=X86, max_size=10, rules={"file-size": "warning"}, fail_on="warning")
    del good, bad


# --against


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("target", [X86, "s390x-linux-gnu"])
@pytest.mark.parametrize("compressed", [False, True])
def test_tensors_are_compared_with_their_source(order: str, target: str, compressed: bool, tmp_path: Path) -> None:
    array = np.asarray(np.arange(6000, dtype=np.float32).reshape(20, 30, 10), order=order)  # type: ignore[call-overload] # either
    source = tmp_path / "w.npz"
    (np.savez_compressed if compressed else np.savez)(source, w=array)
    package = Package()
    package.add_input(source)
    path = tmp_path / "m.so"
    emit(package, path, target=target)
    assert verify(path, target=target, against=[source]).status == 0
    changed = bytearray(path.read_bytes())
    with_w = changed.index(array[3, 4:].astype(">f4" if target[0] == "s" else "<f4").tobytes())
    changed[with_w + 5] ^= 1
    path.write_bytes(changed)
    result = verify(path, target=target, against=[source], rules={"pack-checksum": "off"})
    assert [(finding.rule, finding.subject) for finding in result.findings] == [("pack-source", "tensor w")]
    at = (3 * 300 + 4 * 10) * 4 + 5
    assert result.findings[0].actual == f"they differ from byte {at} on"


def test_a_source_that_nothing_holds_is_an_error(tmp_path: Path) -> None:
    need("gcc")
    (tmp_path / "x.c").write_text("int x;\n")
    subprocess.run(["gcc", "-c", "x.c", "-o", "x.o"], cwd=tmp_path, check=True)
    (tmp_path / "w.bin").write_bytes(b"abc")
    result = verify(tmp_path / "x.o", against=[f"w=raw:{tmp_path}/w.bin"])
    assert result.status == 2
    assert "holds a pack" in str(result.errors[0])


def test_payloads_that_overlap_are_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Package()
    for number in range(50):
        package.add_raw(f"w{number}", bytes([number]) * 1000)
    data = build_pack(package, "little")
    first = int.from_bytes(data[fmt.HEADER.offset("index_size") :][:4], "little")
    for number in range(50):
        data = set_field(data, fmt.PAYLOAD, "offset", (first + 63) // 64 * 64, number=number)
        data = set_field(data, fmt.PAYLOAD, "size", 40_000 + number, number=number)
    (tmp_path / "x.pack").write_bytes(data)
    read = []

    def crc32c(view: View, offset: int, size: int, what: str) -> int:
        del view, offset, what
        read.append(size)
        return 0

    monkeypatch.setattr(View, "crc32c", crc32c)
    assert "pack-index" in {one.rule for one in verify(tmp_path / "x.pack").findings}
    assert sum(read) <= len(data)


@pytest.mark.parametrize("sidecar", [False, True])
def test_every_payload_is_read(sidecar: bool, tmp_path: Path) -> None:
    package = Package()
    package.add_raw("w", b"tensor" * 50)
    package.add_module("engine", "graph", b"module" * 50)
    path = tmp_path / "m.so"
    emit(package, path, target=X86, sidecar=sidecar)
    assert verify(path, target=X86).findings == []
    where = next(tmp_path.glob("*.pack")) if sidecar else path
    for word, subject in ((b"tensortensor", "tensor w"), (b"modulemodule", "module engine, alternative 0")):
        data = where.read_bytes()
        at = data.index(word) + 7
        where.write_bytes(data[:at] + b"X" + data[at + 1 :])
        result = verify(path, target=X86)
        assert ("pack-checksum", subject) in [(finding.rule, finding.subject) for finding in result.findings]
        where.write_bytes(data)
    if sidecar:
        assert [file.kind for file in verify(tmp_path, target=X86).files] == ["pack", "ELF shared object"]
        where.unlink()
        assert [finding.rule for finding in verify(path, target=X86).findings] == ["pack-sidecar"]
