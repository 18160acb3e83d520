"""Measurements, and the script that makes their input."""
