"""The names of regard: `regard.NAME` is imported on first use."""

from regard import (
    dask as dask,
    explorer as explorer,
    functional as functional,
    jax as jax,
    metrics as metrics,
    models as models,
    nn as nn,
    plot as plot,
    terminal as terminal,
    text as text,
    torch as torch,
    training as training,
    views as views,
)
from regard._capture import capture as capture
from regard._utils.errors import RegardError as RegardError
from regard.explorer import explore as explore
from regard.functional import (
    Gradients as Gradients,
    Partial as Partial,
    attention as attention,
    attention_partial as attention_partial,
    attention_varlen as attention_varlen,
    attention_varlen_vjp as attention_varlen_vjp,
    attention_vjp as attention_vjp,
    attention_weights as attention_weights,
    create_block_mask as create_block_mask,
    explain_plan as explain_plan,
    linear_attention as linear_attention,
    linear_attention_vjp as linear_attention_vjp,
    merge_partials as merge_partials,
    softmax as softmax,
)
from regard.functional.native import num_threads as num_threads, set_num_threads as set_num_threads
from regard.models import Model as Model, load as load
from regard.nn.kv_cache import KVCache as KVCache
from regard.text import Encoding as Encoding
from regard.trace import (
    AttentionMap as AttentionMap,
    Trace as Trace,
    edits as edits,
)
from regard.training import train as train

__version__: str
