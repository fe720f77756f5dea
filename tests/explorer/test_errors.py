"""What is wrong is said in one sentence: of a query wherever it is asked, of Python where it is called."""

import functools
import json
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest
from explorations import bare, explored, long_exploration, recorded
from test_server import served

import golden
import regard
from regard import RegardError, Trace
from regard.explorer import Exploration
from regard.explorer.address import read_address
from regard.explorer.classroom import MAX_TOKENS, Classroom
from regard.explorer.codec import pack_weights
from regard.explorer.export_html import render_page
from regard.explorer.launch import exploration_of
from regard.explorer.notebook_widget import reply
from regard.explorer.queries.corpus import Corpus
from regard.explorer.query import dispatch
from regard.explorer.server import listen
from regard.explorer.share import own_address

HEAD = {"run": 0, "layer": 0, "head": 0}
REGION = {**HEAD, "row0": 0, "row1": 5, "col0": 0, "col1": 5, "bin_size": 1}
SOUGHT = {"run": 0, "layer": 0, "head": 0}
NUMBERS = "is a list of [a whole number, a whole number]"
NO_MODEL = "explore a text with a model, not a saved trace"

QUERIES = [  # an exploration of `there`, the query, its parameters, and what is said
    ("encoder", "none", {}, "there is no method 'none'"),
    ("encoder", "heads", {}, "heads needs run"),
    ("encoder", "heads", {"run": "x"}, "run is a whole number, not 'x'"),
    ("encoder", "heads", {"run": -1}, "there is no run -1"),
    ("encoder", "heads", {"run": 10**19}, "run is a whole number"),
    ("encoder", "heads", {"run": 0, "x": 1}, "heads takes run; not x"),
    ("encoder", "heads", {"run": 0, "check": None}, "heads takes run; not check"),
    ("encoder", "row", {**HEAD, "i": 0, "run": 7}, "there is no run 7"),
    ("encoder", "row", {**HEAD, "i": 0, "layer": 2}, "there is no layer 2: choose from 0 to 1"),
    ("encoder", "row", {**HEAD, "i": 0, "head": 3}, "there is no head 3"),
    ("encoder", "row", {**HEAD, "i": 0, "head": "all"}, "head is a whole number or \"mean\", not 'all'"),
    ("encoder", "row", {**HEAD, "i": 5}, "there is no token 5"),
    ("encoder", "row", {**HEAD, "i": -1}, "there is no token -1"),
    ("encoder", "row", {**HEAD, "i": 0, "mode": "<b>"}, "no display mode '<b>'"),
    ("encoder", "cell", {**HEAD, "head": "mean", "i": 0, "j": 5}, "there is no token 5"),
    ("encoder", "tile", {**REGION, "row1": 6}, "rows 0–6 out of range (5 tokens)"),
    ("encoder", "tile", {**REGION, "col0": 3, "col1": 3}, "columns 3–3"),
    ("encoder", "tile", {**REGION, "bin_size": 0}, "bin_size 1 or more, got 0"),
    ("encoder", "tile", {**REGION, "pool": "min"}, "not 'min'"),
    ("encoder", "movement", {"runs": 0.5}, "runs is a list of a whole number, not 0.5"),
    ("encoder", "movement", {"runs": [0, "x"]}, "runs is a list of a whole number"),
    ("encoder", "movement", {"runs": []}, "movement needs the outputs of blocks"),
    ("encoder", "movement", {"runs": [0, 0]}, "runs holds a number twice"),
    ("encoder", "movement", {"runs": [7]}, "there is no run 7"),
    ("two", "differences", {"runs": [0, 1]}, "A has 5 tokens and B 6"),
    ("two", "differences", {"runs": [0]}, "of two runs, not 1"),
    ("encoder", "ablate", {"heads": []}, "no head to ablate"),
    ("encoder", "ablate", {"heads": [[7, 0]]}, "there is no layer 7"),
    ("encoder", "ablate", {"heads": [[0, 0]], "run": 1}, "there is no run to ablate 1"),
    ("saved", "ablate", {"heads": [[0, 0]]}, NO_MODEL),
    *(("encoder", "run_text", {"text": x}, f"text is a text, not {x}") for x in (None, 3, ["a"], {"a": "b"}, True)),
    ("encoder", "run_text", {"text": "cat sat on the mat the cat sat"}, "at most 7"),
    *(("encoder", "run_text", {"text": "cat", "model": name}, f"there is no model '{name}'")
      for name in ("/etc/passwd", "nobody/nothing", "../minilm")),
    ("saved", "next_tokens", {"run": 0}, "explore a text"),
    ("encoder", "next_tokens", {"run": 0}, "predicts no next token"),
    ("encoder", "lens", {"run": 0}, "not a decoder"),
    *(("decoder", "next_tokens", {"run": 0, "temperature": x}, f"temperature must be above 0, got {x}")
      for x in (0, -1)),
    *(("decoder", "next_tokens", {"run": 0, "temperature": x}, f"temperature is a finite number, not {x!r}")
      for x in (float("nan"), float("inf"), "1", None)),
    ("saved", "sweep", {"run": 0, "layer": 0}, "not a saved trace"),
    ("decoder", "sweep", {"run": 1, "layer": 0}, "choose A"),
    ("decoder", "sweep", {"run": 0, "layer": 9}, "there is no layer 9"),
    ("decoder", "sweep", {"run": 0, "layer": 0, "position": 99}, "there is no token 99"),
    ("decoder", "sweep", {"run": 0, "layer": 0, "token": 10**6}, "there is no token id 1000000"),
    ("encoder", "sweep", {"run": 0, "layer": 0, "token": 3}, "leave out token"),
    *(("encoder", "find_heads", {"run": 0, "cells": x}, f"cells {NUMBERS}, not {x!r}")
      for x in ("", [1], [[1]], [[1, "x"]], [[1, 2, 3]])),
    *(("encoder", "find_heads", {"run": 0, "cells": [[0, 0]] * n}, f"1 to 64 cells, got {n}") for n in (0, 65)),
    *(("encoder", "find_heads", {"run": 0, "cells": [[n, 0]]}, f"there is no token {n}") for n in (99, -1)),
    ("encoder", "strongest_rows", SOUGHT, "there is no corpus"),
    ("corpus", "strongest_rows", {**SOUGHT, "head": "mean"}, "choose one head"),
    ("corpus", "strongest_rows", {**SOUGHT, "layer": 9}, "layer"),
    ("corpus", "strongest_rows", {**SOUGHT, "pair": "odd"}, "pair must be one of"),
    ("corpus", "strongest_rows", {**SOUGHT, "count": 0}, "count is a number from 1 to 100"),
    ("corpus", "strongest_rows", {**SOUGHT, "run": 1}, "choose A"),
    ("decoder", "attribution", {}, "attribution needs run"),
    ("decoder", "attribution", {"run": 3}, "there is no run 3"),
    ("decoder", "attribution", {"run": 0, "method": "saliency"},
     "method must be one of gradient, integrated, relevance, attnlrp, got 'saliency'"),
    ("decoder", "attribution", {"run": 0, "to": "two words"}, "tokens of"),
    ("decoder", "attribution", {"run": 0, "to": ""}, "give a next token as text or as its id"),
    ("decoder", "attribution", {"run": 0, "token": 9999}, "there is no token 9999"),
    ("decoder", "attribution", {"run": 0, "token": "f"}, "token is a whole number"),
    ("decoder", "attribution", {"run": 0, "token": 3, "to": "d"}, "not both"),
    ("decoder", "attribution", {"run": 0, "position": 9}, "there is no token 9: choose from 0 to 8"),
    ("decoder", "attribution", {"run": 0, "steps": 3},
     "attribution takes run, method, to, token, position; not steps"),
    ("decoder", "attribution", {"run": 1}, "with all its heads: choose A"),
    ("encoder", "attribution", {"run": 0, "to": " "}, "give a text to compare with"),
    ("encoder", "attribution", {"run": 0, "token": 3}, "give a text to compare with"),
    *(("encoder", "attribution", {"run": 0, "method": "gradient", "to": to}, "as similar to itself as can be")
      for to in (None, "The CAT  sat")),  # the same tokens
    ("saved", "attribution", {"run": 0}, "What mattered takes the gradients of a model"),
    ("encoder", "why", {**HEAD, "head": "mean", "i": 1, "j": 1}, "a score is of one head, not of the mean"),
    ("encoder", "why", {**HEAD, "i": 1, "j": 5}, "there is no token 5"),
    ("decoder", "why", {**HEAD, "i": 1, "j": 2}, "a mask hides it"),
    ("decoder", "why", {**HEAD, "i": 0, "j": 0, "contrast": True}, "this query attends to no other key"),
    ("saved", "why", {**HEAD, "i": 0, "j": 0}, "the sum behind a score needs a model"),
    ("pair", "why", {**HEAD, "i": 0, "j": 8}, "the map of this layer has no such cell"),
    ("saved", "paths", {"run": 0}, "explore a text"),
    ("encoder", "paths", {"run": 0}, "predicts no next token"),
    ("decoder", "paths", {"run": 0, "position": 9}, "there is no token 9"),
    ("decoder", "paths", {"run": 0, "token": 999}, "there is no token 999"),
    ("decoder", "paths", {"run": 0, "token": 5, "versus": 5}, "are the same token"),
    ("decoder", "paths", {"run": 0, "corrupted": "qz"}, "the same number of tokens, got 9 and 2"),
    ("decoder", "paths", {"run": 1}, "with all its heads: choose A"),
    ("decoder", "paths", {"run": 0, "position": 0}, "choose a later one, or compare with another text"),
    ("latent", "paths", {"run": 0}, "its heads read latents"),
    ("decoder", "patching", {"run": 0, "other": 0, "over": "q"}, "over is one of"),
    ("two", "patching", {"run": 0, "other": 1}, "the same number of tokens"),
    ("pair", "patching", {"run": 0, "other": 0}, "an encoder or a decoder"),
    ("decoder", "what_if", {**HEAD, "i": 4, "scores": [[5, 1.0]]}, "key 5 is masked"),
    ("decoder", "what_if", {**HEAD, "i": 4, "scores": [[99, 1.0]]}, "key"),
    ("encoder", "figure", {}, "figure needs sides"),
    ("encoder", "figure", {"sides": [[0, 1]]}, "sides is a list of [a whole number, a whole number, a whole number or"),
    ("encoder", "figure", {"sides": [[0, 1, 2], [0, 1, 1], [0, 1, 0]]}, "one side or of two, not of 3"),
    ("encoder", "figure", {"sides": [[7, 1, 2]]}, "there is no run 7"),
    ("encoder", "figure", {"sides": [[0, 9, 2]]}, "there is no layer 9"),
    ("encoder", "figure", {"sides": [[0, 1, 9]]}, "there is no head 9"),
    ("encoder", "figure", {"sides": [[0, 1, 2]], "format": "exe"}, "format is one of pdf, svg, png, py"),
    ("encoder", "figure", {"sides": [[0, 1, 2]], "mode": "rollout"}, "figures are of weights"),
    ("encoder", "figure", {"sides": [[0, 1, 2]], "width": "wide"}, "width is 'column' or 'page'"),
    ("encoder", "figure", {"sides": [[0, 1, 2]], "caption": "true"}, "caption is true or false"),
    ("encoder", "figure", {"sides": [[0, 1, 2]], "first": 50}, "no token is shown"),
    ("encoder", "figure", {"sides": [[0, 1, 2]], "theme": "dark"}, "figure takes"),
    ("long", "figure", {"sides": [[0, 0, 1]]}, "at most 2,048 tokens, not 2,100: choose some under Display"),
    ("encoder", "training", {}, "no training run"),
    ("pair", "ablate", {"heads": [[0, 0]]}, NO_MODEL),
    ("pair", "movement", {"runs": [0]}, "movement needs the outputs of blocks"),
    ("pair", "row", {**HEAD, "i": 0, "mode": "rollout"}, "no display mode 'rollout': choose from raw"),
    ("pair", "residual_stream", {"run": 0}, "the whole model needs a model"),
    ("pair", "sweep", {"run": 0, "layer": 0}, NO_MODEL),
    ("pair", "figure", {"sides": [[0, 0, 0]]}, "not of a text and its target"),
    ("pairs", "differences", {"runs": [0, 1]}, "differ in their numbers of tokens"),
]  # fmt: skip

NO_ADDRESS = "not an address of the explorer"
ADDRESSES = [
    ("http://127.0.0.1:8765/abc/", NO_ADDRESS),
    ("#", NO_ADDRESS),
    (f"#{'&'.join(f'k{n}=1' for n in range(100))}", NO_ADDRESS),
    ("#v=head&model=/etc/passwd", "give it with --model"),
    ("#v=head&model=nobody/model", "give it with --model"),
    ("#ps=1.2", NO_ADDRESS),
    ("#v=head&model_b=minilm&text=a", "the model of B and not that of A"),
    ("#v=head&l=1&l=2", "says the same twice"),
    (f"#text={'a' * 30_000}", "at most 20,000 characters"),
]
ADDRESSES_OF_NO_CLASS = (
    *("", "x", "300.1.1.1", "::1", "192.168.1", "http://127.0.0.1"),
    *("192.0.2.99", "0.0.0.0", "255.255.255.255", "224.0.0.1"),
)
CALLS = [
    (lambda _: Exploration(), "give one text or trace, or two to compare; got 0"),
    (lambda _: Exploration("the cat"), "an Exploration is of traces"),
    (lambda it: Exploration(recorded(it.bert, "the cat", only=())), "the trace has no self-attention"),
    (lambda _: bare(*np.zeros((3, 1, 2, 0, 4))), "weights (1, 2, 0, 0) has no tokens"),
    (lambda it: Exploration(it.trace, batch=1), "there is no sequence 1 in a batch of 1"),
    (lambda it: Exploration(it.unbatched, batch=3), "there is no sequence 3 in a batch of 1"),
    (lambda it: Exploration(it.trace, layer=5), "there is no layer 5"),
    (lambda it: Exploration(it.second, layer=0), "there is no layer 0: choose from 1"),
    (lambda it: Exploration(it.second, layer=5), "there is no layer 5"),
    (lambda it: it.encoder.tile(**{**REGION, "pool": "min"}), "not 'min'"),
    (lambda it: it.encoder.ablate([[0]]), "pairs (layer, head)"),
    (lambda it: it.encoder.ablate([[0, 0.5]]), "pairs (layer, head)"),
    (lambda it: it.encoder.ablate("ab"), "pairs (layer, head)"),
    (lambda it: exploration_of(["some text"], it.causal, layer=5), "there is no layer 5: choose from 0 to 1"),
    (lambda it: exploration_of([it.trace], it.causal), "plain: give its model"),
    (lambda it: exploration_of([it.trace], it.folder / "no-such-model"), "no-such-model"),
    (lambda it: exploration_of([it.trace], [it.bert, it.causal]), "got 2 models for 1 texts or traces"),
    (lambda it: exploration_of(["→ w5"], it.bart), "empty"),
    (lambda it: it.page("the cat", port=80), "port and browser are for the server"),
    (lambda it: it.page("the cat", browser=False), "port and browser are for the server"),
    (lambda it: it.page(3), "give texts or traces, not int"),
    (lambda it: it.page("the cat", model=3), "model is a model of regard"),
    (lambda it: it.page("the cat", model=len), "model is a model of regard"),
    (lambda it: it.page(it.trace, model=3), "model is a model of regard"),
    (lambda it: it.page("the cat", corpus=it.folder / "empty.txt"), "a file has no model"),
    (
        lambda _: render_page(long_exploration(3000)),
        "a file holds texts of at most 2,048 tokens, this one has 3,000: explore",
    ),
    (lambda it: regard.explore("a", "b", "c", model=it.bert), "or two to compare; got 3"),
    (lambda it: Corpus(it.folder / "nowhere.txt"), "cannot read"),
    (lambda it: Corpus(it.folder / "empty.txt"), "every line is empty"),
    (lambda it: Corpus(it.folder / "bytes.txt"), "cannot read"),
    *((lambda _, a=a: read_address(a), says) for a, says in ADDRESSES),
    *((lambda _, x=x: pack_weights(np.array([[x]]), 2), "between 0 and 1") for x in (-0.1, np.nan, np.inf, 70_000.0)),
    (lambda _: pack_weights(np.array([[0.5]]), 5), "1 to 4 decimals, not 5"),
    (lambda it: it.encoder.follow(0), "no class looks at this page"),
    (lambda it: it.encoder.publish(""), "no class looks at this page"),
    (
        lambda _: Classroom(long_exploration(MAX_TOKENS + 1), "http://x/"),
        f"at most {MAX_TOKENS} tokens, this one has 513",
    ),
    *((lambda _, a=a: own_address(a), "--address") for a in ADDRESSES_OF_NO_CLASS),
    (lambda _: listen(-1), "port is a number from 0 to 65535"),
    (lambda _: listen(65536), "port is a number from 0 to 65535"),
]


@pytest.fixture(scope="module")
def there(bert, causal, bart, tmp_path_factory):
    """Return explorations, of which some have an edit as their run 1, and what calls are given."""
    folder = tmp_path_factory.mktemp("errors")
    (folder / "lines.txt").write_text("the cat sat\n", encoding="utf-8")
    (folder / "empty.txt").write_text("\n \n", encoding="utf-8")
    (folder / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    induction = regard.load("induction")
    it = SimpleNamespace(bert=bert, causal=causal, bart=bart, folder=folder, trace=recorded(bert, "the cat"))
    it.second = recorded(causal, "some text", only=["blocks.1.attn.weights", "blocks.1.attn.v"])
    it.unbatched = Trace(maps=True, only="*")
    regard.attention(*np.random.default_rng(0).standard_normal((3, 2, 5, 4)), trace=it.unbatched)
    it.encoder, it.corpus = explored(bert, "the cat sat"), explored(bert, "the cat sat")
    it.corpus.corpus = Corpus(folder / "lines.txt")
    it.decoder, it.saved = explored(induction, "qzkfbdqzk"), Exploration(recorded(induction, "qz"))
    for exploration in (it.encoder, it.corpus, it.decoder):
        exploration.ablate([(0, 0)])
    it.latent = explored(regard.load(golden.FOLDER / "deepseek_v3" / "plain"), [1, 2, 3])
    it.two, it.long = explored(bert, "the cat sat", "the cat sat on"), long_exploration(2100)
    targets = [("w5 w6 w7 w8 w10 w9", "w8 w6 w9"), ("w1 w2 w5 w3 w4", "w8 w6 w9 w1")]  # as many tokens in all
    traces = [Trace(maps=True, only="*") for _ in targets]
    for texts, trace in zip(targets, traces, strict=True):
        bart(*texts, trace=trace)
    it.pair, it.pairs = Exploration(traces[0], models=[bart]), Exploration(*traces)
    it.page = lambda *texts, **options: regard.explore(*texts, html=folder / "page.html", **{"model": bert, **options})
    return it


@pytest.fixture(scope="module")
def clients(there):
    """Return a function that gives a client of a server of one of them."""
    with ExitStack() as stack:
        yield functools.cache(lambda name: stack.enter_context(served(getattr(there, name))))


@pytest.mark.parametrize(("name", "method", "params", "says"), QUERIES)
def test_a_query_that_cannot_be_answered_is_a_sentence_in_python_over_http_and_in_a_notebook(
    there, clients, name, method, params, says
):
    with pytest.raises(RegardError) as raised:
        dispatch(getattr(there, name), method, params)
    sentence = str(raised.value)
    assert says in sentence
    assert reply(getattr(there, name), {"id": 1, "method": method, "params": params}) == (
        {"id": 1, "error": sentence},
        [],
    )
    status, headers, content = clients(name).api(method, params)
    assert (status, headers["Content-Type"]) == (400, "application/json; charset=utf-8")
    assert json.loads(content)["error"] == sentence


@pytest.mark.parametrize(("call", "says"), CALLS)
def test_a_call_that_cannot_be_answered_is_an_error(there, call, says):
    with pytest.raises(RegardError) as raised:
        call(there)
    assert says in str(raised.value)
    assert not [*there.folder.glob("*.html")]
