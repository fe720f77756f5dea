"""LoRA adapters, as peft writes them: matrices of low rank that are added to those of a model.

Hu et al. (2021), "LoRA: Low-rank adaptation of large language models", https://arxiv.org/abs/2106.09685:
W + alpha / r · B A, with A ``r E`` and B ``F r``.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard._utils.validation import truncate
from regard.formats.safetensors import SafetensorsFile
from regard.models.checkpoint.save import StoredPlaces
from regard.models.checkpoint.tensors import Place
from regard.models.checkpoint.weight_files import ADAPTER
from regard.nn.gradients import with_parameters
from regard.text.words import join_names

_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."  # of all names
# Fields that say where the adapter is from, or what its file says too.
_WITHOUT_EFFECT = frozenset(
    """
    auto_mapping base_model_name_or_path bias corda_config ensure_weight_tying eva_config exclude_modules fan_in_fan_out
    inference_mode init_lora_weights layers_pattern layers_to_transform loftq_config lora_alpha lora_dropout
    lora_ga_config megatron_core modules_to_save peft_type peft_version qalora_group_size r rank_pattern alpha_pattern
    revision runtime_config target_modules task_type use_rslora
    """.split()  # noqa: SIM905
)
_PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")  # others change the weights of the model too


@dataclass
class _Module:
    """What an adapter has for a linear map."""

    low: dict[str, np.ndarray] = field(default_factory=dict)  # A and B

    def product(self, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        """Return what is added to the weight, ``F E``."""
        if set(self.low) != {"A", "B"} or any(x.ndim != 2 for x in self.low.values()):
            raise RegardError(f"the adapter lacks one of the two matrices for {name}, lora_A and lora_B")
        a, b = self.low["A"], self.low["B"]
        if b.shape[1] != len(a):
            raise RegardError(f"the matrices of the adapter for {name} do not join: {b.shape} and {a.shape}")
        alpha, rank = _of_module(name, settings, "alpha"), _of_module(name, settings, "rank")
        if rank != len(a) or rank < 1:
            raise RegardError(
                f"the matrices of the adapter for {name} have the rank {len(a)}, its settings say {rank:g}"
            )
        scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
        product: np.ndarray = (b.astype(np.float64) @ a.astype(np.float64)) * scale
        if not np.isfinite(product).all():
            raise RegardError(f"the adapter has numbers that are not finite for {name}")
        return product


def with_adapter(model: Any, folder: str | os.PathLike[str]) -> Any:
    """Return a model with the matrices of an adapter added; see `PretrainedModel.with_adapter`."""
    path = Path(folder)
    settings = _read_settings(path)
    stored = SafetensorsFile(path / _WEIGHTS)
    modules: dict[str, _Module] = {}
    replaced: dict[str, np.ndarray] = {}
    for key in stored.shapes:
        name = key.removeprefix(_PREFIX).replace(".base_layer.", ".")
        low = re.fullmatch(r"(.+)\.lora_([AB])\.weight", name)
        if low is not None:
            modules.setdefault(low[1], _Module()).low[low[2]] = stored[key]
        elif ".lora_" in name:
            raise RegardError(f"{path} has {truncate(key)}: only lora_A and lora_B of linear maps are supported")
        else:
            replaced[name] = stored[key]
    if not modules and not replaced:
        raise RegardError(f"{path / _WEIGHTS} has no tensors: fetch or save it again")
    places = StoredPlaces(model)
    arrays: dict[str, Any] = {}
    changes = {f"{name}.weight": module.product(name, settings) for name, module in modules.items()}
    by_tensor: dict[str, list[tuple[str, Place]]] = {}
    for array, place in places.places.items():
        by_tensor.setdefault(place.name, []).append((array, place))
    names = {name: _tensor_of(name, by_tensor) for name in (*changes, *replaced)}
    if missing := [name for name, tensor in names.items() if tensor is None]:
        raise RegardError(f"{path} is an adapter of another model: {model.name} has no {join_names(missing, 10)}")
    for name, tensor in replaced.items():
        for array, place in by_tensor[str(names[name])]:
            x = places.arrays[array]
            if tensor.shape != tuple(places.tensors.shapes[place.stored]):
                raise RegardError(f"{name} of {path} has the shape {tensor.shape}, which is not that of {model.name}")
            new = place.as_array(tensor.astype(x.dtype)) + place.spec.offset
            if not np.isfinite(new).all():
                raise RegardError(f"the adapter has numbers that are not finite for {name}")
            if np.array_equal(new, x):
                continue  # a copy, as peft writes it beside
            if array == "token_embedding.weight":
                raise RegardError(f"{path} has other embeddings, {name}, which is not supported")
            arrays[array] = new
    for name, change in changes.items():
        for array, place in by_tensor[str(names[name])]:
            delta = change if place.spec.transposed else change.T  # stored as (inputs, outputs), by GPT-2
            if delta.shape != tuple(places.tensors.shapes[place.stored]):
                raise RegardError(f"the adapter has {delta.shape} for {name}, which is not the shape in {model.name}")
            x = np.asarray(arrays.get(array, places.arrays[array]))
            arrays[array] = (x + place.as_array(delta)).astype(x.dtype)
    return with_parameters(model, arrays)


def _read_settings(folder: Path) -> dict[str, Any]:
    """Return the configuration of an adapter; an error for one that is no LoRA, or has other parts."""
    settings = read_json_object(folder / ADAPTER)
    if settings is None:
        raise RegardError(f"there is no {ADAPTER} in {folder}: not the folder of an adapter")
    if settings.get("peft_type") != "LORA":
        raise RegardError(
            f"{folder} is an adapter of type {truncate(settings.get('peft_type'))}; supported is LORA: merge it into "
            "its base model with peft (merge_and_unload)"
        )
    unknown = [name for name, value in settings.items() if value and name not in _WITHOUT_EFFECT]
    start = settings.get("init_lora_weights", True)
    if not any(start is each or start == each for each in _PLAIN_STARTS):
        unknown.append("init_lora_weights")
    if not isinstance(settings.get("use_rslora", False), bool | None):
        unknown.append("use_rslora")
    if unknown:
        shown = ", ".join(f"{name}={truncate(settings[name])}" for name in unknown)
        raise RegardError(f"the adapter in {folder} is not supported: {shown}; merge it with peft (merge_and_unload)")
    return settings


def _of_module(module: str, settings: Mapping[str, Any], kind: str) -> float:
    """Return the alpha or the rank of a module, its own or that of all."""
    patterns = settings.get(f"{kind}_pattern") or {}
    if not isinstance(patterns, Mapping) or not all(re.fullmatch(r"[\w.]+", name) for name in patterns):
        raise RegardError(f"{kind}_pattern of the adapter must name modules, got {truncate(patterns)}")
    own = next((value for name, value in patterns.items() if f".{module}".endswith(f".{name}")), None)
    field_name = "lora_alpha" if kind == "alpha" else "r"
    value = settings.get(field_name, 8) if own is None else own
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RegardError(f"{field_name} of the adapter must be a number, got {truncate(value)}")
    return float(value)


def _tensor_of(name: str, tensors: Mapping[str, Any]) -> str | None:
    """Return which of the tensors of a model is meant by a name, with or without the prefix of its architecture."""
    if name in tensors:
        return name
    matches = [each for each in tensors if each.endswith(f".{name}") or name.endswith(f".{each}")]
    return matches[0] if len(matches) == 1 else None
