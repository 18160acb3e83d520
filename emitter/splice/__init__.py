"""Objects and archives: a stub that LLVM made, with sections and symbols spliced in."""
