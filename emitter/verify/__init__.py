"""Proves what artefacts promise: rules about any object, archive, library, program or pack, for a target and a profile.

`assert_ok` is for tests; `verify` gives the findings; the command is `emitter verify`.
"""

from __future__ import annotations

import os

from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal

    from emitter.verify.result import Result

__all__ = ["assert_ok", "verify"]


def verify(
    *paths: str | os.PathLike[str],
    target: str | None = None,
    profile: str | None = None,
    page_size: int | None = None,
    max_size: int | None = None,
    against: Iterable[str | os.PathLike[str]] = (),
    config: str | os.PathLike[str] | None = None,
    baseline: str | os.PathLike[str] | None = None,
    rules: Mapping[str, str] | None = None,
) -> Result:
    """Verify files, directories and containers, and return the result: `findings`, `files`, `status`, `to_json()`.

    `target` is a target's name in any spelling, `profile` a profile's name or path, `page_size` and `max_size` are
    bytes, `against` inputs whose tensors the artefacts must hold byte by byte, `rules` severities of single rules
    (`off`, `info`, `warning`, `error`). What is None comes from the configuration: `config`, or the nearest
    emitter-verify.toml or pyproject.toml from the current directory upwards.

    Raises UsageError for options that make no sense, InputError where there is nothing to verify. What is wrong with a
    file is a finding; a named file that is no artefact is one of the result's `errors`.
    """
    from emitter.verify.engine import verify_paths
    from emitter.verify.result import Options

    options = Options(
        target=target,
        profile=profile,
        page_size=page_size,
        max_size=max_size,
        against=tuple(os.fsdecode(path) for path in against),
        config=None if config is None else os.fsdecode(config),
        baseline=None if baseline is None else os.fsdecode(baseline),
        severities=dict(rules or {}),
    )
    return verify_paths([os.fsdecode(path) for path in paths], options)


def assert_ok(
    *paths: str | os.PathLike[str],
    target: str | None = None,
    profile: str | None = None,
    fail_on: Literal["error", "warning"] = "error",
    page_size: int | None = None,
    max_size: int | None = None,
    against: Iterable[str | os.PathLike[str]] = (),
    config: str | os.PathLike[str] | None = None,
    baseline: str | os.PathLike[str] | None = None,
    rules: Mapping[str, str] | None = None,
) -> None:
    """Raise AssertionError, with the report of `emitter verify`, unless everything in `paths` is as it must be.

    The parameters are those of `verify`. `fail_on` is the lowest severity that fails.
    """
    from emitter.verify.output import text

    result = verify(
        *paths,
        target=target,
        profile=profile,
        page_size=page_size,
        max_size=max_size,
        against=against,
        config=config,
        baseline=baseline,
        rules=rules,
    )
    result.fail_on = fail_on
    if result.status:
        raise AssertionError("\n" + text(result))
