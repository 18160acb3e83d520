"""What a file needs beside itself: libraries, where they are looked for, and versions of their symbols."""

from __future__ import annotations

from emitter.records import TYPE_CHECKING
from emitter.verify.model import Found, rule
from emitter.verify.rules._elf import SHN_UNDEF, elf_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emitter.verify.check import Check

_LINKED = ("library", "executable")

# Folders of people and of builds, which no device has.
BUILD_FOLDERS = (
    "/home/", "/root/", "/tmp/", "/var/tmp/",  # noqa: S108 - they are looked for, not written to
    "/build/", "/builds/", "/builddir/", "/buildd/", "/workspace/",
    "/Users/", "/github/", "/__w/", "/var/lib/jenkins/", "/mnt/", "/media/", "/private/", "/nix/store/",
)  # fmt: skip
_STANDARD = ("/lib", "/usr/lib", "/lib64", "/usr/lib64")


# A30
@rule(
    "elf-needed-path",
    "A needed library is named with a path",
    why="the loader looks at that very path on the device; a path of the build machine is not there",
    fix="give the library a DT_SONAME before linking it, or replace it: patchelf --replace-needed",
    kinds=_LINKED,
)
def needed_path(check: Check) -> Iterator[Found]:
    """Look for slashes in DT_NEEDED."""
    for name in elf_of(check).needed:
        if "/" in name or not name:
            yield Found("DT_NEEDED", "a file name", name or "an empty name")


# A31, as far as one file can tell
@rule(
    "elf-needed-library",
    "A library is needed that the platform does not have",
    why='the program does not start, dlopen fails: "cannot open shared object file"',
    fix="link it statically or ship it beside the file; libraries in a profile says what the platform has",
    kinds=_LINKED,
    needs=("libraries",),
)
def needed_library(check: Check) -> Iterator[Found]:
    """Compare DT_NEEDED with the patterns of the profile."""
    from fnmatch import fnmatchcase

    patterns = check.profile.get("libraries")
    # What lies in the same container is shipped beside it.
    for name in elf_of(check).needed:
        if not any(fnmatchcase(name, pattern) for pattern in patterns):
            yield Found("DT_NEEDED", "a library of the platform", name)


def run_paths(check: Check) -> list[tuple[str, str]]:
    """Return (tag, one path of it) of DT_RPATH and DT_RUNPATH."""
    elf = elf_of(check)
    found = []
    for tag, value in (("DT_RPATH", elf.rpath), ("DT_RUNPATH", elf.runpath)):
        if value is not None:
            found += [(tag, path) for path in value.split(":")]
    return found


# A33, A35
@rule(
    "elf-run-path",
    "Libraries are looked for in a folder that the device does not have, or that anybody can fill",
    why="whoever can write there has his code loaded; on the device the libraries are not found",
    fix="use $ORIGIN-relative paths, or take the path out: patchelf --remove-rpath",
    kinds=_LINKED,
)
def run_path(check: Check) -> Iterator[Found]:
    """Look at each path of DT_RPATH and DT_RUNPATH."""
    for tag, path in run_paths(check):
        if path.startswith(("$ORIGIN", "${ORIGIN}")):
            continue
        if not path.startswith("/"):
            yield Found(tag, "absolute or $ORIGIN-relative paths", path or "an empty path: the current directory")
        elif f"{path}/".startswith(BUILD_FOLDERS):
            yield Found(tag, "no folder of a build", path)


@rule(
    "elf-run-path-present",
    "Libraries are looked for elsewhere than where the platform has them",
    why="the platform's folders are known to the loader; a path beside them is a second place to keep safe",
    fix="take the path out: patchelf --remove-rpath, or configure with --disable-rpath",
    kinds=_LINKED,
    needs=("no-run-path",),
)
def run_path_present(check: Check) -> Iterator[Found]:
    """Report every path that is not $ORIGIN-relative."""
    for tag, path in run_paths(check):
        if not path.startswith(("$ORIGIN", "${ORIGIN}")):
            yield Found(tag, "none", path)


# A34
@rule(
    "elf-run-path-redundant",
    "A run path names a folder that the loader searches anyway",
    severity="info",
    why="it costs every start a few system calls, and hides a wrong path beside it",
    fix="take the path out: patchelf --remove-rpath",
    kinds=_LINKED,
)
def run_path_redundant(check: Check) -> Iterator[Found]:
    """Compare each path with the folders of the loader."""
    for tag, path in run_paths(check):
        if path.rstrip("/") in _STANDARD:
            yield Found(tag, "none", path)


_MAX_DIGITS = 18  # of a number in a version: names in files may have thousands, which int refuses


def version_of(text: str) -> tuple[int, ...]:
    """Return a version such as `2.17` as numbers, without the parts that are none."""
    return tuple(int(part[:_MAX_DIGITS]) for part in text.split(".") if part.isascii() and part.isdigit())


# Versions that are not numbers: (family, rest) -> the first version of the family that has them.
_WORDS = {("GLIBC", "ABI_DT_RELR"): "2.36", ("GLIBC", "ABI_GNU_TLS"): "2.42", ("GLIBC", "ABI_GNU2_TLS"): "2.42"}


def _limits(check: Check) -> dict[str, str]:
    limits = dict(check.profile.get("symbol-versions") or {})
    if check.target is not None and check.target.version_kind == "glibc" and check.version is not None:
        limits["GLIBC"] = min((limits.get("GLIBC", check.version), check.version), key=version_of)
    return limits


# A40, B40
@rule(
    "elf-symbol-version",
    "A version of a symbol is needed that the platform does not have yet",
    why='the loader refuses the file: "version GLIBC_2.38 not found"',
    fix="build on, or against the sysroot of, the oldest system that must run it",
    kinds=_LINKED,
)
def symbol_version(check: Check) -> Iterator[Found]:
    """Compare every needed version with the newest of its family that the profile or the target's name allows."""
    limits = _limits(check)
    if not limits:
        return
    for need in elf_of(check).versions_needed:
        for one in need.versions:
            family, _, version = one.name.partition("_")
            limit = limits.get(family)
            if limit is None or one.vna_flags & 2:  # VER_FLG_WEAK
                continue
            wanted = _WORDS.get((family, version), version)
            numbers = version_of(wanted)
            if not numbers or not wanted[0].isdigit():
                if version == "PRIVATE":
                    yield Found(need.file, f"at most {family}_{limit}", f"{one.name}: not for programs")
            elif numbers > version_of(limit):
                yield Found(need.file, f"at most {family}_{limit}", one.name)


# Functions whose types depend on _TIME_BITS or _FILE_OFFSET_BITS, and whose wide forms have other names (glibc).
_NARROW = frozenset(
    """
    time gettimeofday settimeofday clock_gettime clock_settime clock_getres clock_nanosleep nanosleep mktime
    localtime localtime_r gmtime gmtime_r ctime ctime_r difftime timegm stime ftime adjtime adjtimex utime
    utimes utimensat futimens futimes lutimes stat lstat fstat fstatat __xstat __lxstat __fxstat __fxstatat
    select pselect ppoll sem_timedwait pthread_mutex_timedlock pthread_cond_timedwait pthread_rwlock_timedrdlock
    pthread_rwlock_timedwrlock timer_settime timer_gettime timerfd_settime timerfd_gettime setitimer getitimer
    getrusage wait3 wait4 recvmmsg mq_timedsend mq_timedreceive semtimedop sigtimedwait fopen freopen lseek
    fseeko ftello open openat creat mmap truncate ftruncate readdir readdir_r scandir alphasort pread pwrite
    preadv pwritev lockf sendfile fallocate posix_fallocate posix_fadvise statfs fstatfs statvfs fstatvfs
    mkstemp tmpfile glob globfree ftw nftw getrlimit setrlimit fgetpos fsetpos
    """.split()  # noqa: SIM905 - a list of words reads better
)


# A42
@rule(
    "elf-time32",
    "A 32-bit file uses 32-bit times or file offsets",
    why="times end in January 2038, and files over 2 GiB cannot be opened",
    fix="compile with -D_TIME_BITS=64 -D_FILE_OFFSET_BITS=64",
    kinds=_LINKED,
    needs=("time64",),
)
def time32(check: Check) -> Iterator[Found]:
    """Look for undefined symbols of the narrow forms."""
    elf = elf_of(check)
    if elf.is_64:
        return
    names = sorted(
        {
            symbol.name
            for table, symbol in elf.all_symbols()
            if table.name == "dynsym" and symbol.st_shndx == SHN_UNDEF and symbol.name in _NARROW
        }
    )
    if names:
        yield Found("undefined symbols", "the 64-bit forms", ", ".join(names[:8]) + (", ..." if len(names) > 8 else ""))
