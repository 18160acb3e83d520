"""The table of proofs says what the tests are: the tiers of the targets follow from it."""

from __future__ import annotations

import os
from importlib import import_module

import pytest

from cross.proofs import PROOFS, Proof, proofs_of
from cross.table import BOARDS, TOOLCHAINS
from emitter import targets

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

every_proof = pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: f"{os.path.basename(proof.test)}-{proof.tier}")


@pytest.mark.parametrize("name", targets.names())
def test_the_tier_of_a_target_is_the_best_that_a_test_reaches(name: str) -> None:
    assert targets.load(name).tier == min(proof.tier for proof in proofs_of(name))


@every_proof
def test_the_test_has_the_targets_that_are_said(proof: Proof) -> None:
    """A test names them, or takes them from a table that is in its module."""
    with open(os.path.join(ROOT, proof.test), encoding="utf-8") as file:
        text = file.read()
    module = import_module(proof.test.removesuffix(".py").replace("/", "."))
    tables = repr([value for value in vars(module).values() if isinstance(value, (str, tuple, list, dict))])
    for name in proof.targets:
        # Names of Android's targets carry an API level, and armv7's another letter.
        spelled = name.replace("armv7-linux", "armv7a-linux") if "android" in name else name
        assert name in text + tables or spelled in text + tables, name
    assert proof.targets
    assert set(proof.targets) <= set(targets.names())


def test_what_runs_has_a_runner() -> None:
    """A target of tier 1 is in a table of compilers and emulators, or Wine runs its programs."""
    running = {toolchain.name for toolchain in TOOLCHAINS} | {board.name for board in BOARDS}
    for target in targets.describe_all():
        if target.tier == 1:
            assert target.name in running or target.emulators == ("wine64",)


def test_no_proof_is_given_twice() -> None:
    assert len({(proof.test, proof.tier) for proof in PROOFS}) == len(PROOFS)
