"""Masks: which query attends to which key."""
