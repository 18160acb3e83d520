"""Builds what runtimes make of the modules of a pack: children first, each when it is wanted, or all at once.

Authors register a loader for their kind of module, and how older versions of its bytes become the current one.
"""

from __future__ import annotations

from _thread import RLock

from emitter.errors import LoadError, UsageError, shown
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeVar

    from emitter.loaders._modules import Alternative, Module
    from emitter.loaders._tensor import Tensor

    Loader = Callable[["ModuleSource"], object]
    Upgrade = Callable[[memoryview], bytes]
    L = TypeVar("L", bound=Loader)
    U = TypeVar("U", bound=Upgrade)

__all__ = ["ModuleSource", "ModuleTree", "Registry", "module_loader", "module_upgrade"]


class ModuleSource:
    """What a loader gets to build a module from.

    `kind` and `schema_version` are those that the loader was registered for; `stored_version` is the one in the file.
    `imports` are what the loaders of the imported modules returned, in order. `functions` gives, by name, the tensors
    that each function takes: views of the file, which export DLPack.
    """

    __slots__ = (
        "_data",
        "alternative",
        "functions",
        "imports",
        "kind",
        "metadata",
        "name",
        "schema_version",
        "stored_version",
    )

    def __init__(
        self, module: Module, alternative: Alternative, imports: tuple[object, ...], data: memoryview, version: int
    ) -> None:
        self.name: str = module.name
        self.kind: str = alternative.kind
        self.schema_version: int = version
        self.stored_version: int = alternative.schema_version
        self.alternative: Alternative = alternative
        self.imports: tuple[object, ...] = imports
        self.functions: dict[str, tuple[Tensor, ...]] = module.functions
        self.metadata: dict[str, str] = module.metadata
        self._data = data

    def bytes(self) -> memoryview:
        """Return the module's bytes, read-only: those in the file, or, after an upgrade, what that made of them."""
        return self._data


class Registry:
    """Loaders by kind of module, each for one schema version, and the steps that lead to it from older ones.

    >>> registry = Registry()
    >>> @registry.module_loader("greeting", schema_version=2)
    ... def load_greeting(source):
    ...     return bytes(source.bytes()).decode()
    >>> @registry.module_upgrade("greeting", 1)
    ... def with_comma(data):
    ...     return bytes(data).replace(b" ", b", ")
    """

    def __init__(self) -> None:
        self._loaders: dict[str, tuple[int, Loader]] = {}
        self._upgrades: dict[tuple[str, int], Upgrade] = {}

    def module_loader(self, kind: str, *, schema_version: int = 1) -> Callable[[L], L]:
        """Register the decorated function as the loader of `kind`: it gets a ModuleSource, and returns what it will.

        Raises UsageError if there is one already.
        """
        self._check(kind, schema_version)

        def register(loader: L) -> L:
            if kind in self._loaders:
                raise UsageError(
                    f"there is a loader of the kind {shown(kind)} already", hint="use a Registry of your own"
                )
            self._loaders[kind] = (schema_version, loader)
            return loader

        return register

    def module_upgrade(self, kind: str, version: int) -> Callable[[U], U]:
        """Register the decorated function as the step from `version` to the next: bytes (a memoryview) to bytes.

        Raises UsageError if there is one already.
        """
        self._check(kind, version)

        def register(upgrade: U) -> U:
            if (kind, version) in self._upgrades:
                raise UsageError(f"there is a step from version {version} of {shown(kind)} already")
            self._upgrades[kind, version] = upgrade
            return upgrade

        return register

    def build(self, module: Module, alternative: Alternative, imports: tuple[object, ...]) -> object:
        """Return what the loader makes of the module; raise LoadError if no loader knows its kind and version."""
        kind, stored = alternative.kind, alternative.schema_version
        where = f"module {shown(module.name)}"
        known = self._loaders.get(kind)
        if known is None:
            raise LoadError(
                f"no loader is registered for modules of the kind {shown(kind)}, schema version {stored}",
                where=where,
                expected=", ".join(map(shown, sorted(self._loaders))) or "a loader registered with module_loader",
                hint="import the package that registers it, or register one",
            )
        version, loader = known
        data = alternative.bytes()
        for step in range(stored, version):
            upgrade = self._upgrades.get((kind, step))
            if upgrade is None:
                raise _unknown_version(where, kind, stored, version, f"no step from version {step} is registered")
            data = memoryview(upgrade(data)).toreadonly()
        if stored > version:
            raise _unknown_version(where, kind, stored, version, "the file is newer than the loader")
        return loader(ModuleSource(module, alternative, imports, data, version))

    @staticmethod
    def _check(kind: object, version: object) -> None:
        if not isinstance(kind, str) or not kind:
            raise UsageError("the kind of a module is text", actual=shown(kind))
        if type(version) is not int or version < 0:
            raise UsageError("a schema version is a number from 0 on", actual=shown(version))


def _unknown_version(where: str, kind: str, stored: int, version: int, why: str) -> LoadError:
    return LoadError(
        f"schema version {stored} of modules of the kind {shown(kind)} is not known",
        where=where,
        expected=f"version {version}, or one that steps lead from",
        actual=f"{stored}: {why}",
        hint="emit the file again, or use the version of the runtime that it was made for",
    )


class ModuleTree:
    """The modules of one pack, as their loaders build them for `place`.

    A module is built when it is first asked for, after all that it imports; twice imported ones are built once. What a
    loader raises comes out as it is, and the next request tries again.
    """

    def __init__(self, modules: list[Module], place: Mapping[str, str], registry: Registry) -> None:
        self._modules = modules
        self._numbers = {module.name: module.number for module in modules}
        self._place = {str(key): str(value) for key, value in place.items()}
        self._registry = registry
        self._built: dict[int, object] = {}
        self._lock = RLock()

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the modules: the root first, each before what it imports."""
        return iter(self._numbers)

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def __getitem__(self, name: str) -> object:
        """Return what the loader made of the module called `name`; raise LoadError if there is none."""
        number = self._numbers.get(name)
        if number is None:
            raise LoadError(
                f"there is no module called {shown(name)}", expected=", ".join(map(shown, list(self._numbers)[:20]))
            )
        return self._build(number)

    @property
    def root(self) -> object:
        """What the loader made of the root."""
        if not self._modules:
            raise LoadError("the pack holds no modules", hint="read its tensors")
        return self._build(0)

    def build_all(self) -> None:
        """Build every module that is not built yet."""
        for number in reversed(range(len(self._modules))):
            self._build(number)

    def function(self, name: str) -> tuple[object, tuple[Tensor, ...]]:
        """Return what the loader made of the module that lists the function `name`, and the tensors that it takes.

        Raises LoadError if no module lists it.
        """
        for module in self._modules:
            tensors = module.functions.get(name)
            if tensors is not None:
                return self._build(module.number), tensors
        known = [function for module in self._modules for function in module.functions][:20]
        raise LoadError(f"no module has a function {shown(name)}", expected=", ".join(map(shown, known)) or "none")

    def _build(self, wanted: int) -> object:
        with self._lock:
            waiting = [wanted]
            while waiting:
                number = waiting[-1]
                if number in self._built:
                    waiting.pop()
                    continue
                children = [child.number for child in self._modules[number].imports]
                missing = [child for child in children if child not in self._built]
                if missing:
                    waiting += reversed(missing)
                    continue
                module = self._modules[number]
                imports = tuple(self._built[child] for child in children)
                chosen = module.select(self._place)
                try:
                    self._built[number] = self._registry.build(module, chosen, imports)
                except LoadError as error:
                    # Those before it would have been taken, had they fitted.
                    passed = [f"{one.number} ({one.kind}): {one.rejection(self._place)}" for one in module.alternatives]
                    if chosen.number and error.actual is None:
                        error.actual = f"passed over {'; '.join(passed[: chosen.number])}"
                    raise
            return self._built[wanted]


DEFAULT = Registry()

module_loader = DEFAULT.module_loader
module_upgrade = DEFAULT.module_upgrade
