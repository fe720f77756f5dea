"""Tiny models in transformers and in regard, and the number that is attributed."""

import numpy as np

import make_golden
import regard


def make_pair(family, case, folder):
    """Return a tiny model with random numbers in transformers and in regard, in float64."""
    with make_golden.doubles_throughout():
        peer = make_golden.make_model(family, case, 0, "float64")
    make_golden.write_checkpoint(peer, folder)
    return peer, regard.load(folder, dtype=np.float64)


def number(output):
    """A difference of two logits of the next token; of an encoder the fifth number of the second vector."""
    if hasattr(output, "logits"):
        return output.logits[0, -1, 7] - output.logits[0, -1, 3]
    return output.last_hidden_state[0, 1, 4]


def arguments(peer):
    if peer.can_generate():
        return {"to": 7, "versus": 3}
    return {"to": lambda output: output.hidden[0, 1, 4]}
