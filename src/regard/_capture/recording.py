"""What a capture is to record: groups of steps by name, as the trace that records them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from regard._utils.errors import RegardError
from regard.functional.scores.stages import QUADRATIC_STEPS
from regard.trace import Edit, Trace
from regard.trace.step_names import canonical_name, canonical_names, matches
from regard.trace.tensor_trace import TensorTrace
from regard.trace.trace import names_of

GROUPS: dict[str, tuple[str, ...]] = {
    "weights": ("*weights",),
    "qkv": ("*q", "*k", "*v"),
    "context": ("*context",),
    "attn": ("*attn.output",),
    "mlp": ("*mlp.output",),
    "hidden": ("*mlp.hidden", "*mlp.gate", "*mlp.up"),
    "experts": ("*mlp.experts",),
    "residual": ("*attn_residual", "*blocks.*.output"),
    "embeddings": ("*embeddings",),
    "norms": ("*normed_embeddings", "*final_norm"),
    "logits": ("logits",),
}
"""Names of groups for ``record=``, and the steps that each stands for."""

_OF_ATTENTION = ("q", "k", "v", "context", *QUADRATIC_STEPS)
_OTHERS = (
    *("output", "attn_residual", "cross_attn_residual", "hidden", "gate", "up", "experts", "final_norm", "logits"),
    *(f"{kind}embeddings" for kind in ("", "token_", "position_", "type_", "normed_", "projected_")),
)


@dataclass(eq=False)
class Recording:
    """A trace, and what it was made to record.

    Parameters
    ----------
    trace : Trace
    requested : dict
        From each name that must match a step, a group or a pattern, to its patterns.
    """

    trace: Trace
    requested: Mapping[str, tuple[str, ...]]

    def missing(self) -> list[str]:
        """Return the names that matched no step of the run."""
        steps = self.trace.tapped()
        return [name for name, patterns in self.requested.items() if not any(matches(s, *patterns) for s in steps)]

    def is_of_attention(self, name: str) -> bool:
        """Whether a requested name can match steps of the equation of attention, and no others."""
        patterns = self.requested[name]
        return all(_may_match(p, _OF_ATTENTION) and not _may_match(p, _OTHERS) for p in patterns)

    @property
    def needs_attention(self) -> bool:
        """Whether a step of the equation of attention may be recorded, edited, or the last one."""
        return self._may_match(_OF_ATTENTION)

    @property
    def needs_steps(self) -> bool:
        """Whether any other step may be."""
        return self._may_match(_OTHERS)

    def _may_match(self, steps: tuple[str, ...]) -> bool:
        patterns = self.trace.patterns()
        return patterns is None or any(_may_match(pattern, steps) for pattern in patterns)


def recording_of(
    trace: Trace | None,
    record: str | Iterable[str] | None,
    tensors: bool,
    edit: Mapping[str, Edit] | None,
) -> Recording:
    """Return what the arguments of `capture` say to record."""
    if trace is not None:
        conflicting = [name for name, value in (("record", record), ("edit", edit)) if value is not None]
        conflicting += ["tensors"] * tensors
        if conflicting:
            raise RegardError(f"{' and '.join(conflicting)} say what a trace does: leave out either them or trace")
        if not isinstance(trace, Trace):
            raise RegardError(f"capture records into a Trace, trace=regard.Trace(maps=True), got {trace!r}")
        return Recording(trace, {})
    requested = {name: GROUPS.get(name, (name,)) for name in _names("weights" if record is None else record)}
    only = tuple(pattern for patterns in requested.values() for pattern in patterns)
    if tensors:
        return Recording(TensorTrace(only=(), optional=only, edit=edit), requested)
    has_maps = all(canonical_name(p).endswith("weights") or not _may_match(p, QUADRATIC_STEPS) for p in only)
    return Recording(Trace(maps=has_maps, only=(), optional=only, edit=edit), requested)


def _names(record: str | Iterable[str]) -> list[str]:
    """Return the groups and patterns of an argument, which one string separates by commas."""
    return [name.strip() for part in names_of("record", record) for name in part.split(",") if name.strip()]


def _may_match(pattern: str, steps: Iterable[str]) -> bool:
    """Whether a pattern of names may match one whose last part is among `steps`."""
    ends = [name.rpartition(".")[2] for name in canonical_names(pattern)]
    return any(end.endswith("*") or any(fnmatchcase(step, end) for step in steps) for end in ends)
