"""Compilers and emulators for the targets, and programs to run on them."""
