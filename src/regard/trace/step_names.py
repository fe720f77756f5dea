"""Names of steps: patterns, the names of TransformerLens, and what a misspelled name may have meant."""

from __future__ import annotations

import difflib
import fnmatch
import functools
import re
from collections.abc import Collection, Iterable
from typing import Any

from regard._utils.errors import RegardError
from regard.functional.scores.stages import QUADRATIC_STEPS

# Of these the last computed enters block 0.
_EMBEDDINGS = ("projected_embeddings", "normed_embeddings", "embeddings", "token_embeddings")

# By the end of a name of TransformerLens, in which ``hook_`` may be left out where it is here: the end of regard's. Of
# several the first that a run has, for not all models have all.
_TRANSFORMER_LENS: dict[str, tuple[str, ...]] = {
    "embed": ("token_embeddings",),
    "embed.hook_out": ("token_embeddings",),
    "pos_embed": ("position_embeddings",),
    "pos_embed.hook_out": ("position_embeddings",),
    "hook_q": ("projected_q", "q"),
    "hook_k": ("projected_k", "k"),
    "hook_v": ("v",),
    "q.hook_out": ("projected_q", "q"),
    "k.hook_out": ("projected_k", "k"),
    "v.hook_out": ("v",),
    "q_normed": ("q_norm",),
    "k_normed": ("k_norm",),
    "rot_q": ("q",),
    "rot_k": ("k",),
    "attn_scores": ("biased",),
    "pattern": ("weights",),
    "z": ("context",),
    "o.hook_in": ("context",),
    "o.hook_out": ("output",),
    "result": ("head_outputs",),
    "hidden_states": ("output",),
    "attn_out": ("attn_post_norm", "attn_scaled", "attn.output"),
    "resid_mid": ("attn_residual",),
    "ln2.hook_in": ("attn_residual",),
    "pre": ("gate", "up"),
    "pre_linear": ("up",),
    "post": ("hidden",),
    "gate.hook_out": ("gate",),
    "mlp.in.hook_out": ("mlp.up",),
    "mlp.out.hook_in": ("mlp.hidden",),
    "mlp.out.hook_out": ("mlp.output",),
    "mlp_out": ("mlp_post_norm", "mlp_scaled", "mlp.output"),
    "hook_out": ("output",),
    "resid_post": ("output",),
    "hook_scale": ("scale",),
    "hook_normalized": ("normalized",),
    "unembed.hook_in": ("final_norm",),
} | {
    f"{into}.hook_in": (f"{part}_norm",)
    for part, names in {"attn": ("attn", "attn.q", "attn.k", "attn.v"), "mlp": ("mlp", "mlp.gate", "mlp.in")}.items()
    for into in names
}
_NORMS = {
    "ln1": "attn_norm",
    "ln1_post": "attn_post_norm",
    "ln2": "mlp_norm",
    "ln2_post": "mlp_post_norm",
    "ln_final": "final_norm",
    "q_norm": "q_norm",
    "k_norm": "k_norm",
}

_ONE_PART = "\0"  # in no name


def canonical_name(name: str, steps: Collection[str] = ()) -> str:
    """Return regard's name of a step for a name of TransformerLens; any other name unchanged.

    ``hook_q`` and ``hook_k`` are before norms and rotary embedding, ``rot_q`` and ``rot_k`` those that enter the
    scores. Arrays keep the axes of regard.

    Parameters
    ----------
    name : str
        ``blocks.3.attn.hook_pattern``.
    steps : collection of str
        The steps of a run: where models differ, as in what ``hook_attn_out`` is with a norm after attention, the name
        is that of a step of the run.
    """
    names = canonical_names(name)
    return name if name in steps else next((each for each in names if each in steps), names[-1])


@functools.lru_cache(1 << 12)
def canonical_names(name: str) -> tuple[str, ...]:
    """Return the names, or patterns, of regard that a name may stand for: of these the first that a run has.

    Raises
    ------
    RegardError
        ``resid_pre`` in a pattern, where it is not one step.
    """
    parts = name.split(".")
    norm = parts[-2].removeprefix("*") if len(parts) > 1 else ""
    if norm in _NORMS and parts[-1] != "hook_in":
        parts[-2] = parts[-2].replace(norm, _NORMS[norm])
        if parts[-1] == "hook_out":
            return (".".join(parts[:-1]),)
    if ".".join(parts[-2:]) == "ln1.hook_in" or _is_block_input(parts):
        return _before_block(name, parts[: -2 if norm == "ln1" else -1])
    for count in range(min(3, len(parts)), 0, -1):
        end = ".".join(parts[-count:])
        star, end = ("*", end[1:]) if end.startswith("*") and end != "*" else ("", end)
        ends = _TRANSFORMER_LENS.get(end) or _TRANSFORMER_LENS.get(end.removeprefix("hook_"))
        if ends is not None:
            return tuple(".".join([*parts[:-count], f"{star}{each}"]) for each in ends)
    return (".".join(parts),)


def _is_block_input(parts: list[str]) -> bool:
    """Whether a name is that of what a block gets: ``blocks.3.hook_resid_pre``, ``blocks.3.hook_in``."""
    return parts[-1].removeprefix("hook_") == "resid_pre" or (parts[-1] == "hook_in" and parts[-3:-2] == ["blocks"])


def _before_block(name: str, scope: list[str]) -> tuple[str, ...]:
    """Return the names of the residual stream that enters a block: the output of the block before it."""
    if scope[-2:-1] != ["blocks"]:
        return (name,)
    before = "".join(f"{part}." for part in scope[:-2])
    if not scope[-1].isdecimal():
        raise RegardError(f"{name} is not one step: name a block, or blocks.*.output and {', '.join(_EMBEDDINGS[1:])}")
    if int(scope[-1]) > 0:
        return (f"{before}blocks.{int(scope[-1]) - 1}.output",)
    return tuple(f"{before}{step}" for step in _EMBEDDINGS)


@functools.lru_cache(1 << 15)  # the steps of a model by the edits of many runs
def matches(name: str, *patterns: str) -> bool:
    """Whether a name of regard matches any pattern, or a name that it is an alias of.

    Between two dots ``*`` is one part: ``blocks.*.output`` is of blocks alone. Elsewhere it is anything, as in
    ``*.output`` or ``blocks.3.*``.
    """
    return any(_regex(each).match(name) for pattern in patterns for each in (pattern, *canonical_names(pattern)))


@functools.lru_cache(1 << 15)
def preferred_names(name: str, pattern: str) -> tuple[str, ...] | None:
    """Return the steps that a pattern names in place of a step, if a run has one of them; None if it names none.

    ``blocks.*.attn.hook_q`` is ``blocks.3.attn.q`` unless there is a ``blocks.3.attn.projected_q``.
    """
    if _regex(pattern).match(name):
        return ()
    candidates = canonical_names(pattern)
    for i, each in enumerate(candidates):
        if _regex(each).match(name):
            shared = len(_common_start(candidates))
            end = each[shared:].removeprefix("*")
            return tuple(name.removesuffix(end) + other[shared:].removeprefix("*") for other in candidates[:i])
    return None


def _common_start(names: tuple[str, ...]) -> str:
    """Return the scope that all names share."""
    first, last = min(names), max(names)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[: first[:length].rfind(".") + 1]


@functools.lru_cache(1 << 15)
def asks_by_name(name: str, pattern: str) -> bool:
    """Whether a pattern that matches a step ends with the step's own name: ``*.scale`` does, ``*`` does not."""
    last = name.rpartition(".")[2]
    return any(each.rpartition(".")[2].removeprefix("*") == last for each in (pattern, *canonical_names(pattern)))


@functools.lru_cache(4096)
def scoped(prefix: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the full names of steps of a scope."""
    return tuple(prefix + name for name in names)


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
    if not names:
        return "it has recorded nothing yet: run a model with it, model(text, trace=trace)"
    block, _, step = name.rpartition("attn.")
    if step and any(each.startswith(f"{block}linear_attn.") for each in names):
        return f"{block[:-1]} is linear attention, {block}linear_attn, which has no map"
    candidates = generalized(names) if "*" in name else names
    close = difflib.get_close_matches(name, candidates, n=3, cutoff=0.5)
    parts = [each for each in generalized(names) if f".{name}." in f".{each}."]  # a part of a name
    close = close or [each for each in parts if each.endswith("weights")][:1] or parts[:3]
    return f"did you mean {' or '.join(close)}?" if close else f"none of the {len(names)} names is similar"


def generalized(names: Iterable[str]) -> list[str]:
    """Return names with ``*`` in place of the numbers of blocks, each once."""
    return list(dict.fromkeys(re.sub(r"\bblocks\.\d+", "blocks.*", name) for name in names))
