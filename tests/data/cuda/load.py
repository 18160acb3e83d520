"""Loads a program of an emitted library through libcuda, as load.c does: LIBRARY MODULE."""

import sys

import emitter
from emitter.errors import LoadError
from emitter.loaders import CudaDriver

try:
    with emitter.load(sys.argv[1]) as library, CudaDriver() as driver:
        module = library.module(sys.argv[2])
        with driver.load(module) as first, driver.load(module) as second:
            assert first.kernel("axpy")
            assert second.variable("counter")[1] == 4
            try:
                second.kernel("missing")
            except LoadError as error:
                assert "CUDA_ERROR_NOT_FOUND" in str(error)
except LoadError as error:
    sys.stdout.write(f"{error}\n")
    sys.exit(3)
