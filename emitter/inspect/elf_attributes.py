"""Build attributes: what compilers say of the instructions and conventions that an object was made with.

Source: Addenda to, and Errata in, the ABI for the Arm Architecture, chapter 3; RISC-V ELF psABI, Attributes; Build
Attributes for the Arm 64-bit Architecture; binutils' gnu object attributes.
"""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.inspect.elf_records import BuildAttribute
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.inspect.elf import ElfFile

__all__ = ["read_attributes"]

_EM_MIPS, _EM_PPC, _EM_PPC64, _EM_S390, _EM_ARM, _EM_AARCH64, _EM_RISCV = 8, 20, 21, 22, 40, 183, 243
# Machines where SHT_LOPROC + 3 holds attributes: Arm, MSP430, Hexagon, AArch64, RISC-V, C-SKY.
_ATTRIBUTE_MACHINES = (_EM_ARM, 105, 164, _EM_AARCH64, _EM_RISCV, 252)
_SHT_PROC_ATTRIBUTES, _SHT_GNU_ATTRIBUTES = 0x70000003, 0x6FFFFFF5
_PT_PROC_ATTRIBUTES = 0x70000003

_MAX_SECTION = 1 << 20  # bytes
_MAX_ATTRIBUTES = 1 << 16

_SCOPES = {1: "file", 2: "section", 3: "symbol"}
_TAG_COMPATIBILITY = 32

_ARM = {
    4: "CPU_raw_name", 5: "CPU_name", 6: "CPU_arch", 7: "CPU_arch_profile", 8: "ARM_ISA_use", 9: "THUMB_ISA_use",
    10: "FP_arch", 11: "WMMX_arch", 12: "Advanced_SIMD_arch", 13: "PCS_config", 14: "ABI_PCS_R9_use",
    15: "ABI_PCS_RW_data", 16: "ABI_PCS_RO_data", 17: "ABI_PCS_GOT_use", 18: "ABI_PCS_wchar_t", 19: "ABI_FP_rounding",
    20: "ABI_FP_denormal", 21: "ABI_FP_exceptions", 22: "ABI_FP_user_exceptions", 23: "ABI_FP_number_model",
    24: "ABI_align_needed", 25: "ABI_align_preserved", 26: "ABI_enum_size", 27: "ABI_HardFP_use", 28: "ABI_VFP_args",
    29: "ABI_WMMX_args", 30: "ABI_optimization_goals", 31: "ABI_FP_optimization_goals", 32: "compatibility",
    34: "CPU_unaligned_access", 36: "FP_HP_extension", 38: "ABI_FP_16bit_format", 42: "MPextension_use", 44: "DIV_use",
    46: "DSP_extension", 48: "MVE_arch", 50: "PAC_extension", 52: "BTI_extension", 64: "nodefaults",
    65: "also_compatible_with", 66: "T2EE_use", 67: "conformance", 68: "Virtualization_use",
    70: "MPextension_use_old", 72: "FramePointer_use", 74: "BTI_use", 76: "PACRET_use",
}  # fmt: skip
_RISCV = {
    4: "RISCV_stack_align", 5: "RISCV_arch", 6: "RISCV_unaligned_access", 8: "RISCV_priv_spec",
    10: "RISCV_priv_spec_minor", 12: "RISCV_priv_spec_revision", 14: "RISCV_atomic_abi", 16: "RISCV_x3_reg_usage",
}  # fmt: skip
_GNU = {
    _EM_MIPS: {4: "GNU_MIPS_ABI_FP", 8: "GNU_MIPS_ABI_MSA"},
    _EM_PPC: {4: "GNU_Power_ABI_FP", 8: "GNU_Power_ABI_Vector", 12: "GNU_Power_ABI_Struct_Return"},
    _EM_PPC64: {4: "GNU_Power_ABI_FP", 8: "GNU_Power_ABI_Vector"},
    _EM_S390: {8: "GNU_S390_ABI_Vector"},
}
_FEATURE_BITS = {0: "Feature_BTI", 1: "Feature_PAC", 2: "Feature_GCS"}
_PAUTH = {1: "PAuth_Platform", 2: "PAuth_Schema"}


def read_attributes(elf: ElfFile) -> list[BuildAttribute]:
    """Return every attribute, in file order. Raises FormatError for a section that breaks its format."""
    machine = elf.ehdr.e_machine
    places = [
        (shdr.sh_offset, shdr.sh_size)
        for _, shdr in elf.sections()
        if shdr.sh_type == _SHT_GNU_ATTRIBUTES
        or (shdr.sh_type == _SHT_PROC_ATTRIBUTES and machine in _ATTRIBUTE_MACHINES)
    ]
    if not places and machine in _ATTRIBUTE_MACHINES:
        places = [(phdr.p_offset, phdr.p_filesz) for _, phdr in elf.segments(_PT_PROC_ATTRIBUTES)]
    found: list[BuildAttribute] = []
    for offset, size in places:
        where = f"{elf.view.where}: build attributes at {offset:#x}"
        if size > _MAX_SECTION:
            raise FormatError("the section is too large", where=where, expected=f"at most {_MAX_SECTION}", actual=size)
        data = elf.view.read(offset, size, "the build attributes")
        for attribute in _Parser(data, elf, where).attributes():
            if len(found) == _MAX_ATTRIBUTES:
                raise FormatError("too many attributes", where=where, expected=f"at most {_MAX_ATTRIBUTES}")
            found.append(attribute)
    return found


class _Parser:
    """One section: its format version, then for each vendor a subsection."""

    def __init__(self, data: bytes, elf: ElfFile, where: str) -> None:
        self._data = data
        self._byte_order = elf.byte_order
        self._machine = elf.ehdr.e_machine
        self._where = where

    def attributes(self) -> Iterator[BuildAttribute]:
        if not self._data:
            return
        if self._data[0] != 0x41:
            raise self._error(0, f"the format version is {self._data[0]:#x}, not 'A'")
        position = 1
        while position < len(self._data):
            end = self._end(position, position, len(self._data))
            vendor, start = self._text(position + 4, end)
            yield from self._subsection(vendor, start, end)
            position = end

    def _subsection(self, vendor: str, position: int, end: int) -> Iterator[BuildAttribute]:
        if self._machine == _EM_AARCH64 and vendor.startswith("aeabi_"):
            if position + 2 > end:
                raise self._error(position, "a subsection has no header")
            textual = self._data[position + 1] == 1
            names = _PAUTH if vendor == "aeabi_pauthabi" else _FEATURE_BITS
            yield from self._pairs(vendor, "file", (position + 2, end), names, lambda _tag: textual)
            return
        names = {"aeabi": _ARM, "riscv": _RISCV, "gnu": _GNU.get(self._machine, {})}.get(vendor, {})
        while position < end:
            scope, start = self._uleb(position, end)
            stop = self._end(start, position, end)
            start += 4
            if scope not in _SCOPES:
                raise self._error(position, f"scope {scope} is unknown")
            while scope != 1 and self._uleb(start, stop)[0]:
                start = self._uleb(start, stop)[1]  # the numbers of the sections or symbols, ended by 0
            if scope != 1:
                start = self._uleb(start, stop)[1]
            yield from self._pairs(vendor, _SCOPES[scope], (start, stop), names, _textual(vendor))
            position = stop

    def _pairs(
        self, vendor: str, scope: str, span: tuple[int, int], names: dict[int, str], textual: _Rule
    ) -> Iterator[BuildAttribute]:
        position, end = span
        while position < end:
            tag, position = self._uleb(position, end)
            value: int | str
            if tag == _TAG_COMPATIBILITY and vendor in ("aeabi", "gnu"):
                flag, position = self._uleb(position, end)
                text, position = self._text(position, end)
                value = f"{flag} {text}"
            elif textual(tag):
                value, position = self._text(position, end)
            else:
                value, position = self._uleb(position, end)
            name = names.get(tag)
            yield BuildAttribute(vendor, scope, tag, f"Tag_{name}" if name else "", value)

    def _end(self, length_at: int, start: int, limit: int) -> int:
        """Return where a part ends that begins at `start` and whose length, counted from there, is at `length_at`."""
        if length_at + 4 > limit:
            raise self._error(length_at, "a length is cut off")
        length = int.from_bytes(self._data[length_at : length_at + 4], self._byte_order)
        if not length_at + 4 - start <= length <= limit - start:
            raise self._error(length_at, f"the length {length} does not fit into {limit - start} bytes")
        return start + length

    def _uleb(self, position: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while position < end and shift < 64:
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
        raise self._error(position, "a ULEB128 number has no end")

    def _text(self, position: int, end: int) -> tuple[str, int]:
        stop = self._data.find(b"\0", position, end)
        if stop < 0:
            raise self._error(position, "a string has no end")
        return self._data[position:stop].decode("utf-8", "surrogateescape"), stop + 1

    def _error(self, position: int, what: str) -> FormatError:
        return FormatError(what, where=f"{self._where}, byte {position:#x}")


def _textual(vendor: str) -> _Rule:
    """Return the rule which tags of a vendor have text."""
    if vendor == "aeabi":
        return lambda tag: tag in (4, 5) or (tag > _TAG_COMPATIBILITY and tag % 2 == 1)
    return lambda tag: tag % 2 == 1


if TYPE_CHECKING:
    from collections.abc import Callable

    _Rule = Callable[[int], bool]
