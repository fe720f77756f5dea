"""Shared by every layer: errors, types, validation of arguments, atomic files."""
