"""Every query of a model of every family: an answer, or one sentence that says why there is none."""

import numpy as np
import pytest

import golden
import regard
from regard import RegardError
from regard.explorer import Exploration
from regard.explorer.codec import json_bytes
from regard.explorer.query import QUERIES, dispatch
from regard.formats.safetensors import SafetensorsFile
from regard.models import ImageModel
from regard.models.encoder_decoder import EncoderDecoder
from sweeps import sweep_except

TEXT, OTHER = "w5 w6 w7 w8 w10 w9", "w5 w6 w9 w8 w10 w9"
HEADS, TOKENS = (0, 1, 2, 3), range(-1, 9)
PAIRS = (None, *([layer, head] for layer in range(3) for head in HEADS))
REQUESTS = {  # of each parameter some values, right and wrong
    "heads": [[[0, 0]], [[1, 2], [0, 1]], [[7, 0]], []],
    "run": [0, 1],
    "other": [0, 1],
    "layer": range(4),
    "head": [*HEADS, "mean"],
    "mode": ["raw", "rollout", "norms"],
    **dict.fromkeys(("row0", "col0"), (0, 2)),
    **dict.fromkeys(("row1", "col1", "end"), (1, 3, 6)),
    "bin_size": [1, 2],
    "pool": ["max", "mean"],
    **dict.fromkeys(("i", "j", "position"), TOKENS),
    "runs": [[0], [1], [0, 1]],
    "temperature": [1.0, 0.5],
    "seed": [1],
    **dict.fromkeys(("token", "versus"), (5, 7, 9)),
    "method": ["gradient", "integrated", "relevance", "attnlrp"],
    "to": [OTHER, "w7"],
    "pair": ["highest"],
    "count": [3],
    "cells": [[[2, 1], [3, 0]], [[5, 5]]],
    "text": [TEXT, OTHER, "w5"],
    "model": [None],
    "sides": [[[0, 0, 0]], [[0, 1, "all"]], [[0, 0, "mean"], [1, 0, "mean"]]],
    "format": ["svg", "py"],
    **dict.fromkeys(("special", "words", "caption", "contrast"), (True, False)),
    "first": [0, 1],
    "width": ["column"],
    "over": ["output", "attn", "mlp", "head", "path"],
    **dict.fromkeys(("sender", "receiver"), PAIRS),
    "corrupted": [OTHER, "w5"],
    "scores": [[[1, 1.0]], [[0, None], [2, 0.5]], [[8, 1.0]]],
    "known": [0],
    "address": ["#view=text"],
}  # fmt: skip


def explored(case):
    """Return the exploration of a model on two texts, or of a text and its target, or on two pictures."""
    folder = golden.FOLDER / case
    model = regard.models.toy([TEXT, OTHER]) if case == "toy" else regard.load(folder)
    if isinstance(model, ImageModel):
        pictures = SafetensorsFile(folder / "expected.safetensors")["pixel_values"]
        sources = [({"pixel_values": picture[None]},) for picture in (pictures[0], pictures[-1])]
    else:
        sources = [(TEXT,), (OTHER,)]
        if isinstance(model, EncoderDecoder):
            sources = [(TEXT, OTHER), (TEXT,)]
    traces = [regard.Trace(maps=True, only="*") for _ in sources]
    for source, trace in zip(sources, traces, strict=True):
        model(*source, trace=trace)
    return Exploration(*traces, models=[model] * 2)


def requests(rng, query, count):
    """Return random parameters of a query: those that it needs, and some of the others."""
    for _ in range(count):
        asked = [name for name, is_needed in query.parameters.items() if is_needed or rng.random() < 0.5]
        yield {name: REQUESTS[name][rng.integers(len(REQUESTS[name]))] for name in asked}


CASES = [case for case in golden.KEPT if case.split("/")[0] != "clip"]  # of which a page shows one half
ALWAYS = (  # other widths of embeddings, pairs, pictures, latents, layers without a map
    *("albert/groups", "bart/tied", "t5/relu", "dinov2/plain", "clip_vision_model/plain"),
    *("deepseek_v3/plain", "qwen3_next/plain", "gemma2/capped", "gemma4_text/inputs"),
)


@pytest.mark.parametrize("case", ["toy", *sweep_except(ALWAYS, CASES)])
def test_a_query_is_answered_or_refused_in_one_sentence(case):
    exploration = explored(case)
    exploration.manifest()
    rng, refused = np.random.default_rng(len(case)), []
    for name, query in QUERIES.items():
        for params in requests(rng, query, 16 if case == "toy" else 4):  # of one that is quick, more
            try:
                answer = dispatch(exploration, name, params)
                if not isinstance(answer, bytes | np.ndarray):
                    json_bytes(answer)  # NaN would be no answer
            except RegardError as error:
                refused.append(str(error))
            except Exception as error:
                error.add_note(f"asked: {name} {params}")
                raise
    assert [text for text in refused if text.splitlines() != [text]] == []


def test_the_whole_model_says_what_it_needs_before_it_runs():
    exploration = explored("gemma4_text/plain")
    with pytest.raises(RegardError, match="the whole model needs a stream to which attention and feed-forward layers"):
        exploration.residual_stream(0)
