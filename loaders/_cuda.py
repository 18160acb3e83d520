"""CUDA programs of a pack, loaded through the driver of the machine: libcuda is found when it is wanted.

Source: CUDA Driver API, Library Management, Module Management, Primary Context Management, Execution Control.
"""

from __future__ import annotations

import sys
from _thread import RLock

from emitter.errors import LoadError, UsageError, shown
from emitter.loaders._registry import Registry
from emitter.records import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes
    from typing import Any

    from typing_extensions import Self

    from emitter.loaders._modules import Module
    from emitter.loaders._registry import ModuleSource

__all__ = ["CudaDriver", "CudaProgram"]

KIND, RELOCATABLE, ROOT = "cuda", "cuda-relocatable", "package"
_IMAGES = "device.images"  # metadata: what the program has code for
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_NAMES = {"win32": ("nvcuda.dll",)}
_BINARY = (b"\x7fELF", b"\x50\xed\x55\xba")
_HINTS = {
    100: "no GPU of NVIDIA is here",
    209: "compile it for this GPU as well",
    218: "the text is no PTX that this driver reads",
    222: "the driver is older than the compiler of the PTX: update it, or compile with an older toolkit",
}


class CudaDriver:
    """The CUDA driver and one of its GPUs; programs that are loaded through it are shared, and counted.

    `device` counts GPUs from 0. `library` is the path of libcuda; without it the system finds it. Raises LoadError
    where there is no driver, or no such GPU.

    >>> driver = CudaDriver()                             # doctest: +SKIP
    >>> program = driver.load(library.module("kernels"))  # doctest: +SKIP
    """

    def __init__(self, *, device: int = 0, library: str | None = None) -> None:
        import ctypes

        self._lock = RLock()
        self._loaded: dict[tuple[int, int], _Loaded] = {}
        self._context: int | None = None
        self._driver = _open(library)
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if not 0 <= device < count.value:
            raise LoadError(
                "there is no such GPU", expected=f"a device below {count.value}", actual=device, hint="count from 0"
            )
        handle = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), device)
        self._device = handle.value
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(major), _MAJOR, handle)
        self.call("cuDeviceGetAttribute", ctypes.byref(minor), _MINOR, handle)
        self.sm: str = f"{major.value}{minor.value}"
        self._has_libraries = hasattr(self._driver, "cuLibraryLoadData")  # since CUDA 12.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def place(self) -> dict[str, str]:
        """What conditions of modules are about: `sm`, the compute capability without its dot."""
        return {"sm": self.sm}

    def registry(self) -> Registry:
        """Return loaders for `library.build_modules`: a program is built as a CudaProgram, a root as its imports."""
        registry = Registry()
        registry.module_loader(KIND)(self._build)
        registry.module_loader(ROOT)(lambda source: source.imports)
        return registry

    def load(self, module: Module) -> CudaProgram:
        """Load the form of a module that suits the GPU best; what is loaded already is shared.

        Raises LoadError, saying what it has code for, if none suits, and with the driver's words if that refuses.
        """
        where = f"module {shown(module.name)}"
        images = module.metadata.get(_IMAGES, "")
        reasons = []
        for one in module.alternatives:
            reason = one.rejection(self.place)
            if reason is None and one.kind == KIND:
                return self._load(one.bytes(), where, images)
            reasons.append(reason or f"is of the kind {shown(one.kind)}")
        if any(one.kind == RELOCATABLE for one in module.alternatives):
            hint = "it has to be linked before it runs: nvcc -dlink -fatbin"
        else:
            hint = f"compile it for this GPU as well: -gencode arch=compute_{self.sm},code=sm_{self.sm}"
        raise LoadError(
            "no image of the program suits this GPU",
            where=where,
            expected=f"code for sm_{self.sm}, or PTX for it or an older one",
            actual=images or "; ".join(reasons[:8]),
            hint=hint,
        )

    def close(self) -> None:
        """Unload what is still loaded, and let the GPU's context go."""
        with self._lock:
            for loaded in list(self._loaded.values()):
                self._unload(loaded)
            self._loaded.clear()
            if self._context is not None:
                self._context = None
                self.call("cuDevicePrimaryCtxRelease_v2", self._device)

    def _build(self, source: ModuleSource) -> CudaProgram:
        where = f"module {shown(source.name)}"
        return self._load(source.bytes(), where, source.metadata.get(_IMAGES, ""))

    def _load(self, data: memoryview, where: str, images: str) -> CudaProgram:
        import ctypes

        import numpy as np

        if not data.nbytes:
            raise LoadError("the program is empty", where=where)
        address = int(np.frombuffer(data, np.uint8).ctypes.data)
        key = (address, data.nbytes)
        with self._lock:
            loaded = self._loaded.get(key)
            if loaded is None:
                self._need_context()
                # PTX ends at a NUL, which need not follow it in memory after an upgrade.
                text = None if bytes(data[:4]) in _BINARY else ctypes.create_string_buffer(data.tobytes())
                image = ctypes.c_void_p(address) if text is None else ctypes.cast(text, ctypes.c_void_p)
                handle = ctypes.c_void_p()
                try:
                    if self._has_libraries:
                        none = (None, None, 0)
                        self.call("cuLibraryLoadData", ctypes.byref(handle), image, *none, *none)
                    else:
                        self.call("cuModuleLoadData", ctypes.byref(handle), image)
                except LoadError as error:
                    error.where = where
                    error.expected = f"a program for sm_{self.sm}"
                    error.actual = f"{error.actual}; it has code for {images}" if images else error.actual
                    raise
                loaded = self._loaded[key] = _Loaded(key, handle)
            loaded.count += 1
        return CudaProgram(self, loaded, where)

    def _need_context(self) -> None:
        """Make the GPU's primary context current where the thread has none, as the CUDA runtime does."""
        import ctypes

        current = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(current))
        if current.value:
            return
        with self._lock:
            if self._context is None:
                context = ctypes.c_void_p()
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
                self._context = context.value
        self.call("cuCtxSetCurrent", ctypes.c_void_p(self._context))

    def _release(self, loaded: _Loaded) -> None:
        with self._lock:
            loaded.count -= 1
            if not loaded.count and self._loaded.pop(loaded.key, None) is not None:
                self._unload(loaded)

    def _unload(self, loaded: _Loaded) -> None:
        self.call("cuLibraryUnload" if self._has_libraries else "cuModuleUnload", loaded.handle)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver with ctypes values; raise LoadError with its words if it refuses.

        >>> driver.call("cuMemAlloc_v2", ctypes.byref(address), 4096)  # doctest: +SKIP
        """
        function = getattr(self._driver, name, None)
        if function is None:
            raise LoadError(f"the CUDA driver has no {name}", where=self._driver._name, hint="update the driver")
        code = function(*arguments)
        if code:
            raise LoadError(f"{name} fails", actual=f"{self._error(code)} ({code})", hint=_HINTS.get(code))

    def _error(self, code: int) -> str:
        import ctypes

        text = ctypes.c_char_p()
        function = getattr(self._driver, "cuGetErrorName", None)
        if function is None or function(code, ctypes.byref(text)) or not text.value:
            return "an error without a name"
        return text.value.decode("ascii", "replace")


class _Loaded:
    """A program in the driver: its handle, and how many CudaPrograms are it."""

    __slots__ = ("count", "handle", "key")

    def __init__(self, key: tuple[int, int], handle: ctypes.c_void_p) -> None:
        self.key = key
        self.handle = handle
        self.count = 0


class CudaProgram:
    """A loaded program: its kernels and variables by name. `close`, or the end of `with`, gives it back.

    The driver unloads it when the last one who loaded it has given it back.
    """

    def __init__(self, driver: CudaDriver, loaded: _Loaded, where: str) -> None:
        self._driver = driver
        self._loaded: _Loaded | None = loaded
        self._where = where

    def __repr__(self) -> str:
        return f"<CUDA program, {self._where}{'' if self._loaded else ', closed'}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the program back; its kernels must not be started any more. A second call does nothing."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None:
            self._driver._release(loaded)

    def kernel(self, name: str) -> int:
        """Return the handle of a kernel, a CUfunction or CUkernel, for cuLaunchKernel. Raises LoadError without one."""
        import ctypes

        found = ctypes.c_void_p()
        function = "cuLibraryGetKernel" if self._driver._has_libraries else "cuModuleGetFunction"
        self._find(function, "kernel", name, ctypes.byref(found))
        return found.value or 0

    def variable(self, name: str) -> tuple[int, int]:
        """Return the address on the GPU and the size in bytes of a `__device__` or `__constant__` variable."""
        import ctypes

        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        function = "cuLibraryGetGlobal" if self._driver._has_libraries else "cuModuleGetGlobal_v2"
        self._find(function, "variable", name, ctypes.byref(address), ctypes.byref(size))
        return address.value, size.value

    def launch(
        self,
        name: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        *arguments: Any,
        shared_bytes: int = 0,
        stream: int = 0,
    ) -> None:
        """Start a kernel with ctypes values as arguments; `grid` and `block` have one to three dimensions."""
        import ctypes

        if not (1 <= len(grid) <= 3 and 1 <= len(block) <= 3):
            raise UsageError("a grid and a block have one to three dimensions", actual=f"{shown(grid)}, {shown(block)}")
        dimensions = [*grid, *(1,) * (3 - len(grid)), *block, *(1,) * (3 - len(block))]
        pointers = (ctypes.c_void_p * max(len(arguments), 1))(
            *(ctypes.cast(ctypes.pointer(one), ctypes.c_void_p) for one in arguments)
        )
        kernel = ctypes.c_void_p(self.kernel(name))
        self._driver._need_context()
        self._driver.call(
            "cuLaunchKernel", kernel, *map(ctypes.c_uint, dimensions), ctypes.c_uint(shared_bytes),
            ctypes.c_void_p(stream), pointers, None,
        )  # fmt: skip

    def _find(self, function: str, what: str, name: str, *places: Any) -> None:
        if self._loaded is None:
            raise LoadError("the program is closed", where=self._where, hint="load it again")
        try:
            self._driver.call(function, *places, self._loaded.handle, name.encode())
        except LoadError as error:
            raise LoadError(
                f"the program has no {what} {shown(name)}",
                where=self._where,
                actual=error.actual,
                hint='C++ mangles names: declare it extern "C"',
            ) from error


def _open(library: str | None) -> ctypes.CDLL:
    import ctypes

    names = (library,) if library is not None else _NAMES.get(sys.platform, ("libcuda.so.1", "libcuda.so"))
    reasons = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:  # noqa: PERF203 - each name may be the one
            reasons.append(str(error))
    raise LoadError(
        "there is no CUDA driver here",
        expected=" or ".join(names),
        actual="; ".join(reasons),
        hint="install NVIDIA's driver; reading packs and emitting need none",
    )
