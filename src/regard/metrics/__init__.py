"""Metrics of a run: what each head does, how information flows through all layers, and which tokens mattered.

Computed in float64 from the trace of a run, in blocks of rows; a whole map is never held. Rows of padding do not
count. Each names its paper.
"""

from regard.metrics.activation_patching import PatchGrid, PathEffect, patch_grid, path_patching
from regard.metrics.attribution import Attribution, attribute
from regard.metrics.attribution_methods import ATTRIBUTION_METHODS, AttributionMethod
from regard.metrics.attribution_patching import PatchingEffects, attribution_patching
from regard.metrics.corpus import CorpusHeadMetrics, corpus_head_metrics
from regard.metrics.edge_runs import Reader
from regard.metrics.flow import flow
from regard.metrics.generation_attribution import GenerationAttribution, attribute_generation
from regard.metrics.heads import INDUCTION_CIRCUIT, HeadMetrics, head_metrics, strongest_heads
from regard.metrics.lens import LogitLens, logit_lens
from regard.metrics.logit_attribution import LogitAttribution, logit_attribution
from regard.metrics.logit_difference import logit_difference
from regard.metrics.paths import PathEdge, PredictionPaths, paths
from regard.metrics.registry import METRICS, Metric
from regard.metrics.repeated import repeated_tokens
from regard.metrics.replay import WHY_STEPS
from regard.metrics.rollout import rollout
from regard.metrics.score_attribution import ScoreAttribution, ScorePair, why
from regard.metrics.strongest_rows import PAIR_KINDS, StrongRow, StrongRows, strongest_rows
from regard.metrics.value_attribution import ValueAttribution, carried
from regard.metrics.value_norms import value_norms
from regard.metrics.writers import Writer

__all__ = [
    "METRICS",
    "Metric",
    "INDUCTION_CIRCUIT",
    "HeadMetrics",
    "head_metrics",
    "CorpusHeadMetrics",
    "corpus_head_metrics",
    "strongest_heads",
    "PAIR_KINDS",
    "StrongRow",
    "StrongRows",
    "strongest_rows",
    "repeated_tokens",
    "rollout",
    "flow",
    "value_norms",
    "ATTRIBUTION_METHODS",
    "AttributionMethod",
    "Attribution",
    "attribute",
    "GenerationAttribution",
    "attribute_generation",
    "PatchGrid",
    "patch_grid",
    "PathEffect",
    "path_patching",
    "PatchingEffects",
    "attribution_patching",
    "LogitLens",
    "logit_lens",
    "LogitAttribution",
    "logit_attribution",
    "logit_difference",
    "WHY_STEPS",
    "Writer",
    "ScorePair",
    "ScoreAttribution",
    "why",
    "ValueAttribution",
    "carried",
    "PathEdge",
    "PredictionPaths",
    "Reader",
    "paths",
]
