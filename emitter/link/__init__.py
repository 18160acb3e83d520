"""Linking code with constants: a linker is found or named, told what every library of ours is to be, and heard."""
