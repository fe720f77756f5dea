"""The functions and rules of `regard.functional`."""

from regard.functional.activation import *
from regard.functional.attention import (
    attention as attention,
    attention_weights as attention_weights,
)
from regard.functional.backward import (
    Gradients as Gradients,
    attention_vjp as attention_vjp,
)
from regard.functional.biases.base import Bias as Bias
from regard.functional.biases.distance import *
from regard.functional.biases.score_mod import (
    ScoreMod as ScoreMod,
)
from regard.functional.cross_entropy import (
    cross_entropy as cross_entropy,
    cross_entropy_vjp as cross_entropy_vjp,
)
from regard.functional.decomposition import (
    norm_parts as norm_parts,
    score_pairs as score_pairs,
)
from regard.functional.dispatch import (
    Plan as Plan,
    explain_plan as explain_plan,
)
from regard.functional.embedding import (
    embedding as embedding,
    embedding_vjp as embedding_vjp,
)
from regard.functional.experts import (
    experts as experts,
    experts_vjp as experts_vjp,
    top_k_softmax as top_k_softmax,
    top_k_softmax_vjp as top_k_softmax_vjp,
)
from regard.functional.factored import (
    FactoredMatrix as FactoredMatrix,
)
from regard.functional.heads import (
    merge_heads as merge_heads,
    split_heads as split_heads,
)
from regard.functional.inputs import (
    Options as Options,
)
from regard.functional.linear import (
    linear as linear,
    linear_vjp as linear_vjp,
)
from regard.functional.linear_attention import (
    LinearAttention as LinearAttention,
    LinearAttentionGradients as LinearAttentionGradients,
    linear_attention as linear_attention,
    linear_attention_vjp as linear_attention_vjp,
)
from regard.functional.masks.base import (
    DenseMask as DenseMask,
    Mask as Mask,
)
from regard.functional.masks.block_mask import (
    BlockMask as BlockMask,
    FunctionMask as FunctionMask,
    create_block_mask as create_block_mask,
)
from regard.functional.masks.structured import *
from regard.functional.norm import (
    layer_norm as layer_norm,
    layer_norm_vjp as layer_norm_vjp,
    normalize as normalize,
    rms_norm as rms_norm,
    rms_norm_vjp as rms_norm_vjp,
)
from regard.functional.partial import (
    Partial as Partial,
    attention_partial as attention_partial,
    merge_partials as merge_partials,
)
from regard.functional.positions.embeddings import (
    alibi_slopes as alibi_slopes,
    learned_positions as learned_positions,
    relative_position_buckets as relative_position_buckets,
    sinusoidal_positions as sinusoidal_positions,
)
from regard.functional.positions.rotary import (
    apply_rotary as apply_rotary,
    apply_rotary_vjp as apply_rotary_vjp,
    rotary as rotary,
    rotary_frequencies as rotary_frequencies,
    rotary_pairs as rotary_pairs,
)
from regard.functional.softmax import (
    softmax as softmax,
    softmax_vjp as softmax_vjp,
)
from regard.functional.variable import (
    Variable as Variable,
    gradients as gradients,
)
from regard.functional.varlen.attention import (
    attention_varlen as attention_varlen,
    attention_varlen_vjp as attention_varlen_vjp,
)
