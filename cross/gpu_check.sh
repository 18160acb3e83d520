#!/bin/sh
# Compiles a kernel, emits it in both ways (a library with a pack, and an object that registers itself), runs both on the GPU at hand and
# compares the results with numpy. Less than five minutes. Exit status 77 where there is no GPU, compiler or CUDA runtime, and says which.
#
#     cross/gpu_check.sh [PYTHON]
#
# PYTHON has emitter, numpy and llvmlite (default: python3). nvcc is the one on the path, or that of the package nvidia-cuda-nvcc.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
programs=$root/cross/programs
python=${1:-python3}
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT

skip() {
    echo "gpu_check: skipped: $*"
    exit 77
}

# The driver says which GPU is here: 86 for compute capability 8.6.
sm=$("$python" "$programs/gpu_check.py" sm) || skip "$sm"

# The toolkit of the package index has its libraries beside its tools.
home=$("$python" -c '
import pathlib, sys
print(next((nvcc.parents[1] for path in sys.path for nvcc in pathlib.Path(path).glob("nvidia/cu*/bin/nvcc")), ""))
')
[ -z "$home" ] || PATH=$home/bin:$PATH
command -v nvcc >/dev/null || skip "nvcc is not installed"
command -v gcc >/dev/null || skip "gcc is not installed"
machine=$(uname -m)
case $machine in
    x86_64) target=cuda-host ;;
    aarch64) target=cuda-host-aarch64 ;;
    *) skip "there is no target for $machine" ;;
esac

echo "gpu_check: sm_$sm, $(nvcc --version | tail -n 1), $target"
nvcc -fatbin -gencode "arch=compute_$sm,code=[sm_$sm,compute_$sm]" "$programs/gpu_check.cu" -o "$folder/axpy.fatbin"
nvcc -cubin "-arch=sm_$sm" "$programs/gpu_check.cu" -o "$folder/axpy.cubin"
nvcc -ptx "-arch=compute_75" "$programs/gpu_check.cu" -o "$folder/axpy.ptx"
emit() { "$python" -m emitter --target "$target" "$@"; }
emit "fatbin=$folder/axpy.fatbin" "cubin=$folder/axpy.cubin" "ptx=$folder/axpy.ptx" -o "$folder/libaxpy.so"
"$python" "$programs/gpu_check.py" pack "$folder/libaxpy.so" fatbin cubin ptx

# An older libcudart has no link without its version.
cudart=$(for path in ${CUDA_RUNTIME:-} "$home"/lib /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu; do
    find "$path" -maxdepth 1 -name 'libcudart.so*' 2>/dev/null || :
done | head -n 1)
[ -n "$cudart" ] || skip "libcudart is not installed: the registered way was not run"
emit "$folder/axpy.fatbin" --cuda-register -o "$folder/kernels.o"
gcc "$programs/gpu_check.c" "$folder/kernels.o" "$cudart" "-Wl,-rpath,$(dirname -- "$cudart")" -o "$folder/registered"
"$python" "$programs/gpu_check.py" registered "$folder/registered"
echo "gpu_check: both ways compute what numpy computes"
