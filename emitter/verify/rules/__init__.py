"""The rules, by field. Importing this package fills `emitter.verify.model.RULES`, in the order of asking."""

from emitter.verify.rules import (  # noqa: F401 - each enters its rules
    abi,
    archive,
    dependencies,
    device,
    dynamic,
    hardening,
    identity,
    leaks,
    package,
    payload,
    reach,
    segments,
    stack,
    structure,
    symbols,
)  # isort: skip

__all__: list[str] = []
