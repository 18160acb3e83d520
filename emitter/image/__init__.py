"""Data-only shared libraries, written without a linker."""
