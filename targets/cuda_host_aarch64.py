"""64-bit Arm Linux with glibc that carries CUDA device programs beside the constants: Jetson, Grace."""

from emitter.targets.aarch64_linux_gnu import TARGET as AARCH64_LINUX_GNU

TARGET = AARCH64_LINUX_GNU._replace(
    name="cuda-host-aarch64",
    description="64-bit Arm Linux, glibc, with CUDA device programs (Jetson, Grace)",
    tier=2,
    version_kind=None,
    oldest_version=None,
    device_code=True,
)
