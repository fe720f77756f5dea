"""The names of `regard.metrics`."""

from regard.metrics.ablation_sweep import (
    AblationSweep as AblationSweep,
    ablation_sweep as ablation_sweep,
)
from regard.metrics.activation_patching import (
    PatchGrid as PatchGrid,
    PathEffect as PathEffect,
    patch_grid as patch_grid,
    path_patching as path_patching,
)
from regard.metrics.attribution import (
    Attribution as Attribution,
    attribute as attribute,
)
from regard.metrics.attribution_methods import (
    ATTRIBUTION_METHODS as ATTRIBUTION_METHODS,
    AttributionMethod as AttributionMethod,
)
from regard.metrics.attribution_patching import (
    PatchingEffects as PatchingEffects,
    attribution_patching as attribution_patching,
)
from regard.metrics.corpus import (
    CorpusHeadMetrics as CorpusHeadMetrics,
    corpus_head_metrics as corpus_head_metrics,
)
from regard.metrics.edge_runs import Reader as Reader
from regard.metrics.flow import flow as flow
from regard.metrics.generation_attribution import (
    GenerationAttribution as GenerationAttribution,
    attribute_generation as attribute_generation,
)
from regard.metrics.heads import (
    INDUCTION_CIRCUIT as INDUCTION_CIRCUIT,
    METRICS as METRICS,
    HeadMetrics as HeadMetrics,
    head_metrics as head_metrics,
    strongest_heads as strongest_heads,
)
from regard.metrics.lens import (
    LogitLens as LogitLens,
    logit_lens as logit_lens,
)
from regard.metrics.logit_attribution import (
    LogitAttribution as LogitAttribution,
    logit_attribution as logit_attribution,
)
from regard.metrics.logit_difference import logit_difference as logit_difference
from regard.metrics.paths import (
    PathEdge as PathEdge,
    PredictionPaths as PredictionPaths,
    paths as paths,
)
from regard.metrics.registry import Metric as Metric
from regard.metrics.repeated import repeated_tokens as repeated_tokens
from regard.metrics.replay import WHY_STEPS as WHY_STEPS
from regard.metrics.rollout import rollout as rollout
from regard.metrics.score_attribution import (
    ScoreAttribution as ScoreAttribution,
    ScorePair as ScorePair,
    why as why,
)
from regard.metrics.strongest_rows import (
    PAIR_KINDS as PAIR_KINDS,
    StrongRow as StrongRow,
    StrongRows as StrongRows,
    strongest_rows as strongest_rows,
)
from regard.metrics.value_attribution import (
    ValueAttribution as ValueAttribution,
    carried as carried,
)
from regard.metrics.value_norms import value_norms as value_norms
from regard.metrics.writers import Writer as Writer
