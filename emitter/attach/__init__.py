"""A payload that joins a library after linking, in a segment of its own: docs/attach.md.

The linker sees `stub` alone, a few hundred bytes; `library` reads what it made, `references` finds what would miss the
payload, `plan` lays out the file that holds both, and `file` writes it. `emitter.check.attached` reads it back.
"""
