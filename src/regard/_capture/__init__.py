"""Record the attention of a PyTorch model while it runs."""

from regard._capture.capture import capture

__all__ = ["capture"]
