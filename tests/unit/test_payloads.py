"""Payloads from dataclasses: their bytes, what is refused, hostile bytes, and old versions that open with new code."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import InitVar, dataclass, field
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emitter import load, payloads
from emitter.errors import EmitterError, FormatError, UsageError
from emitter.payloads import MAX_DEPTH, MAX_SIZE, TensorRef, decode, encode, tensor_names
from tests.golden.make_payloads import PAYLOADS, golden_package, library_of
from tests.payload_versions import CURRENT, KIND, Graph, GraphV2, Node, graph_of, one_to_two, registry, two_to_three
from tests.support import build_pack

cbor2 = pytest.importorskip("cbor2", reason="cbor2 is not installed")


@dataclass
class Leaf:
    text: str = ""
    data: bytes = b""


@dataclass
class Everything:
    flag: bool
    number: int
    real: float
    leaf: Leaf
    texts: list[str] = field(default_factory=list)
    numbers: tuple[int, ...] = ()
    table: dict[str, list[Leaf]] = field(default_factory=dict)
    maybe: int | None = None
    reference: TensorRef | None = None
    children: list[Everything] = field(default_factory=list)
    computed: int = field(init=False, default=7)


@dataclass
class Small:
    a: int
    b: float = 1.5


@dataclass
class Checked:
    even: int

    def __post_init__(self) -> None:
        if self.even % 2:
            raise ValueError(f"{self.even} is odd")


EVERYTHING = Everything(
    True, -(1 << 63), 0.1, Leaf("ä\U0001f600", b"\0\xff"), ["x", ""], (0, (1 << 64) - 1), {"bb": [Leaf("l")], "a": []},
    None, TensorRef("w"), [Everything(False, 0, math.inf, Leaf(), reference=TensorRef("v"), maybe=0)],
)  # fmt: skip

_INTEGERS = st.integers(-(1 << 63), (1 << 64) - 1)
_LEAVES = st.builds(Leaf, st.text(st.characters(exclude_categories=["Cs"])), st.binary(max_size=20))
_TREES = st.recursive(
    st.builds(Everything, st.booleans(), _INTEGERS, st.floats(allow_nan=False), _LEAVES),
    lambda children: st.builds(
        Everything,
        st.booleans(),
        _INTEGERS,
        st.floats(allow_nan=False),
        _LEAVES,
        st.lists(st.text("aé")),
        st.lists(_INTEGERS).map(tuple),
        st.dictionaries(st.text("ab"), st.lists(_LEAVES, max_size=2), max_size=3),
        st.none() | _INTEGERS,
        st.none() | st.text("wv", min_size=1).map(TensorRef),
        st.lists(children, max_size=3),
    ),
    max_leaves=8,
)


@given(_TREES)
def test_what_is_encoded_is_decoded_and_has_one_form(value: Everything) -> None:
    data = encode(value)
    assert decode(Everything, memoryview(data)) == value
    # The bytes of an independent encoder, told to be deterministic, of a tree that another decoder made.
    assert cbor2.dumps(cbor2.loads(data), canonical=True) == data


def test_the_bytes_are_those_of_the_rfc() -> None:
    # RFC 8949, 3 and 4.2.1: a map of two, keys "a" and "b"; an integer; 1.5 as binary16.
    assert encode(Small(500)) == bytes.fromhex("a2 6161 1901f4 6162 f93e00")
    # Shorter keys come first, whatever the order of a dict or of the fields.
    one, other = Everything(True, 1, 2.0, Leaf(), table={"b": [], "aa": []}), None
    other = Everything(True, 1, 2.0, Leaf(), table={"aa": [], "b": []})
    assert encode(one) == encode(other)
    assert encode(Small(1, 3)) == encode(Small(1, 3.0))


def test_unknown_fields_are_skipped_and_missing_ones_take_their_defaults() -> None:
    data = cbor2.dumps({"a": 1, "later": {"x": [1, {"y": None}]}})
    assert decode(Small, data) == Small(1, 1.5)
    with pytest.raises(FormatError, match=r"Small: fields are missing: expected a, found \[\]"):
        decode(Small, cbor2.dumps({"b": 1.0}))


def test_computed_fields_are_no_part_of_it() -> None:
    assert b"computed" not in encode(EVERYTHING)
    assert decode(Everything, encode(EVERYTHING)).computed == 7


def test_references_are_collected_in_order() -> None:
    assert tensor_names(EVERYTHING) == ["w", "v"]
    assert tensor_names(Graph("g", (Node("n", (), (TensorRef("b"), TensorRef("a"), TensorRef("b"))),))) == ["b", "a"]


TREE = {"flag": True, "number": 1, "real": 0.5, "leaf": {}}
WRONG: list[tuple[dict[str, object], str]] = [
    ({"flag": 1}, r"Everything\.flag: .*true or false, found 1"),
    ({"number": True}, r"Everything\.number: .*an integer.*found True"),
    ({"number": 1.0}, r"Everything\.number: .*an integer"),
    ({"number": -(1 << 63) - 1}, r"Everything\.number: .*-2\^63"),
    ({"number": 1 << 64}, r"tag 2 is not"),
    ({"real": 1}, r"Everything\.real: .*floating-point number, found 1"),
    ({"real": None}, r"Everything\.real: .*found None"),
    ({"leaf": []}, r"Everything\.leaf: .*a map: a Leaf, found \[\]"),
    ({"leaf": {"text": b"x"}}, r"Everything\.leaf\.text: .*text"),
    ({"leaf": {"data": "x"}}, r"Everything\.leaf\.data: .*bytes"),
    ({"texts": {}}, r"Everything\.texts: .*a list"),
    ({"texts": ["a", 1]}, r"Everything\.texts\[1\]: .*text.*found 1"),
    ({"numbers": [1, 2, "x"]}, r"Everything\.numbers\[2\]"),
    ({"table": {1: []}}, r"Everything\.table\[1\]: .*text"),
    ({"table": {"k": [{}, {"text": 1}]}}, r"Everything\.table\['k'\]\[1\]\.text"),
    ({"table": []}, r"Everything\.table: .*a dict"),
    ({"maybe": "1"}, r"Everything\.maybe: .*an integer"),
    ({"reference": ""}, r"Everything\.reference: .*the name of a tensor, found ''"),
    ({"reference": {"name": "w"}}, r"Everything\.reference"),
    ({"children": [TREE, {}]}, r"Everything\.children\[1\]: fields are missing: expected flag, leaf, number, real"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_a_value_of_another_type_is_named_by_its_path(change: dict[str, object], message: str) -> None:
    assert decode(Everything, cbor2.dumps(TREE))
    with pytest.raises(FormatError, match=message):
        decode(Everything, cbor2.dumps(TREE | change))


NOT_THIS_FORM = {
    "nothing": b"",
    "cut off": b"\xa2\x61a",
    "no map": b"\x01",
    "more behind it": encode(Small(1)) + b"\x00",
    "an indefinite map": b"\xbf\x61a\x01\xff",
    "an indefinite text": b"\xa1\x7f\x61a\xff\x01",
    "a key twice": b"\xa2\x61a\x01\x61a\x02",
    "a regular expression": b"\xa1\x61a\xd8\x23\x61(",
    "a shared value": b"\xa1\x61a\xd8\x1c\x81\xd8\x1d\x00",
    "a reference to a text": b"\xd9\x01\x00\xa1\x61a\xd8\x19\x00",
    "a tag that nobody knows": b"\xa1\x61a\xdb\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    "self-described CBOR": b"\xd9\xd9\xf7\xa1\x61a\x01",
    "a huge decimal": b"\xa1\x61a\xc4\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01",
    "a huge array": b"\xa1\x61a\x9b\x7f\xff\xff\xff\xff\xff\xff\xff",
    "a huge text": b"\xa1\x61a\x7b\x7f\xff\xff\xff\xff\xff\xff\xff",
    "text that is not UTF-8": b"\xa1\x62\xff\xfe\x01",
    "a key that is a list": b"\xa1\x80\x01",
    "undefined": b"\xa1\x61a\xf7",
    "a simple value": b"\xa1\x61a\xf8\xff",
    "a reserved length": b"\xa1\x61a\x1c",
    "too deep": b"\xa1\x61x" + b"\x81" * MAX_DEPTH + b"\x80",
    "much too deep": b"\x81" * 100_000,
}


@pytest.mark.parametrize("name", NOT_THIS_FORM)
def test_bytes_of_another_form_are_refused(name: str) -> None:
    with pytest.raises(FormatError, match=r"^Small"):
        decode(Small, NOT_THIS_FORM[name])


def test_size_and_depth_are_bounded_when_written_and_when_read() -> None:
    with pytest.raises(FormatError, match=f"at most {MAX_SIZE} bytes, found {MAX_SIZE + 1}"):
        decode(Small, bytes(MAX_SIZE + 1))
    with pytest.raises(UsageError, match=r"too long.*put constants into tensors"):
        encode(Leaf(data=bytes(MAX_SIZE)))
    chain = Everything(True, 1, 0.5, Leaf())
    for _ in range((MAX_DEPTH - 2) // 2):
        chain = Everything(True, 1, 0.5, Leaf(), children=[chain])
    assert decode(Everything, encode(chain)) == chain
    for more in (2, 400, 5000):
        for _ in range(more):
            chain = Everything(True, 1, 0.5, Leaf(), children=[chain])
        with pytest.raises(UsageError, match=f"nested too deeply: expected {MAX_DEPTH} levels"):
            encode(chain)
    chain.children.append(chain)
    with pytest.raises(UsageError, match="nested too deeply"):
        tensor_names(chain)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Small("1"), r"Small\.a: .*an integer.*found '1'"),  # type: ignore[arg-type] # what is tested
        (Small(True), r"Small\.a"),
        (Small(1, 1 << 60), r"Small\.b: .*a float"),  # which has no such value
        (Small(1, "x"), r"Small\.b"),  # type: ignore[arg-type] # what is tested
        (Leaf("\ud800"), r"Leaf\.text: .*UTF-8"),
        (Everything(True, 1, 1.0, Small(1)), r"Everything\.leaf: .*a Leaf"),  # type: ignore[arg-type] # what is tested
        (Everything(True, 1, 1.0, Leaf(), reference=TensorRef("")), r"Everything\.reference"),
        (Everything(True, 1, 1.0, Leaf(), table={"x": [None]}), r"Everything\.table\['x'\]\[0\]"),  # type: ignore[list-item] # what is tested
        (Small, "a payload is a dataclass"),
        ({"a": 1}, "a payload is a dataclass: found dict"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused(value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        encode(value)


def test_a_type_without_a_form_is_refused_by_field() -> None:
    for hint in (complex, "list", "dict[int, str]", "int | str", set[int], tuple[int, int], "Nowhere"):
        made: type = dataclass(type("Made", (), {"__annotations__": {"x": hint}, "__module__": __name__}))
        with pytest.raises(UsageError, match="Made"):
            encode(made(1))
        with pytest.raises(UsageError, match="Made"):
            decode(made, b"\xa0")


def test_what_is_no_field_is_refused() -> None:
    @dataclass
    class Seeded:
        a: int
        seed: InitVar[int]
        shared: ClassVar[int] = 1

    with pytest.raises(UsageError, match=r"Seeded"):
        encode(Seeded(1, 2))


def test_what_the_author_checks_is_an_error_of_the_bytes() -> None:
    assert decode(Checked, encode(Checked(2))) == Checked(2)
    with pytest.raises(FormatError, match=r"do not belong together: .*'3 is odd'"):
        decode(Checked, cbor2.dumps({"even": 3}))


def is_taken(data: bytes) -> bool:
    """Decode hostile bytes; return whether that gave a value, which then is written and read like any other."""
    try:
        value = decode(Everything, data)
    except FormatError:
        return False
    again = encode(value)
    assert encode(decode(Everything, again)) == again
    return True


@given(st.data())
def test_hostile_bytes_give_an_error_or_a_value_like_any_other(data: st.DataObject) -> None:
    changed = bytearray(encode(EVERYTHING))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        match data.draw(st.integers(0, 2)):
            case 0:
                changed[at] = data.draw(st.integers(0, 255))
            case 1:
                changed[at:at] = data.draw(st.binary(min_size=1, max_size=9))
            case _:
                del changed[at : at + data.draw(st.integers(0, 9))]
                changed += b"\0"
    is_taken(bytes(changed))  # whether it is, chance decides; what must hold is asserted there


def test_every_byte_may_be_any_other() -> None:
    good = encode(EVERYTHING)
    taken = [is_taken(good[:at] + bytes([value]) + good[at + 1 :]) for at in range(len(good)) for value in range(256)]
    assert {True, False} == set(taken)


@pytest.mark.parametrize("version", range(1, CURRENT + 1))
def test_libraries_of_old_versions_open_with_new_code(version: int) -> None:
    with load(library_of(version)) as library:
        library.check()
        (module,) = library.modules
        assert module.alternatives[0].schema_version == version
        graph = library.build_modules(registry=registry()).root
        assert isinstance(graph, Graph)
        assert [(node.operation, node.inputs, node.stride) for node in graph.nodes] == [
            ("conv", (-1,), 1 if version == 1 else 2),
            ("dense", (0,), 1),
        ]
        assert graph.engine == (b"\x00engine" if version == 3 else None)
        assert [tensor.name for tensor in module.functions["infer"]] == tensor_names(graph)
        assert library[graph.nodes[1].weights[0].name].tolist() == list(range(6))


@pytest.mark.parametrize("version", range(1, CURRENT + 1))
def test_the_golden_payloads_are_what_is_written_now(version: int) -> None:
    with load(library_of(version)) as library:
        payload = bytes(library.modules[0].alternatives[0].bytes())
    assert payload == encode(graph_of(version))


def test_every_golden_library_is_known() -> None:
    assert sorted(os.listdir(PAYLOADS)) == [f"libnet-v{version}.so" for version in range(1, CURRENT + 1)]


def test_a_hostile_payload_of_an_old_version_is_an_error_or_becomes_one_of_the_next() -> None:
    for step, version, later in ((one_to_two, 1, GraphV2), (two_to_three, 2, Graph)):
        data = encode(graph_of(version))
        refused = 0
        for at in range(len(data)):
            for value in (0, 1, 0x80, 0xFF, data[at] ^ 1, data[at] ^ 0x20):
                try:
                    made = step(memoryview(data[:at] + bytes([value]) + data[at + 1 :]))
                except FormatError:  # noqa: PERF203 - each damage is refused or taken for itself
                    refused += 1
                else:
                    assert encode(decode(later, made)) == made
        assert refused > len(data)


def test_a_module_without_a_step_names_its_version() -> None:
    made = registry()
    del made._upgrades[KIND, 1]
    tree = load(build_pack(golden_package(1))).build_modules(registry=made)
    with pytest.raises(EmitterError, match=r"schema version 1 of modules of the kind 'example\.graph'"):
        _ = tree.root


def test_without_cbor2_the_message_says_what_to_install() -> None:
    program = (
        "import sys\nsys.modules['cbor2'] = None\nfrom emitter import payloads, errors\n"
        "try:\n    payloads.encode(payloads.TensorRef('w'))\nexcept errors.UsageError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install cbor2" in done.stdout


def test_it_is_public() -> None:
    assert set(payloads.__all__) == {"MAX_DEPTH", "MAX_SIZE", "TensorRef", "decode", "encode", "tensor_names"}


@pytest.mark.parametrize("data", [None, 5, "text"])
def test_what_is_no_bytes_is_misuse(data: object) -> None:
    with pytest.raises(UsageError, match=f"Small: this is not a payload: expected bytes, found {type(data).__name__}"):
        decode(Small, data)  # type: ignore[arg-type] # what it refuses
