"""x86-64 Linux with musl: Alpine, static binaries."""

from emitter.targets.x86_64_linux_gnu import TARGET as X86_64_LINUX_GNU

TARGET = X86_64_LINUX_GNU._replace(
    name="x86_64-linux-musl",
    description="x86-64 Linux, musl",
    llvm_triple="x86_64-unknown-linux-musl",
    version_kind="musl",
    oldest_version=None,
)
