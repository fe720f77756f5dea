"""Explorations to test, a whole map of one, pages that ask at once, and a page that is left."""

import threading

import numpy as np

import regard
from regard.explorer import Exploration


def recorded(model, text, **options):
    trace = regard.Trace(maps=True, **({"only": "*"} | options))
    model(text, trace=trace)
    return trace


def explored(model, *texts):
    return Exploration(*(recorded(model, text) for text in texts), models=[model] * len(texts))


def bare(q, k, v=None, *, keep=(), maps=True, **options):
    """Return the exploration of one bare layer; `keep` names inputs that are recorded too."""
    trace = regard.Trace(maps=maps, only="*")
    with trace.scope("blocks.0.attn"):
        for name, value, axes in (("q", q, "... H T D"), ("k", k, "... G S D"), ("v", v, "... G S Dv")):
            if name in keep:
                trace(name, value, axes)
        regard.attention(q, k, k if v is None else v, trace=trace, **options)
    return Exploration(trace)


def of_weights(weights):
    """Return the exploration of one bare layer with these recorded weights, ``B H T S``."""
    trace = regard.Trace()
    with trace.scope("blocks.0.attn"):
        trace("weights", weights, "B H T S")
    return Exploration(trace)


def long_exploration(tokens, heads=2, *, causal=True, seed=7):
    """Return the exploration of one bare layer over so many random tokens."""
    rng = np.random.default_rng(seed)
    q, k = 2 * rng.standard_normal((2, 1, heads, tokens, 8), dtype=np.float32)
    return bare(q, k, causal=causal)


def whole(exploration, run, layer, head, mode="raw"):
    return exploration.whole(run, layer, head, mode)


def thumbnails_of(exploration, run=0):
    """Return the thumbnails of a run, uint8 ``L H t t``."""
    layers, side = exploration.run(run).layers, exploration.manifest()["runs"][run]["thumbnail_size"]
    return np.frombuffer(exploration.thumbnails(run), np.uint8).reshape(len(layers), len(layers[0].heads), side, side)


class Left:
    """A check whose call of this number finds that nobody waits any more."""

    def __init__(self, at):
        self.at, self.calls = at, 0

    def __call__(self):
        self.calls += 1
        if self.calls == self.at:
            raise InterruptedError


def at_once(count, call):
    """Call a function with each number below `count`, in threads that start together; return what it returned."""
    answers = [None] * count

    def run(number):
        answers[number] = call(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
