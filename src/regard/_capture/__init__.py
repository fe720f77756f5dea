"""Looking into a PyTorch model while it runs. Knows arrays and the steps of attention; no family of models."""

from regard._capture.capture import capture

__all__ = ["capture"]
