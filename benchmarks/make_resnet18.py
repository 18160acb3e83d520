"""Writes a safetensors file with the 122 tensors of torchvision's ResNet-18: names, shapes and types, made-up values.

    python3 benchmarks/make_resnet18.py [resnet18.safetensors]

The payload has 46,796,608 bytes; the values are deterministic. Needs bare Python alone.
"""

from __future__ import annotations

import json
import random
import struct
import sys

Tensor = tuple[str, str, tuple[int, ...]]  # name, dtype, shape

PLANES = (64, 128, 256, 512)
BLOCKS = 2  # basic blocks per layer


def tensors() -> list[Tensor]:
    """Return name, safetensors dtype and shape of every tensor, in the state dict's order."""
    found: list[Tensor] = []

    def convolution(name: str, out: int, into: int, kernel: int) -> None:
        found.append((f"{name}.weight", "F32", (out, into, kernel, kernel)))

    def batch_norm(name: str, planes: int) -> None:
        found.extend((f"{name}.{part}", "F32", (planes,)) for part in ("weight", "bias", "running_mean", "running_var"))
        found.append((f"{name}.num_batches_tracked", "I64", ()))

    convolution("conv1", 64, 3, 7)
    batch_norm("bn1", 64)
    into = 64
    for layer, planes in enumerate(PLANES, start=1):
        for block in range(BLOCKS):
            name = f"layer{layer}.{block}"
            convolution(f"{name}.conv1", planes, into, 3)
            batch_norm(f"{name}.bn1", planes)
            convolution(f"{name}.conv2", planes, planes, 3)
            batch_norm(f"{name}.bn2", planes)
            if into != planes:
                convolution(f"{name}.downsample.0", planes, into, 1)
                batch_norm(f"{name}.downsample.1", planes)
            into = planes
    found.append(("fc.weight", "F32", (1000, 512)))
    found.append(("fc.bias", "F32", (1000,)))
    return found


def nbytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's payload."""
    size = {"F32": 4, "I64": 8}[tensor[1]]
    for extent in tensor[2]:
        size *= extent
    return size


def payload(tensor: Tensor) -> bytes:
    """Return a tensor's bytes: the same for the same name, and finite numbers where they are floats."""
    name, dtype, _ = tensor
    if dtype == "I64":
        return struct.pack("<q", 0)
    data = bytearray(random.Random(name).randbytes(nbytes(tensor)))
    # Random signs and magnitudes, but exponents within 2^-31 to 2^1: finite, and not denormal.
    data[3::4] = bytes(data[3::4]).translate(_TOP_BYTE)
    return bytes(data)


_TOP_BYTE = bytes((top & 0x8F) | 0x30 for top in range(256))


def write(path: str) -> int:
    """Write the file; return the bytes of its payload."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for tensor in tensors():
        end = position + nbytes(tensor)
        entries[tensor[0]] = {"dtype": tensor[1], "shape": list(tensor[2]), "data_offsets": [position, end]}
        position = end
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for tensor in tensors():
            file.write(payload(tensor))
    return position


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    path = arguments[0] if arguments else "resnet18.safetensors"
    try:
        size = write(path)
    except OSError as error:
        print(f"make_resnet18.py: error: {path}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"{path}: {len(tensors())} tensors, {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
