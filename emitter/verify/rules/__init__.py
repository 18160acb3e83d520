"""The rules, by field. Importing this package fills `emitter.verify.model.RULES`, in the order in which they are asked."""

from emitter.verify.rules import (  # noqa: F401 - each enters its rules
    structure,
    identity,
    abi,
    segments,
    stack,
    dynamic,
    dependencies,
    symbols,
    payload,
    reach,
    hardening,
    leaks,
    archive,
    device,
    package,
)  # isort: skip

__all__: list[str] = []
