"""Layers: frozen dataclasses that hold arrays and call the equations in `regard.functional`.

A layer is made from its arrays, or by its ``init`` with a random generator; calling it draws nothing and
changes nothing. ``forward`` is another name for calling.
"""

from regard.nn._attention import MultiHeadAttention, SelfAttention
from regard.nn._decoder import CausalAttention, DecoderBlock, Rotation
from regard.nn._encoder import EncoderBlock
from regard.nn._layer import Layer
from regard.nn._layers import Embedding, FeedForward, GatedFeedForward, LayerNorm, Linear, RMSNorm
from regard.nn._parameters import parameters

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
    "Rotation",
    "parameters",
]
