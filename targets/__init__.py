"""The targets, and the names that people type for them."""
