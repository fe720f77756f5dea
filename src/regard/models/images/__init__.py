"""Models that look at pictures: reading and preprocessing them, and patches as tokens."""
