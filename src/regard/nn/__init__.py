"""Layers: frozen dataclasses that hold arrays and call the equations in `regard.functional`.

A layer is made from its arrays, or by its ``init`` with a random generator; calling it draws nothing and
changes nothing. ``forward`` is another name for calling.
"""

from regard.nn.attention import MultiHeadAttention, SelfAttention
from regard.nn.decoder import CausalAttention, CosSin, DecoderBlock
from regard.nn.encoder import EncoderBlock
from regard.nn.layer import Layer
from regard.nn.layers import Embedding, FeedForward, GatedFeedForward, LayerNorm, Linear, RMSNorm
from regard.nn.parameters import parameters

__all__ = [
    "Layer",
    "Linear",
    "LayerNorm",
    "RMSNorm",
    "Embedding",
    "FeedForward",
    "GatedFeedForward",
    "SelfAttention",
    "MultiHeadAttention",
    "CausalAttention",
    "EncoderBlock",
    "DecoderBlock",
    "CosSin",
    "parameters",
]
