"""Loads the packs of emitted files, of any CPU on any machine, without running anything of them.

Gives read-only arrays over the file's own bytes. Needs numpy alone, and that only for arrays.
"""

from emitter.loaders._library import Library, Pack, load
from emitter.loaders._tensor import Tensor

__all__ = ["Library", "Pack", "Tensor", "load"]
