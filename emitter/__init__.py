"""Turns constants into linkable and loadable machine files, for any target, from one host."""
