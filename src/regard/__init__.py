"""Self-attention you can see through."""
