"""Biases, added to the scores: arrays, functions of the distance, functions of the score."""
