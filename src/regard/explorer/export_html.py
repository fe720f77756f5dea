"""Write the page with all of its data into one HTML file, which needs no server and no network.

The manifest is in ``<script type="application/json" id="regard-manifest">``. Its ``blobs`` index the text in ``<script
type="text/plain" id="regard-data">``: ``name: [first character, number of characters]``. `regard.explorer.codec` has
their encoding. Their names, with numbers from 0:

* ``heads/RUN``: JSON, as of `Exploration.heads`
* ``attributions/RUN``: JSON, as of `default_attributions`
* ``next_tokens/RUN``: JSON, as of `Exploration.next_tokens`, after each token
* ``paths/RUN``: JSON, as of `Exploration.paths`, a list of those that were computed before
* ``patching``: JSON, as of `Exploration.patching`, a list of grids of A and B
* ``movement/RUN``: JSON, with the points of this run alone, on one plane with all runs of its projection key
* ``thumbnails/RUN``: bytes, ``L H t t``
* ``why``: JSON of `Exploration.why` by ``RUN/LAYER/HEAD/QUERY/KEY``, of the cell that the page opens with and of the
  strongest cell of each head, of 300 heads at most, if they do not exceed the size of the file
* ``differences``: JSON, as of `Exploration.differences`, of two runs that can be compared cell by cell
* ``weights/RUN/LAYER/HEAD``, ``rollout/RUN/LAYER``: packed weights, ``T S``
* ``norms/RUN/LAYER``: float32, ``H S``, the value norm of each column, of 13 bits
* ``cell_inputs/RUN/LAYER/HEAD``: float32, the arrays of `cell_inputs`; the manifest has the numbers that go
  with them in ``cell_inputs``, under the same name. Heads have none whose values were not recorded, with a bias or a
  mask with holes, or if they exceed the size of the file.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write
from regard.explorer import answers
from regard.explorer.bundle import bundle_module, bundle_page, bundle_styles, page_markup
from regard.explorer.codec import MAX_DECIMALS, encode_blob, json_bytes, pack_weights
from regard.explorer.display_modes import MAX_WHOLE_TOKENS
from regard.explorer.exploration import Exploration
from regard.explorer.opening import strongest_cell
from regard.explorer.queries.attribution import default_attributions
from regard.explorer.queries.cell import cell_inputs
from regard.explorer.queries.next_tokens import all_next_tokens
from regard.explorer.queries.patching import file_patching
from regard.explorer.queries.paths import kept_paths
from regard.explorer.queries.why import Why
from regard.explorer.story import lacking_texts

_SMALL_PAGE_WEIGHTS = 144 * 128**2  # at most, for the first limit
_LIMITS = (2_000_000, 16_000_000)  # bytes of a small page, and of any
_MIN_DECIMALS = 2
_MAX_WHY = 300  # heads whose strongest cell has its pairs: about 100 bytes and 20 ms each
_INDEX_ENTRY = len('"":[10000000,10000000],')  # bytes of a blob's entry in the manifest without its name, at most

_STYLE = re.compile(r'<link rel="stylesheet" href="static/style\.css"\s*/?>')
_SCRIPT = re.compile(r'<script type="module" src="static/([\w./-]+\.js)"></script>')

Blob: TypeAlias = tuple[str, bytes]
CellInputs: TypeAlias = tuple[Blob, answers.HeadFields]


def write_page(exploration: Exploration, path: str | os.PathLike[str]) -> None:
    """Write the page with its data as one HTML file, atomically.

    Raises
    ------
    RegardError
        The file cannot be written, or the text is too long for one.
    """
    page = render_page(exploration)
    with atomic_write(path) as file:
        file.write(page)


def render_page(exploration: Exploration) -> bytes:
    """Return the page with its data as one HTML file; an error if the text is too long for 16 MB.

    Weights are rounded to as many decimals as fit, 4 at most and 2 at least; the page shows no more. The remaining
    bytes hold the cell inputs of one head after the other, from the initial one on.
    """
    lengths = [run.length for run in exploration.runs]
    check_fits_file(lengths)
    shown: Exploration | None = exploration
    while shown is not None:
        if (page := _render(shown)) is not None:
            return page
        shown = shown.fewer()
    raise RegardError(
        f"a text of {_together(lengths)} tokens and its weights exceed a file of {_LIMITS[-1] // 1_000_000} MB: "
        "explore it with the server (without -o), or give a shorter one"
    )


def check_fits_file(lengths: Sequence[int]) -> None:
    """Raise `RegardError` if one of some texts, of so many tokens, is too long for a file."""
    if max(lengths) > MAX_WHOLE_TOKENS:
        raise RegardError(
            f"a file holds texts of at most {MAX_WHOLE_TOKENS:,} tokens, this one has {_together(lengths)}: explore "
            "it with the server (without -o)"
        )


def _render(exploration: Exploration) -> bytes | None:
    """Return the page; None if it exceeds the largest size."""
    before, between, after = _template()
    manifest = exploration.manifest()
    manifest["live_models"], manifest["can"] = [], {"ablate": False, "tiles": False, "figures": False}
    manifest["classroom"] = None
    manifest["blobs"], manifest["cell_inputs"], manifest["heads_with_steps"] = {}, {}, " " * 40
    has = [(run["text"], run["model"]) for run in manifest["runs"]]
    if exploration.story is not None and (lacking := lacking_texts(exploration.story, has)):
        named = ", ".join(repr(text[:60]) for text in lacking)
        raise RegardError(f"a file has no model, and the story needs more texts than are in it: {named}")
    manifest["stories"] = [story for story in manifest["stories"] if not lacking_texts(story, has)]
    manifest["metrics"] = [metric for metric in manifest["metrics"] if not metric.get("live")]
    blobs = [blob for run in exploration.numbers for blob in _auxiliary_blobs(exploration, run)]
    if patching := file_patching(exploration):
        blobs.append(("patching", encode_blob(json_bytes(patching))))
    held = {name for name, _ in blobs}
    for run, about in zip(exploration.numbers, manifest["runs"], strict=True):
        about["has_paths"] = f"paths/{run}" in held
        about["has_patching"] = "patching" in held
    if manifest["difference_blocked_by"] is None:
        blobs.append(("differences", encode_blob(json_bytes(exploration.differences([0, 1])))))
    fixed = len(before + between + after) + len(_json_for_script(manifest)) + _size(blobs)
    runs = [exploration.run(number) for number in exploration.numbers]
    num_weights = sum(layer.length**2 * len(layer.heads) for run in runs for layer in run.layers)
    heads = _heads_from_initial(exploration)
    initial = _cell_inputs(exploration, [at for at in heads if at[1:] == exploration.initial_head], _LIMITS[-1])
    for limit in _LIMITS[num_weights > _SMALL_PAGE_WEIGHTS :]:
        if (fitted := _fit_maps(exploration, limit - fixed, initial)) is not None:
            decimals, maps, has_inputs = fitted
            break
    else:
        return None
    room = limit - fixed - _size(maps)
    why = _why(exploration, heads, room - has_inputs * _inputs_size(initial))
    inputs = _cell_inputs(exploration, heads, room - _size(why)) if has_inputs else []
    index: dict[str, tuple[int, int]] = {}
    texts, start = [], 0
    for name, text in [*blobs, *maps, *why, *(blob for blob, _ in inputs)]:
        index[name] = (start, len(text))
        texts.append(text)
        start += len(text)
    manifest["decimals"], manifest["blobs"] = decimals, index
    manifest["cell_inputs"] = {name: fields for (name, _), fields in inputs}
    manifest["heads_with_steps"] = _heads_in_words(exploration, [name for (name, _), _ in inputs])
    return b"".join([before, _json_for_script(manifest), between, *texts, after])


def _template() -> tuple[bytes, bytes, bytes]:
    """Return the page with inline style and script, and a policy that allows only these.

    In three parts: the manifest goes between the first two, the data between the last two. Markup and style are packed.
    """
    css, markup = bundle_styles(), page_markup()
    styled = re.sub(r"^<template[^>]*>", lambda match: f"{match[0]}<style>{css}</style>", markup, count=1)
    packed = encode_blob(styled.encode("utf-8")).decode("ascii")
    page = bundle_page().replace(markup, f'<script type="text/plain" id="regard-markup">{packed}</script>')
    style, script = _STYLE.search(page), _SCRIPT.search(page)
    if style is None or script is None:
        raise RegardError('index.html needs one <link rel="stylesheet"> and one <script type="module">')
    code = bundle_module(script[1])
    for text, tag in ((css, "</style"), (code, "</script"), (code, "<!--")):
        if tag in text.lower():
            raise RegardError(f"the frontend contains {tag}, which would end its element")
    policy = "; ".join([
        "default-src 'none'", f"script-src '{_hash(code)}'", f"style-src '{_hash(css)}'", "img-src data: blob:",
        "connect-src 'none'", "base-uri 'none'", "form-action 'none'",
    ])  # fmt: skip
    meta = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">'
    page = page.replace(style[0], "", 1)
    page = re.sub(r"(<meta charset=[^>]*>)", lambda match: f"{match[1]}\n{meta}", page, count=1)
    before, after = page.split(script[0])
    between = '</script>\n<script type="text/plain" id="regard-data">'
    before += '<script type="application/json" id="regard-manifest">'
    after = f'</script>\n<script type="module">{code}</script>{after}'
    return before.encode("utf-8"), between.encode("utf-8"), after.encode("utf-8")


def _heads_in_words(exploration: Exploration, names: Sequence[str]) -> str:
    """Return which heads have cell inputs of these names."""
    heads = [tuple(map(int, name.split("/")[1:])) for name in names]
    layers = {exploration.run(run).number(layer) for run, layer, _ in heads}
    if len(layers) != 1:
        return "other heads" if layers else "no head"
    layer, own = layers.pop(), {head for _, _, head in heads}
    return f"layer {layer} alone" if len(own) > 1 else f"layer {layer}, head {own.pop()} alone"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _size(blobs: list[Blob]) -> int:
    """Return the bytes of blobs in a page, with their entries in the manifest."""
    return sum(len(text) + len(name) + _INDEX_ENTRY for name, text in blobs)


def _inputs_size(inputs: list[CellInputs]) -> int:
    return sum(_size([blob]) + len(json_bytes({blob[0]: fields})) for blob, fields in inputs)


def _json_for_script(value: Any) -> bytes:
    """Return plain data as JSON that cannot end a script: < occurs only in strings, where it may be escaped."""
    return json_bytes(value).replace(b"<", b"\\u003c")


def _together(lengths: Sequence[int]) -> str:
    return " and ".join(f"{length:,}" for length in lengths)


def _auxiliary_blobs(exploration: Exploration, run: int) -> Iterator[Blob]:
    """Yield the blobs of a run besides its maps and cell inputs."""
    key = exploration.run(run).projection_key
    yield f"heads/{run}", encode_blob(json_bytes(exploration.heads(run)))
    if next_tokens := all_next_tokens(exploration.run(run)):
        yield f"next_tokens/{run}", encode_blob(json_bytes(next_tokens))
    if paths := kept_paths(exploration, run):
        yield f"paths/{run}", encode_blob(json_bytes(paths))
    if attributions := default_attributions(exploration, run):
        yield f"attributions/{run}", encode_blob(json_bytes(attributions))
    yield f"thumbnails/{run}", encode_blob(exploration.thumbnails(run))
    if key is not None:
        compared = exploration.numbers if len(exploration.runs) > 1 else [run]  # of checkpoints, one is shown
        together = [n for n in compared if exploration.run(n).projection_key == key]
        moved = exploration.movement(together)
        own = {name: [moved[name][together.index(run)]] for name in ("points", "left_out")}
        yield f"movement/{run}", encode_blob(json_bytes({**moved, **own}))
    if "norms" in exploration.modes:
        for layer in range(len(exploration.run(run).layers)):
            norms = _with_13_bits(exploration.value_norms(run, layer)).astype("<f4").tobytes()
            yield f"norms/{run}/{layer}", encode_blob(norms)


def _with_13_bits(x: np.ndarray) -> np.ndarray:
    """Return x with 13 bits of each mantissa, which pack better; four decimals of a weight have as many."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.round(mantissa * 2**13) / 2**13, exponent))


def _fit_maps(
    exploration: Exploration, available: int, inputs: list[CellInputs]
) -> tuple[int, list[Blob], bool] | None:
    """Return the most decimals that fit, all maps with these, and whether cell inputs fit too; None if none fit.

    A third decimal of every weight is worth more than cell inputs; the fourth is not.
    """
    for decimals in range(MAX_DECIMALS, _MIN_DECIMALS - 1, -1):
        for has_inputs in (True, False) if decimals < MAX_DECIMALS and inputs else (True,):
            if (maps := _pack_maps(exploration, decimals, available - has_inputs * _inputs_size(inputs))) is not None:
                return decimals, maps, has_inputs
    return None


def _pack_maps(exploration: Exploration, decimals: int, available: int) -> list[Blob] | None:
    """Return all maps with so many decimals; None if they do not fit."""

    def pack(compute: Callable[[], np.ndarray]) -> bytes:
        return encode_blob(pack_weights(compute(), decimals))

    maps = list(_iter_maps(exploration))
    sample = maps[:: max(1, len(maps) // 12)]  # nearly always shows whether packing all is worthwhile
    if sum(len(pack(compute)) for _, compute in sample) * len(maps) > 1.2 * available * len(sample):
        return None
    packed: list[Blob] = []
    for name, compute in maps:
        packed.append((name, pack(compute)))
        available -= _size(packed[-1:])
        if available < 0:
            return None
    return packed


def _iter_maps(exploration: Exploration) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    """Yield the name of each map, and a function that computes it."""
    for run in exploration.numbers:
        for number, layer in enumerate(exploration.run(run).layers):
            for head in range(len(layer.heads)):
                yield f"weights/{run}/{number}/{head}", partial(layer.tile, head, None, None)
            if "rollout" in exploration.modes:
                yield f"rollout/{run}/{number}", partial(exploration.whole, run, number, "mean", "rollout")


def _heads_from_initial(exploration: Exploration) -> list[tuple[int, int, int]]:
    """Return (run, layer, head) of all: first the initial head, then the others of its layer."""
    initial = exploration.initial_head
    heads = [
        (run, layer, head)
        for run in exploration.numbers
        for layer, layer_map in enumerate(exploration.run(run).layers)
        for head in range(len(layer_map.heads))
    ]
    return sorted(heads, key=lambda at: (at[1:] != initial, at[1] != initial[0], at[1:], at[0]))


def _why(exploration: Exploration, heads: list[tuple[int, int, int]], available: int) -> list[Blob]:
    """Return why a query attends to a key: in each opening cell, and the strongest cell of as many heads as fit."""
    cells = []
    for run in exploration.numbers:
        initial = exploration.opening.describe(exploration.run(run))
        if "row" in initial and "col" in initial:
            cells.append((run, initial["layer"], initial["head"], initial["row"], initial["col"]))
    cells += [(*at, *strongest_cell(exploration.run(at[0]), *at[1:])) for at in heads[:_MAX_WHY]]
    why: dict[str, Why] = {}
    for cell in cells:
        with contextlib.suppress(RegardError):  # without a model, or of a head that has no scores
            why["/".join(map(str, cell))] = exploration.why(*cell)
    while why:
        blobs = [("why", encode_blob(json_bytes(why)))]
        if (size := _size(blobs)) <= available:
            return blobs
        why = dict(list(why.items())[: max(0, int(0.95 * len(why) * available / size))])
    return []


def _cell_inputs(exploration: Exploration, heads: list[tuple[int, int, int]], available: int) -> list[CellInputs]:
    """Return the cell inputs of the heads that have them, as many as fit."""
    packed: list[CellInputs] = []
    for run, layer, head in heads:
        inputs = cell_inputs(exploration.run(run), layer, head)
        if inputs is None:
            continue
        content, fields = inputs
        packed.append(((f"cell_inputs/{run}/{layer}/{head}", encode_blob(content)), fields))
        available -= _inputs_size(packed[-1:])
        if available < 0:
            return packed[:-1]
    return packed
