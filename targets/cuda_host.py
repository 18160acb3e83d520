"""x86-64 Linux with glibc that carries CUDA device programs beside the constants: workstations, DGX, cloud machines."""

from emitter.targets.x86_64_linux_gnu import TARGET as X86_64_LINUX_GNU

TARGET = X86_64_LINUX_GNU._replace(
    name="cuda-host",
    description="x86-64 Linux, glibc, with CUDA device programs",
    tier=2,
    version_kind=None,
    oldest_version=None,
    device_code=True,
)
