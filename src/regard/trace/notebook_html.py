"""HTML of results for notebooks: a small picture, sizes, and what to type next. Every text in it is escaped."""

from __future__ import annotations

import base64
import html
import struct
import unicodedata
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

MAX_SIDE, MAX_TILES = 48, 12  # cells of a side of a small map, and maps of a picture
_LIGHT, _DARK = np.array([247, 251, 255]), np.array([8, 48, 107])  # Blues of ColorBrewer
_GAP = 2  # cells between maps
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def page(title: str, *parts: str, try_next: Sequence[str] = ()) -> str:
    """Return a block of HTML: a title, parts that are HTML already, and code to type next."""
    code = " · ".join(f"<code>{escaped(each)}</code>" for each in try_next)
    last = f"<div style='opacity:.75'>next: {code}</div>" if try_next else ""
    return f"<div style='font-size:90%'><b>{escaped(title)}</b>{''.join(parts)}{last}</div>"


def escaped(text: str) -> str:
    """Return a text as HTML, with invisible characters, those that change its direction too, as code points."""
    visible = (f"⟨U+{ord(c):04X}⟩" if unicodedata.category(c) in _INVISIBLE else c for c in text)
    return html.escape("".join(visible))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts."""
    head = "".join(f"<th style='text-align:left'>{escaped(each)}</th>" for each in header)
    lines = "".join(f"<tr>{''.join(f'<td>{escaped(each)}</td>' for each in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{lines}</table>"


def picture(tiles: Sequence[np.ndarray], caption: str, *, cell: int | None = None) -> str:
    """Return maps of values from 0 to 1 side by side as an image; NaN is as 0. A cell is `cell` pixels wide."""
    height = max(len(tile) for tile in tiles)
    gap = np.full((height, _GAP), np.nan)
    padded = (np.pad(tile, ((0, height - len(tile)), (0, 0)), constant_values=np.nan) for tile in tiles)
    values = np.concatenate([part for tile in padded for part in (tile, gap)][:-1], axis=1)
    side = cell if cell is not None else max(1, 96 // height)
    source = base64.b64encode(_png(values)).decode()
    return (
        f"<figure style='margin:.5em 0'><img alt='{escaped(caption)}' src='data:image/png;base64,{source}' "
        f"width='{values.shape[1] * side}' height='{height * side}' "
        f"style='image-rendering:pixelated;max-width:100%;height:auto'>"
        f"<figcaption style='opacity:.75'>{escaped(caption)}</figcaption></figure>"
    )


def sizes_picture(numbers: np.ndarray, caption: str) -> str:
    """Return the sizes of numbers, as shares of the largest, as an image."""
    sizes = np.abs(numbers)
    return picture([sizes / (sizes.max() or 1)], caption, cell=10)


def wrapped_row(parts: Iterable[str]) -> str:
    """Return parts beside each other, in as many lines as they need."""
    return f"<div style='display:flex;flex-wrap:wrap;column-gap:2em'>{''.join(parts)}</div>"


def tokens_line(tokens: Sequence[str], count: int = 40) -> str:
    """Return the first tokens of a text as HTML."""
    more = f" … {len(tokens)} in all" if len(tokens) > count else ""
    return f"<div>{' '.join(f'<code>{escaped(token)}</code>' for token in tokens[:count])}{more}</div>"


def _png(values: np.ndarray) -> bytes:
    """Return a PNG of values from 0, light, to 1, dark; NaN, of gaps, is transparent."""
    share = np.clip(np.nan_to_num(values), 0, 1)[..., None]
    colours = _LIGHT + share * (_DARK - _LIGHT)
    alpha = np.where(np.isnan(values), 0, 255)[..., None]
    pixels = np.concatenate([colours, alpha], axis=-1).round().astype(np.uint8)
    rows = b"".join(b"\x00" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
