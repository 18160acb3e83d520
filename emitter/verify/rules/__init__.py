"""The rules, by field. Importing this package fills `emitter.verify.model.RULES`, sorted by name."""

from emitter.verify import together  # noqa: F401 - it enters its rules
from emitter.verify.model import RULES
from emitter.verify.rules import (  # noqa: F401 - each enters its rules
    abi,
    archive,
    dependencies,
    device,
    dynamic,
    hardening,
    identity,
    leaks,
    macho,
    macho_symbols,
    package,
    payload,
    pe,
    reach,
    segments,
    stack,
    structure,
    symbols,
    sysroot,
)  # isort: skip

__all__: list[str] = []

# The order of asking and of listing is that of the names, whatever is imported first.
for _name in sorted(RULES):
    RULES[_name] = RULES.pop(_name)
