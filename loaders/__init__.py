"""Readers of packs."""
