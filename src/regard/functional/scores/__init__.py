"""The scores of queries and keys: their shape and positions, parts of them, and the way to the weights."""
