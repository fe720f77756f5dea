"""One file that holds the page and everything it shows, and works without a server and without a network.

The manifest stands in ``<script type="application/json" id="regard-manifest">``, and has in ``data`` where each blob is
in ``<script type="text/plain" id="regard-data">``: ``name: [first character, characters, bytes]``, the bytes being
those of the blob when it is inflated. `regard.explorer.codec` says how blobs are written. Their names, where numbers count
from 0:

* ``heads/RUN``: JSON, as `Exploration` answers
* ``movement/RUN``: the same, on one plane with all runs that share it, with the points of this run alone
* ``thumbnails/RUN``: bytes, ``L H t t``
* ``weights/RUN/LAYER/HEAD``, ``rollout/RUN/LAYER``: packed weights, ``T S``
* ``norms/RUN/LAYER``: float32, ``H S``, what the weights of a column are multiplied by
* ``vectors/RUN/LAYER/HEAD``: float32, what `Exploration.vectors` returns; under the same name in ``steps`` of the
  manifest stand the numbers that go with it. The page computes a cell's steps from these. A head has none whose values
  were not recorded, that has a bias or a mask with holes, or that there is no room for.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import atomic_write
from regard.explorer.bundle import bundled, static, stylesheet
from regard.explorer.codec import MOST_DIGITS, json_bytes, packed, to_text
from regard.explorer.display_modes import LONGEST
from regard.explorer.exploration import Exploration

_SMALL = 144 * 128**2  # weights that a small page holds
_LIMITS = (2_000_000, 16_000_000)  # bytes of a small page, and of any
_FEWEST_DIGITS = 2

_STYLE = re.compile(r'<link rel="stylesheet" href="static/style\.css"\s*/?>')
_SCRIPT = re.compile(r'<script type="module" src="static/([\w./-]+\.js)"></script>')


def write_page(exploration: Exploration, path: str | os.PathLike[str]) -> None:
    """Write the page with its data as one HTML file, which appears whole or not at all.

    Raises
    ------
    RegardError
        The file cannot be written; or the text is too long for one.
    """
    page = whole_page(exploration)
    with atomic_write(path) as file:
        file.write(page)


def whole_page(exploration: Exploration) -> bytes:
    """Return the page with its data as one HTML file.

    Weights are rounded to as many decimals as fit, 4 at most and 2 at least: the page shows no digit that is not exact.
    What room is left is given to the steps of cells, of one head after the other, from the opening one on.

    Raises
    ------
    RegardError
        The text is too long for a page that holds it all, or for a file of 16 MB.
    """
    runs = range(len(exploration.runs))
    if any(run.length > LONGEST for run in exploration.runs):
        raise RegardError(
            f"a file holds texts of at most {LONGEST:,} tokens, this one has {_lengths(exploration)}: explore it with "
            "the server (without -o)"
        )
    before, between, after = _skeleton()
    rest = [blob for run in runs for blob in _beside_weights(exploration, run)]
    manifest = {**exploration.manifest(), "can": {"edit": False, "tiles": False}}
    fixed = len(before + between + after) + len(_inert(manifest)) + _size(rest)
    weights = sum(layer.length**2 * len(layer.heads) for run in exploration.runs for layer in run.layers)
    heads = _heads_from_the_opening_one(exploration)
    opening = _steps(exploration, [at for at in heads if at[1:] == exploration.opening], _LIMITS[-1])
    for limit in _LIMITS[weights > _SMALL :]:
        if (found := _maps_that_fit(exploration, limit - fixed, opening)) is not None:
            digits, maps, has_steps = found
            break
    else:
        raise RegardError(
            f"a text of {_lengths(exploration)} tokens and its weights do not fit into one file of "
            f"{_LIMITS[-1] // 1_000_000} MB: explore it with the server (without -o), or give a shorter one"
        )
    steps = _steps(exploration, heads, limit - fixed - _size(maps)) if has_steps else []
    index, texts, start = {}, [], 0
    for name, text, size in [*rest, *maps, *(blob for blob, _ in steps)]:
        index[name] = [start, len(text), size]
        texts.append(text)
        start += len(text)
    described = {name: fields for (name, *_), fields in steps}
    inert = _inert({**manifest, "digits": digits, "steps": described, "data": index})
    return b"".join([before, inert, between, *texts, after])


def _skeleton() -> tuple[bytes, bytes, bytes]:
    """Return the page with its style and script in place and a policy that allows these alone.

    In three parts: the manifest goes between the first and the second, the data between the second and the last.
    """
    page = static("index.html")
    style, script = _STYLE.search(page), _SCRIPT.search(page)
    if style is None or script is None:
        raise RegardError('index.html needs one <link rel="stylesheet"> and one <script type="module">')
    css, code = stylesheet(), bundled(script[1])
    for text, tag in ((css, "</style"), (code, "</script"), (code, "<!--")):
        if tag in text.lower():
            raise RegardError(f"the page's own files hold {tag}, which would end them")
    policy = "; ".join([
        "default-src 'none'", f"script-src '{_hash(code)}'", f"style-src '{_hash(css)}'", "img-src data: blob:",
        "connect-src 'none'", "base-uri 'none'", "form-action 'none'",
    ])  # fmt: skip
    meta = f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">'
    page = page.replace(style[0], f"<style>{css}</style>", 1)
    page = re.sub(r"(<meta charset=[^>]*>)", lambda found: f"{found[1]}\n{meta}", page, count=1)
    before, after = page.split(script[0])
    between = '</script>\n<script type="text/plain" id="regard-data">'
    before += '<script type="application/json" id="regard-manifest">'
    after = f'</script>\n<script type="module">{code}</script>{after}'
    return before.encode("utf-8"), between.encode("utf-8"), after.encode("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


Blob = tuple[str, bytes, int]
Steps = tuple[Blob, dict[str, Any]]


def _size(blobs: list[Blob]) -> int:
    """Return the bytes of blobs in a page, with their places in the index."""
    return sum(len(text) + 80 for _, text, _ in blobs)


def _inert(value: Any) -> bytes:
    """Return plain data as JSON that can end no script: a < is only ever in a string, where it may be escaped."""
    return json_bytes(value).replace(b"<", b"\\u003c")


def _lengths(exploration: Exploration) -> str:
    return " and ".join(f"{run.length:,}" for run in exploration.runs)


def _blob(name: str, content: bytes) -> Blob:
    return name, to_text(content), len(content)


def _beside_weights(exploration: Exploration, run: int) -> Iterator[Blob]:
    its = exploration.runs[run]
    yield _blob(f"heads/{run}", json_bytes(exploration.heads(run)))
    yield _blob(f"thumbnails/{run}", exploration.thumbnails(run)[1])
    together = [n for n, other in enumerate(exploration.runs) if its.plane is not None and other.plane == its.plane]
    if together:
        moved = exploration.movement(together)
        yield _blob(f"movement/{run}", json_bytes({**moved, "points": [moved["points"][together.index(run)]]}))
    if "norms" in exploration.ways:
        for layer in range(len(its.layers)):
            yield _blob(f"norms/{run}/{layer}", exploration.values_of(run, layer).astype("<f4").tobytes())


def _maps_that_fit(exploration: Exploration, room: int, steps: list[Steps]) -> tuple[int, list[Blob], bool] | None:
    """Return the most digits that fit, all maps with these, and whether there is room for steps too; None if none fit.

    A third digit of every weight is worth more than steps; the fourth is not.
    """
    beside = sum(_size([blob]) + len(json_bytes(fields)) for blob, fields in steps)
    for digits in range(MOST_DIGITS, _FEWEST_DIGITS - 1, -1):
        for has_steps in (True, False) if digits < MOST_DIGITS and steps else (True,):
            if (maps := _maps(exploration, digits, room - has_steps * beside)) is not None:
                return digits, maps, has_steps
    return None


def _maps(exploration: Exploration, digits: int, room: int) -> list[Blob] | None:
    """Return all maps with so many digits; None where there is no room for them."""
    maps = list(_each_map(exploration))
    some = maps[:: max(1, len(maps) // 12)]  # tell, nearly always, whether it is worth while to pack all
    if sum(len(to_text(packed(make(), digits))) for _, make in some) * len(maps) > 1.2 * room * len(some):
        return None
    found, used = [], 0
    for name, make in maps:
        found.append(_blob(name, packed(make(), digits)))
        used += _size(found[-1:])
        if used > room:
            return None
    return found


def _each_map(exploration: Exploration) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    """Yield the name of each map, and what returns it."""
    rolled = "rollout" in exploration.ways
    for run, its in enumerate(exploration.runs):
        for number, layer in enumerate(its.layers):
            for head in range(len(layer.heads)):
                yield f"weights/{run}/{number}/{head}", partial(layer.tile, head, None, None)
            if rolled:
                yield f"rollout/{run}/{number}", partial(exploration.whole, run, number, "mean", "rollout")


def _heads_from_the_opening_one(exploration: Exploration) -> list[tuple[int, int, int]]:
    """Return (run, layer, head) of all: first that which the page opens with, then those of its layer."""
    opening = exploration.opening
    heads = [
        (run, layer, head)
        for run, its in enumerate(exploration.runs)
        for layer in range(len(its.layers))
        for head in range(len(its.layers[layer].heads))
    ]
    return sorted(heads, key=lambda at: (at[1:] != opening, at[1] != opening[0], at[1:], at[0]))


def _steps(exploration: Exploration, heads: list[tuple[int, int, int]], room: int) -> list[Steps]:
    """Return what cells are computed from, of those heads that have it and as long as there is room."""
    found = []
    for run, layer, head in heads:
        vectors = exploration.vectors(run, layer, head)
        if vectors is None:
            continue
        content, fields = vectors
        found.append((_blob(f"vectors/{run}/{layer}/{head}", content), fields))
        room -= _size([found[-1][0]]) + len(json_bytes(fields))
        if room < 0:
            return found[:-1]
    return found
