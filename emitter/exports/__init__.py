"""Plans of files in other projects' formats: one module for a format."""
