"""Each rule of `emitter verify`: a file that breaks it, and one that does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import emitter.verify.rules  # noqa: F401 - it fills the table
from emitter.verify import verify
from emitter.verify.model import EDITION, RULES, SEVERITIES
from tests.verify_files import ROWS, Files, Row, files, own_profile, place

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from emitter.verify.result import Result

__all__ = ["files"]


def run(row: Row, files: Files, folder: Path, *, bad: bool) -> Result:
    path = place(files, (row.bad if bad else row.good)(files), folder)
    options: dict[str, Any] = dict(row.options, **(row.bad_options if bad else {}))
    profile = options.get("profile", "")
    if "\n" in profile:
        options["profile"] = own_profile(files, profile)
    if "against" in options:
        (folder / "alpha.bin").write_bytes(bytes(range(200)))
        (folder / "beta.bin").write_bytes(b"beta" * 100)
        options["against"] = [one.replace("raw:", f"raw:{folder}/") for one in options["against"]]
    return verify(path, config="", **options)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_a_rule_finds_what_breaks_it_and_nothing_else(row: Row, files: Files, tmp_path: Path) -> None:
    result = run(row, files, tmp_path, bad=True)
    assert row.rule in {finding.rule for finding in result.findings}
    assert result.files
    (tmp_path / "good").mkdir()
    result = run(row, files, tmp_path / "good", bad=False)
    assert row.rule not in {finding.rule for finding in result.findings}, result.findings
    assert result.files
    assert not result.errors


def test_every_rule_has_a_row() -> None:
    assert [row.rule for row in ROWS if row.rule not in RULES] == []
    assert set(RULES) == {row.rule for row in ROWS}


def test_the_order_of_imports_does_not_matter() -> None:
    assert list(RULES) == sorted(RULES)


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rule_says_all_that_a_finding_needs(name: str) -> None:
    rule = RULES[name]
    assert rule.severity in SEVERITIES
    assert 1 <= rule.since <= EDITION
    assert not rule.title[0].islower() or rule.title.startswith("e_")
    assert not rule.title.endswith(".")
    assert rule.why and rule.fix and "\n" not in rule.why + rule.fix
    assert name == name.lower().replace(" ", "-")
