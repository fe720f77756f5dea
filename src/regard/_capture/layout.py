"""What the modules of a PyTorch model are, by its structure: blocks, their attentions and feed-forward, embeddings.

Found by classes, names and shapes of modules, so for any model that is built as transformers builds them. What does not
fit is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from regard._capture.scopes import ModuleScopes, attention_kind, is_attention

Kind: TypeAlias = Literal["attn", "cross_attn"]

_QKV = re.compile(r"(pos_)?(q|k|v|qk|kv|qkv|query|key|value|in)(_|$)|wqkv|(c|q)_attn$|query_key_value", re.IGNORECASE)
_HEAD_NORM = re.compile(r"(q|k|v|kv|query|key|value)_", re.IGNORECASE)
_ROLES = {  # of projections of attention
    "q": re.compile(r"(q|query|q_proj|query_proj|q_lin)$"),
    "k": re.compile(r"(k|key|k_proj|key_proj|k_lin)$"),
    "v": re.compile(r"(v|value|v_proj|value_proj|v_lin)$"),
}
_GATES = {"gate_proj": "gate", "up_proj": "up", "wi_0": "gate", "wi_1": "up", "w1": "gate", "w3": "up"}
_ROUTERS = ("gate", "router")
_HEADS = ("num_attention_heads", "num_heads", "n_heads", "n_head")
_ROTARY = re.compile(r"rotary|rope|freqs|sinusoidal", re.IGNORECASE)


@dataclass(eq=False)
class AttentionSite:
    """One attention of a block.

    Parameters
    ----------
    kind : {"attn", "cross_attn"}
    module : torch.nn.Module
        The outermost one that is an attention.
    projection : module, optional
        The last linear map, of the concatenated heads; `module` itself if it is an nn.MultiheadAttention.
    own : dict
        For an attention in the model's own code: its linear maps ``q``, ``k`` and ``v``, as far as they are found.
    num_heads : int
        0 if unknown.
    """

    kind: str
    module: Any
    projection: Any = None
    own: dict[str, Any] = field(default_factory=dict)
    num_heads: int = 0


@dataclass(eq=False)
class BlockLayout:
    """The parts of a block.

    Parameters
    ----------
    module : torch.nn.Module
    stack : str
        The path of its stack.
    attentions : list of AttentionSite
    norms, linears : list of module
        All that are called with vectors of the residual stream, or of a branch: not those of heads.
    down : module, optional
        The last linear map of the feed-forward network.
    gates : dict
        The linear maps whose outputs are ``gate`` and ``up``; one that is both has the name ``gate+up``.
    mixture, router : module, optional
        A mixture of experts, and the module that chooses them.
    """

    module: Any
    stack: str
    attentions: list[AttentionSite] = field(default_factory=list)
    norms: list[Any] = field(default_factory=list)
    linears: list[Any] = field(default_factory=list)
    down: Any = None
    gates: dict[str, Any] = field(default_factory=dict)
    mixture: Any = None
    router: Any = None


@dataclass(eq=False)
class ModelLayout:
    """The blocks of a model, and the modules before and after them.

    Parameters
    ----------
    blocks : list of BlockLayout
    embeddings : dict
        From each table outside the blocks to its step, such as ``token_embeddings``.
    norms, linears : list of (path, module)
        Outside the blocks.
    """

    blocks: list[BlockLayout]
    embeddings: list[tuple[str, Any, str]]
    norms: list[tuple[str, Any]]
    linears: list[tuple[str, Any]]


def layout_of(model: Any, scopes: ModuleScopes) -> ModelLayout:
    """Return the layout of a model."""
    modules = dict(model.named_modules())
    through_interface = _through_interface(model)
    blocks = [_block(modules[path], _stack_of(path, scopes), through_interface) for path in scopes.block_paths]
    inside = {id(module) for block in blocks for module in block.module.modules()}
    outside = [(path, module) for path, module in modules.items() if path and id(module) not in inside]
    tables = [(path, module, _table(path)) for path, module in outside if _is_table(module)]
    return ModelLayout(
        blocks,
        [(path, module, step) for path, module, step in tables if step is not None],
        [(path, module) for path, module in outside if is_norm(path, module)],
        [(path, module) for path, module in outside if is_linear(module)],
    )


def is_linear(module: Any) -> bool:
    """Whether a module is a linear map, also the transposed one of transformers."""
    name = type(module).__name__
    return ("Linear" in name or name == "Conv1D") and not any(True for _ in module.children())


def is_norm(path: str, module: Any) -> bool:
    """Whether a module is a norm of vectors of the model's width, or stands in the place of one."""
    kind, name = type(module).__name__.lower(), path.rpartition(".")[2]
    is_named_norm = "norm" in kind or (kind == "identity" and ("norm" in name.lower()))
    return is_named_norm and not any(True for _ in module.children()) and _HEAD_NORM.match(name) is None


def _block(module: Any, stack: str, through_interface: set[int]) -> BlockLayout:
    block = BlockLayout(module, stack)
    inner = [(name, module) for name, module in block.module.named_modules() if name]
    sites: dict[str, AttentionSite] = {}
    is_covered: set[int] = set()  # in an attention
    for name, module in inner:
        if is_attention(module) and id(module) not in is_covered:
            is_covered |= {id(part) for part in module.modules()}
            kind = _kind(name, module)
            if kind not in sites:  # a second one of its kind has no name
                sites[kind] = _site(kind, module, id(module) not in through_interface)
    block.attentions = list(sites.values())
    block.norms = [module for name, module in inner if is_norm(name, module)]
    block.linears = [module for name, module in inner if is_linear(module)]
    _set_feed_forward(block, [(name, module) for name, module in inner if id(module) not in is_covered])
    return block


def _kind(path: str, module: Any) -> str:
    """Return the kind of an attention, which its own name may say, or that of an attention in it, as in T5."""
    inner = [f".{name}" for name, part in module.named_modules() if name and is_attention(part)]
    return attention_kind(" ".join([path, type(module).__name__, *inner]))


def _stack_of(path: str, scopes: ModuleScopes) -> str:
    """Return the longest path of a stack in which a block is."""
    return max((stack for stack in scopes.stacks if not stack or path.startswith(f"{stack}.")), key=len)


def _site(kind: str, module: Any, is_own: bool) -> AttentionSite:
    import torch

    if isinstance(module, torch.nn.MultiheadAttention):
        return AttentionSite(kind, module, module)
    maps = [(name.rpartition(".")[2], part) for name, part in module.named_modules() if is_linear(part)]
    others = [part for name, part in maps if _QKV.match(name) is None]
    site = AttentionSite(kind, module, others[-1] if others else None)
    if is_own:
        site.own = {step: part for step, role in _ROLES.items() for name, part in maps if role.match(name)}
        counts = [getattr(part, name, None) for part in module.modules() for name in _HEADS]
        site.num_heads = next((count for count in counts if isinstance(count, int)), 0)
        if _rotates(module):  # inside the attention, after the maps
            site.own = {step: part for step, part in site.own.items() if step == "v"}
    return site


def _rotates(module: Any) -> bool:
    """Whether an attention may rotate its queries and keys, by the names of its parts and of its configuration."""
    names = [name for part in module.modules() for name in vars(part)]
    names += [name for name, _ in module.named_modules()] + [name for name, _ in module.named_buffers()]
    configs = [config for part in module.modules() if (config := getattr(part, "config", None)) is not None]
    names += [name for config in configs for name, value in vars(config).items() if value is not None]
    return any(_ROTARY.search(name) for name in names)


def _through_interface(model: Any) -> set[int]:
    """Return the modules whose attention is computed through the interface of transformers, by their id."""
    owners = [part for part in model.modules() if hasattr(part, "_can_set_attn_implementation")]
    return {id(inner) for part in owners if type(part)._can_set_attn_implementation() for inner in part.modules()}


def _set_feed_forward(block: BlockLayout, parts: list[tuple[str, Any]]) -> None:
    """Find the feed-forward network among the modules outside of attention: two linear maps, three, or experts."""
    for _, module in parts:
        children = dict(module.named_children())
        if "experts" in children:
            block.mixture = module
            block.router = next((children[name] for name in _ROUTERS if name in children), None)
            return
    maps = [(name.rpartition(".")[2], module) for name, module in parts if is_linear(module)]
    if len(maps) == 2:
        (_, up), (_, down) = maps
        (inputs, hidden), (inner, outputs) = _features(up), _features(down)
        if inputs == outputs and hidden in (inner, 2 * inner):
            block.down = down
            block.gates = {"gate+up": up} if hidden == 2 * inner else {}
    elif len(maps) == 3 and sorted(_GATES.get(name, "down") for name, _ in maps) == ["down", "gate", "up"]:
        roles = {_GATES.get(name, "down"): module for name, module in maps}
        block.down = roles.pop("down")
        block.gates = roles


def _features(linear: Any) -> tuple[int, int]:
    """Return how many features a linear map takes and returns."""
    if hasattr(linear, "in_features"):
        return linear.in_features, linear.out_features
    inputs, outputs = linear.weight.shape
    return inputs, outputs


def _is_table(module: Any) -> bool:
    import torch

    return isinstance(module, torch.nn.Embedding)


def _table(path: str) -> str | None:
    """Return the step whose values are the rows of a table; None for a table of distances."""
    name = path.rpartition(".")[2].lower()
    if "rel" in name:
        return None
    return (
        "position_embeddings" if re.search("pos|wpe", name) else f"{'type' if 'type' in name else 'token'}_embeddings"
    )
