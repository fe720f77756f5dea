"""Measures beside the raw weights: what heads do, and how far what a token was reaches through all layers.

They are computed from the trace of a run, in strips of a map that is never held whole, in float64. Rows of padding do
not count. Each says which paper it is from.
"""

from regard.metrics.flow import flow
from regard.metrics.heads import HeadMetrics, head_metrics, repeated_tokens
from regard.metrics.rollout import rollout
from regard.metrics.value_norms import value_norms

__all__ = [
    "HeadMetrics",
    "head_metrics",
    "repeated_tokens",
    "rollout",
    "flow",
    "value_norms",
]
