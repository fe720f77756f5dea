"""Positions of tokens: added to embeddings, rotated into queries and keys, or counted in buckets."""
