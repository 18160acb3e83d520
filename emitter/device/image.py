"""What is known of a program for GPUs, whatever its format."""

from __future__ import annotations

from emitter.errors import FormatError
from emitter.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CUDA", "HIP", "RELOCATABLE", "SPIRV", "TENSORRT", "Image", "Program", "broken", "sm_name"]

# Kinds of modules: which runtime takes the bytes.
CUDA = "cuda"  # cuModuleLoadData, cuLibraryLoadData
RELOCATABLE = "cuda-relocatable"  # cuLinkAddData, or nvcc -dlink: it does not run as it is
HIP = "hip"  # hipModuleLoadData
TENSORRT = "tensorrt"  # IRuntime::deserializeCudaEngine
SPIRV = "spirv"  # vkCreateShaderModule, clCreateProgramWithIL

_NO_FACTS: Mapping[str, str] = {}


class Image(NamedTuple):
    """One form of a program: for which GPU, and where it runs.

    `name` is what compilers call the GPU: `sm_80`, `compute_90a`, `gfx942`; empty where the bytes do not say it.
    `requires` is what it wants of the place of loading, as `Package.add_module` takes it: key by requirement.
    `order` sorts images of one program: the one that suits a GPU best comes first.
    """

    name: str
    requires: Mapping[str, str]
    order: tuple[int, ...] = ()


class Program(NamedTuple):
    """A file of device code: `size` bytes from its beginning are what runtimes take.

    `kind` is that of the module that holds it; `alignment` is in bytes, what its runtime wants of the address; `facts`
    are more texts by key that go into the module's metadata.
    """

    format: str
    kind: str
    size: int
    alignment: int
    images: tuple[Image, ...]
    facts: Mapping[str, str] = _NO_FACTS


def sm_name(number: int, suffix: str = "", *, ptx: bool = False) -> str:
    """Return how CUDA calls an architecture: `sm_90a`, or `compute_90a` for PTX."""
    return f"{'compute' if ptx else 'sm'}_{number}{suffix}"


def cuda_image(number: int, suffix: str = "", *, ptx: bool = False) -> Image:
    """Return the image for an sm number (80 for compute capability 8.0) and the suffix `a`, `f` or none.

    Source: CUDA C++ Programming Guide, Binary Compatibility, PTX Compatibility, and Family- and Architecture-Specific
    Features. Machine code runs on GPUs of the same major version from its minor one on, and PTX on all from its own on;
    with `a` both run on that GPU alone, with `f` on its family, from that GPU on.
    """
    if suffix == "a":
        requirement = f"== {number}"
    elif ptx and not suffix:
        requirement = f">= {number}"
    else:
        requirement = f">= {number}, < {(number // 10 + 1) * 10}"
    return Image(sm_name(number, suffix, ptx=ptx), {"sm": requirement}, (ptx, -number, not suffix))


def broken(  # noqa: PLR0917 - the parts of a message, in its order
    what: str, where: str, offset: int, expected: object, actual: object, hint: str | None = None
) -> FormatError:
    """Return the error of a program whose bytes at `offset` are wrong; `where` is the file."""
    return FormatError(
        what, where=f"{where}: offset {offset:#x}", expected=expected, actual=actual, hint=hint or "make it again"
    )
