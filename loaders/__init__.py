"""Loads the packs of emitted files, of any CPU on any machine, without running anything of them.

Gives read-only arrays over the file's own bytes. Needs numpy alone, and that only for arrays.
"""

from emitter.loaders._cuda import CudaDriver, CudaProgram
from emitter.loaders._library import Library, Pack, load
from emitter.loaders._modules import Alternative, Module
from emitter.loaders._registry import ModuleSource, ModuleTree, Registry, module_loader, module_upgrade
from emitter.loaders._tensor import Tensor

__all__ = [
    "Alternative",
    "CudaDriver",
    "CudaProgram",
    "Library",
    "Module",
    "ModuleSource",
    "ModuleTree",
    "Pack",
    "Registry",
    "Tensor",
    "load",
    "module_loader",
    "module_upgrade",
]
