"""The description of an exploration that the page loads first."""

from __future__ import annotations

from collections.abc import Sequence

from regard._version import __version__
from regard.explorer import answers
from regard.explorer.opening import Opening
from regard.explorer.queries.attribution import describe_attribution
from regard.explorer.queries.next_tokens import predicts_next_tokens
from regard.explorer.queries.patching import has_patching
from regard.explorer.queries.paths import has_paths
from regard.explorer.run import Run
from regard.functional import native


def describe_run(
    run: Run, thumbnail_size: int, opening: Opening, other_text: str | None, *, is_own: bool
) -> answers.RunDescription:
    """Return a run as plain data.

    `opening` is what the page opens with, whether it `is_own` or that of another run, and `other_text` the text of the
    run that this one is compared with.
    """
    return {
        "title": run.title,
        "model": run.trace.model,
        "text": run.encoding.text if run.encoding else "",
        "tokens": run.token_descriptions,
        "picture": run.picture_description,
        "layers": run.layer_descriptions,
        "projection_key": run.projection_key,
        "thumbnail_size": thumbnail_size,
        "num_sampled_rows": len(run.sampled_rows()) if run.is_long else None,
        "initial": opening.describe(run),
        "distinctive": list(opening.cells) if is_own else [],
        "predicts_tokens": predicts_next_tokens(run),
        "has_paths": has_paths(run),
        "has_patching": has_patching(run),
        "attribution": describe_attribution(run, other_text),
    }


def title_of(run: Run) -> str:
    """Return the beginning of a run's text, or the name of its model."""
    text = " ".join((run.encoding.text if run.encoding else "").split())
    return (text if len(text) <= 60 else f"{text[:59]}…") or run.trace.model or "attention"


def provenance_of(runs: Sequence[Run]) -> str:
    """Return the precision of the weights, and what computed them; for recorded weights that is not known."""
    kernel = native.kernel()
    backend = "NumPy" if kernel is None else f"native · {kernel.instruction_set()}"
    sources = {
        f"{layer.tile(0, [0], [0]).dtype} · "
        + (f"from recorded q and k by {backend} · regard {__version__}" if layer.is_map else "as recorded")
        for run in runs
        for layer in run.layers
    }
    return "; ".join(sorted(sources))
