"""Checkpoints: configuration and tensors of a model folder, checked and renamed for the families."""
