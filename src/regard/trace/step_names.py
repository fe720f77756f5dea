"""Names of steps: patterns, the names of TransformerLens, and what a misspelled name may have meant."""

from __future__ import annotations

import difflib
import fnmatch
import functools
import re
from collections.abc import Collection
from typing import Any

from regard._utils.errors import RegardError
from regard.functional.dispatch import QUADRATIC_STEPS

# Of these the last computed enters block 0.
_EMBEDDINGS = ("projected_embeddings", "normed_embeddings", "embeddings", "token_embeddings")
_TRANSFORMER_LENS = {
    "embed": "token_embeddings",
    "pos_embed": "position_embeddings",
    "rot_q": "q",
    "rot_k": "k",
    "pattern": "weights",
    "z": "context",
    "attn_out": "attn.output",
    "resid_mid": "attn_residual",
    "post": "hidden",
    "mlp_out": "mlp.output",
    "resid_post": "output",
}

_ONE_PART = "\0"  # in no name


def canonical_name(name: str, recorded: Collection[str] | None = None) -> str:
    """Return regard's name of a step for a name of TransformerLens; any other name unchanged.

    ``q`` and ``k`` are those that enter the scores, so after a rotary embedding: ``rot_q`` and ``rot_k``. Arrays keep
    the axes of regard.

    Parameters
    ----------
    name : str
        ``blocks.3.attn.hook_pattern``, or a pattern, ``blocks.*.attn.pattern``.
    recorded : collection of str, optional
        The names of a trace, in which the residual stream before the first block has one of three names.

    Raises
    ------
    RegardError
        ``resid_pre`` in a pattern, where it is not one step.
    """
    scope, dot, last = name.rpartition(".")
    star = "*" if last.startswith("*") else ""
    last = last.removeprefix(star).removeprefix("hook_")
    if recorded is not None and name in recorded:
        return name
    if last == "resid_pre":
        return _before_block(name, scope, recorded)
    return f"{scope}{dot}{star}{_TRANSFORMER_LENS[last]}" if last in _TRANSFORMER_LENS else name


def _before_block(name: str, scope: str, recorded: Collection[str] | None) -> str:
    """Return the name of the residual stream that enters a block: the output of the block before it."""
    blocks, _, number = scope.rpartition(".")
    if blocks.rpartition(".")[2] != "blocks":
        return name
    if number.isdecimal() and int(number) > 0:
        return f"{blocks}.{int(number) - 1}.output"
    names = [f"{blocks.removesuffix('blocks')}{step}" for step in _EMBEDDINGS]
    if recorded is None:
        raise RegardError(f"{name} is not one step: name a block, or one of {', '.join(names)}")
    return next((step for step in names if step in recorded), name)


@functools.lru_cache(1 << 15)  # the steps of a model by the edits of many runs
def matches(name: str, *patterns: str) -> bool:
    """Whether a name of regard matches any pattern, or the name that it is an alias of.

    Between two dots ``*`` is one part: ``blocks.*.output`` is of blocks alone. Elsewhere it is anything, as in
    ``*.output`` or ``blocks.3.*``.
    """
    return any(_regex(alias).match(name) for pattern in patterns for alias in (pattern, canonical_name(pattern)))


@functools.lru_cache(4096)
def _regex(pattern: str) -> re.Pattern[str]:
    parts = pattern.split(".")
    parts[1:-1] = [_ONE_PART if part == "*" else part for part in parts[1:-1]]
    return re.compile(fnmatch.translate(".".join(parts)).replace(_ONE_PART, "[^.]*"))


@functools.lru_cache(4096)
def quadratic_stage(name: str) -> Any:
    """Return the last part of the name of an n² array, ``scores`` to ``dropped``; None for other names."""
    last = name.rpartition(".")[2]
    return last if last in QUADRATIC_STEPS else None


def did_you_mean(name: str, names: Collection[str]) -> str:
    """Return the end of an error message that suggests similar names."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"none of the {len(names)} names is similar"
