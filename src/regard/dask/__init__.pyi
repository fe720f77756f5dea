"""The functions of `regard.dask`."""

from regard.dask.attention import attention as attention
from regard.dask.attention_map import AttentionMap as AttentionMap
from regard.dask.frames import (
    attribute as attribute,
    embed as embed,
    head_metrics as head_metrics,
    map_texts as map_texts,
)
