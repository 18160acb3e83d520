"""The tests of emitter."""
