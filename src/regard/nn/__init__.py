"""Layers: frozen dataclasses that hold arrays and call the equations in `regard.functional`.

A layer is made from its arrays, or by its ``init`` from a random generator; a call changes nothing. ``forward`` is
another name for the call.
"""

from regard.nn.attention import CosSin, CrossAttention, MultiHeadAttention, SelfAttention
from regard.nn.decoder import CausalAttention, DecoderBlock
from regard.nn.encoder import EncoderBlock
from regard.nn.gradients import value_and_gradients, with_parameters
from regard.nn.layer import Layer, parameters
from regard.nn.layers import Embedding, FeedForward, GatedFeedForward, LayerNorm, Linear, RMSNorm
from regard.nn.quantized import QuantizedWeight

__all__ = [
    "Layer",
    "Linear",
    "LayerNorm",
    "RMSNorm",
    "Embedding",
    "FeedForward",
    "GatedFeedForward",
    "MultiHeadAttention",
    "SelfAttention",
    "CrossAttention",
    "CausalAttention",
    "EncoderBlock",
    "DecoderBlock",
    "CosSin",
    "QuantizedWeight",
    "parameters",
    "with_parameters",
    "value_and_gradients",
]
