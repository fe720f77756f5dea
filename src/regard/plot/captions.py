"""What titles, notes and captions say."""

from __future__ import annotations

from collections.abc import Sequence

from regard.plot.fonts import FontFallback
from regard.views.selection import AttentionView

WEIGHT = "weight: share of a word's attention"
SHORT_WEIGHT = "attention weight"
SQUARE_ROOT = "Colours are on a square-root scale."
_MODEL_COLUMNS, _TEXT_COLUMNS = 60, 240


def joined(*sentences: str) -> str:
    """Return the sentences that are not empty, one after the other."""
    return " ".join(filter(None, sentences))


def titled(what: str, model: str, fonts: FontFallback, description: str = "") -> str:
    """Return a title: what is shown, the model if it has a name, and the layer and head."""
    named = f"{what} in {fonts.label(model, _MODEL_COLUMNS)}" if model else what
    return f"{named}: {description}" if description else named


def quoted(text: str, fonts: FontFallback, columns: int) -> str:
    """Return a text of at most so many columns in quotes; "" for none."""
    return f"“{fonts.label(text, columns)}”" if text else ""


def masked(view: AttentionView) -> str:
    """Return what is masked; "" if nothing is."""
    causal = "Causal: each word attends to itself and to earlier words only. " if view.is_causal else ""
    return f"{causal}Grey cells are masked." if view.masked.any() else ""


def left_out(tokens: Sequence[str], fonts: FontFallback, share: float | None = None, where: str = "") -> str:
    """Return which tokens are not shown, their share of the attention, and where that is shown; "" for none."""
    if not tokens:
        return ""
    with_share = "" if share is None else f", with {share:.0%} of the attention"
    return f"Left out: {' and '.join(map(fonts.label, tokens))}{with_share}{f' ({where})' if where else ''}."


def on_square_root_scale(meaning: str) -> Sequence[str]:
    """Return what colours mean, and shorter words for it."""
    short = meaning.removeprefix("attention ")
    return f"{meaning} (square-root scale)", f"{meaning} (√ scale)", f"{short} (√ scale)"


def pooled(k: int, *, signed: bool = False) -> str:
    """Return that each dot of a map is several cells; "" if it is one."""
    farthest = "farthest from 0" if signed else "largest"
    return f"Each dot is the {farthest} of {k}×{k} weights." if k > 1 else ""


def pooled_pair(k: int) -> str:
    """Return what `pooled` does, of two maps and their difference."""
    return f"Each dot is the largest of {k}×{k} weights, in A − B the one farthest from 0." if k > 1 else ""


def of_print(
    views: Sequence[AttentionView],
    texts: Sequence[str],
    notes: Sequence[str],
    fonts: FontFallback,
    *,
    span: tuple[int, int] | None,
    all_heads: bool,
) -> str:
    """Return the caption of a figure for print of one map or of two."""

    def described(n: int) -> str:
        which = "every head" if all_heads else views[n].describe
        return ", ".join(filter(None, (fonts.label(views[n].model, _MODEL_COLUMNS), which, *notes[n : n + 1])))

    quotes = [f": {quoted(text, fonts, _TEXT_COLUMNS)}" if text else "" for text in texts]
    axes = "rows are queries, columns are keys"
    if len(views) == 1:
        subject = f" of {described(0)}" if described(0) else ""
        said = [f"Attention weights{subject}{quotes[0]}; {axes}."]
    else:
        if quotes[0] == quotes[1]:
            quotes[1] = ""
        sides = [f"{'AB'[n]}: {described(n)}{quotes[n]}" for n in range(2)]
        ended = [side if side.endswith((".”", "?”", "!”")) else f"{side}." for side in sides]
        said = [f"Attention weights; {axes}.", *ended, "A − B is blue where A is larger and brown where B is."]
    tokens = tuple(dict.fromkeys(token for view in views for token in view.special_tokens))
    shares = [float(view.special_mass.mean()) for view in views]
    missing = left_out(tokens, fonts, None if all_heads else shares[0])
    if missing and not all_heads and len(views) == 2:
        missing = f"{missing[:-1]} in A and {shares[1]:.0%} in B."
    shown = "" if span is None else f"Only tokens {span[0]} to {span[1] - 1} are shown."
    return joined(*said, SQUARE_ROOT if all_heads else "", missing, shown, masked(views[0]))
