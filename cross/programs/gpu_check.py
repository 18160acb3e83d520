"""What cross/gpu_check.sh runs: `sm` prints the compute capability; `pack` and `registered` compare with numpy."""

import ctypes
import subprocess
import sys

import numpy as np

import emitter
from emitter.errors import LoadError
from emitter.loaders import CudaDriver

A, COUNT = np.float32(1.5), 1_000_003
X = np.arange(COUNT, dtype=np.float32)
Y = np.cos(X)


def compare(way: str, result: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> None:
    """End the program unless `result` is a * x + y, to what a fused operation may round differently."""
    np.testing.assert_allclose(result, A * X + Y, rtol=1e-6, atol=1e-6)
    print(f"gpu_check: {way}: {COUNT} elements are right")


def run_pack(path: str, names: list[str]) -> None:
    """Run the kernel of each module in an emitted library."""
    with emitter.load(path) as library, CudaDriver() as driver:
        for name in names:
            result = Y.copy()
            with driver.load(library.module(name)) as program:
                on_gpu = [ctypes.c_uint64(), ctypes.c_uint64()]
                for address, array in zip(on_gpu, (X, result), strict=True):
                    size = ctypes.c_size_t(array.nbytes)
                    driver.call("cuMemAlloc_v2", ctypes.byref(address), size)
                    driver.call("cuMemcpyHtoD_v2", address, ctypes.c_void_p(array.ctypes.data), size)
                grid = ((COUNT + 255) // 256,)
                program.launch("axpy", grid, (256,), ctypes.c_float(A), *on_gpu, ctypes.c_int(COUNT))
                size = ctypes.c_size_t(result.nbytes)
                driver.call("cuMemcpyDtoH_v2", ctypes.c_void_p(result.ctypes.data), on_gpu[1], size)
                for address in on_gpu:
                    driver.call("cuMemFree_v2", address)
            compare(name, result)


def run_registered(program: str) -> None:
    """Run a program that starts the kernel by its symbol."""
    given = A.tobytes() + X.tobytes() + Y.tobytes()
    done = subprocess.run([program, str(COUNT)], input=given, stdout=subprocess.PIPE, check=True)
    compare("registered", np.frombuffer(done.stdout, np.float32))


if __name__ == "__main__":
    if sys.argv[1] == "sm":
        try:
            with CudaDriver() as found:
                print(found.sm)
        except LoadError as error:
            sys.exit(print(error) or 1)
    elif sys.argv[1] == "pack":
        run_pack(sys.argv[2], sys.argv[3:])
    else:
        run_registered(sys.argv[2])
