"""Shared by every layer: errors, validation of arguments, atomic files."""
