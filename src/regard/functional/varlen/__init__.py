"""Attention over sequences of different lengths."""
