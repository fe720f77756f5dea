"""A model whose tensors can be updated in place: views of one flat array, in the layout of its checkpoint."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import write_json
from regard._utils.validation import float_dtype, whole_number
from regard.formats.safetensors import write_safetensors
from regard.functional import native
from regard.functional.native import ops
from regard.models import TextModel
from regard.models.checkpoint.config import ConfigReader
from regard.models.checkpoint.open import FolderCheckpoint, open_checkpoint
from regard.models.checkpoint.save import write_beside_weights
from regard.models.checkpoint.tensors import NewTensors, Place, TensorPlaces, TensorSpec, as_finite
from regard.models.families import family_of
from regard.models.hub import resolve
from regard.models.language import LanguageModel
from regard.models.task_heads import MaskedWordHead, masked_word_names, of_classifier
from regard.nn import parameters
from regard.nn.gradients import with_parameters
from regard.text import SubwordTokenizer
from regard.training.objectives import Objective, make_objective

_ALIGNED = 64  # bytes
_STD = 0.02
_LAST = ("o_proj.weight", "down_proj.weight", "down_weight")  # of a sublayer


class Trainable:
    """A model in training.

    Its tensors are those of the checkpoint, under the names and in the layout of Hugging Face, all in one flat array;
    the arrays of the model are views of them, or computed from them after each update. What decays comes first: what is
    no bias and no norm.

    Parameters
    ----------
    config : mapping
        The fields of config.json.
    tensors : mapping of str to array
        By their Hugging Face names; copied.
    tokenizer : SubwordTokenizer
    name : str
        Of the model.
    path : path, optional
        The folder it was loaded from, with the settings of generation and of the tokenizer, which `save` copies.
    dtype
        ``float32`` or ``float64``.

    Attributes
    ----------
    model : TextModel
        It changes while it is trained.
    objective : Objective
        The model with what it is trained for: from a batch to logits.
    values, gradient : array
        All numbers, and the gradient of each; flat.
    tensors : dict of str to array
        Views of `values`.
    decayed : int
        How many of the numbers, the first, decay.

    Raises
    ------
    RegardError
        The tensors do not fit the configuration; or the model has nothing that it is trained for.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        tensors: Mapping[str, np.ndarray],
        tokenizer: SubwordTokenizer,
        *,
        name: str,
        path: Path | None = None,
        dtype: Any = np.float32,
    ) -> None:
        if float_dtype(dtype) not in (np.float32, np.float64):
            raise RegardError(f"a model is trained in float32 or float64, not in {np.dtype(dtype)}")
        self._folder = path
        self.config = dict(config) | {"dtype": np.dtype(dtype).name}
        self.config.pop("torch_dtype", None)
        self.tokenizer = tokenizer
        names = sorted(tensors, key=lambda name: not _decays(name, tensors[name]))  # stable
        starts, end, self.decayed = {}, 0, 0
        for key in names:
            starts[key] = end
            aligned = _ALIGNED // np.dtype(dtype).itemsize
            end += -(-tensors[key].size // aligned) * aligned
            self.decayed = end if _decays(key, tensors[key]) else self.decayed
        self.values = native.aligned_zeros((end,), np.dtype(dtype))
        self.gradient = np.zeros_like(self.values)
        self.tensors = {key: self._view(self.values, starts[key], tensors[key].shape) for key in names}
        places = TensorPlaces(self.tensors)
        checkpoint = _Checkpoint(self.config, places, tokenizer, path)
        for key, x in self.tensors.items():
            x[...] = as_finite(tensors[key], x.dtype, key, checkpoint.path)
        skeleton = make_objective(_family_of(checkpoint).load(checkpoint, name=name, dtype=self.values.dtype))
        self._views: dict[str, np.ndarray] = {}  # of the gradient, by array: one for those that share memory
        self._parts: dict[str, tuple[Place, np.ndarray]] = {}  # of arrays that are computed: where in which gradient
        self._computed: dict[str, tuple[Place, np.ndarray]] = {}  # these arrays
        self.objective: Objective = self._made(skeleton, places)
        self.model = self.objective.model

    @staticmethod
    def _view(flat: np.ndarray, start: int, shape: tuple[int, ...]) -> np.ndarray:
        return flat[start : start + math.prod(shape)].reshape(shape)

    def _made(self, skeleton: Objective, places: TensorPlaces) -> Objective:
        """Return the objective with arrays of the tensors; those that no array is of, as a copied head, are removed."""
        arrays: dict[str, np.ndarray] = {}
        names: dict[Any, str] = {}
        gradients = self.by_tensor(self.gradient)
        for name, place in places.places(skeleton).items():
            if place is None:
                kind = self.config.get("model_type")
                raise RegardError(f"a model of type {kind} cannot be trained: {name} is computed from its tensors")
            tensor = self.tensors[place.stored]
            x = place.as_array(tensor)
            first = names.setdefault((place.stored, place.part), name)
            if place.spec.offset or not np.may_share_memory(x, tensor):
                self._computed.setdefault(first, (place, x + x.dtype.type(place.spec.offset)))
                other, x = self._computed[first]
                x = x if other.is_flipped == place.is_flipped else x.T
            arrays[name] = x
            if first != name or not x.size or place.spec.buffer:
                continue
            if name in self._computed:
                self._parts[name] = place, gradients[place.stored]
            else:
                self._views[name] = place.as_array(gradients[place.stored])
        used = {stored for stored, _ in names}
        self.tensors = {name: x for name, x in self.tensors.items() if name in used or not x.size}
        return with_parameters(skeleton, arrays)

    def zero_gradient(self) -> None:
        """Set the gradient to 0."""
        self.gradient[...] = 0

    def add_gradients(self, d_arrays: Mapping[str, np.ndarray]) -> None:
        """Add the gradients of the arrays of the objective, by name, to the flat gradient."""
        for name, view in self._views.items():
            ops.add(view, d_arrays[name], out=view)
        for name, (place, gradient) in self._parts.items():
            gradient[place.index] += place.as_stored(d_arrays[name])

    def update_computed(self) -> None:
        """Compute the arrays anew that are not views of tensors."""
        for place, x in self._computed.values():
            np.add(place.as_array(self.tensors[place.stored]), place.spec.offset, out=x, dtype=x.dtype)

    def assign(self, model: Any) -> None:
        """Copy the arrays of another model of the same kind, which may be quantized or in half precision.

        Raises
        ------
        RegardError
            It is of another family, or has another configuration or other arrays.
        """
        ours, theirs = parameters(self.model), parameters(model)
        if not isinstance(getattr(model, "task_head", None), MaskedWordHead):  # a classifier, or none: ours is new
            ours, theirs = (
                {n: x for n, x in each.items() if not n.startswith("task_head.")} for each in (ours, theirs)
            )
        shapes = [{name: x.shape for name, x in arrays.items()} for arrays in (ours, theirs)]
        if type(model) is not type(self.model) or model.config != self.model.config or shapes[0] != shapes[1]:
            raise RegardError(f"{model.name} is another model than the one stored under its name: give that folder")
        for name, x in theirs.items():
            np.copyto(np.asarray(ours[name]), np.asarray(x), casting="same_kind")
        for place, x in self._computed.values():
            tensor, offset = self.tensors[place.stored], x.dtype.type(place.spec.offset)
            before = place.as_array(tensor)
            tensor[place.index] = place.as_stored(np.where(before + offset == x, before, x - offset))

    def by_tensor(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return another flat array of the same layout as tensors, views of it."""
        first = _start(self.values)
        return {name: self._view(flat, (_start(x) - first) // x.itemsize, x.shape) for name, x in self.tensors.items()}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json, model.safetensors and the tokenizer, as transformers and `regard.load` read them."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        fields = {**self.config, "architectures": [self.objective.architecture]}
        write_json(path / "config.json", fields)
        write_safetensors(path / "model.safetensors", self.tensors, {"format": "pt"})
        write_beside_weights(path, self.tokenizer, self.config, self._folder)

    @classmethod
    def from_model(cls, model: Any, *, dtype: Any = np.float32, seed: int = 0) -> Trainable:
        """Return a loaded model, or that of a name or a folder, as one that can be trained: a copy in `dtype`.

        An encoder that was saved without its head for masked words gets a new one, drawn from `seed`.
        """
        if isinstance(model, Trainable):
            return model
        name, path = _stored(model)
        checkpoint = open_checkpoint(path)
        family = _family_of(checkpoint)  # before a tokenizer is missed
        config, places = checkpoint.config().fields, TensorPlaces(checkpoint.tensors())
        if not issubclass(family, LanguageModel):  # its head for masked words, not a classifier
            config["architectures"] = [masked_word_names(checkpoint).architecture]
        recorded = _Checkpoint(config, places, checkpoint.tokenizer(), path if path.is_dir() else None)
        loaded = family.load(recorded, name=name, dtype=np.dtype(dtype))
        tensors = {name: places[stored] for name, stored in places.placed.items()}
        if not isinstance(loaded, LanguageModel):
            head, new = masked_word_names(recorded), {}
            own = head.tensors(recorded, loaded)
            if not head.stored(recorded, own - of_classifier(checkpoint, own)):
                rng, std = np.random.default_rng(whole_number("seed", seed, 0)), config.get("initializer_range", _STD)
                drawn = NewTensors(lambda spec, _: _drawn(spec, rng, float(std)))
                head.load(_Checkpoint(config, drawn, recorded.tokenizer(), None), loaded, dtype)
                new = drawn.arrays
            elif getattr(loaded, "task_head", None) is None:  # a part of it is missing: an error, which names that
                head.load(recorded, loaded, dtype)
            tensors = {x if x in own else head.prefixes[0] + head.bare(x): tensors[x] for x in tensors} | new
        trainable = cls(config, tensors, recorded.tokenizer(), name=name, path=recorded.folder, dtype=dtype)
        if isinstance(model, TextModel):
            trainable.assign(model)
        return trainable


def new_model(
    config: Mapping[str, Any],
    tokenizer: SubwordTokenizer,
    *,
    seed: int = 0,
    dtype: Any = np.float32,
    name: str = "new model",
    std: float = _STD,
    embedding_std: float | None = None,
) -> Trainable:
    """Draw a new model.

    Matrices and tables are drawn from a normal distribution; in decoders those that end a sublayer, by 1 / √(2 L) less.
    Biases are 0 and norms 1. An encoder gets a head that predicts masked words.

    Parameters
    ----------
    config : mapping
        The fields of a Hugging Face config.json, with its ``model_type``.
    tokenizer : SubwordTokenizer
    seed : int
        The same seed draws the same model.
    dtype
        ``float32`` or ``float64``.
    name : str
    std : float
        The standard deviation.
    embedding_std : float, optional
        That of the token embedding, by default `std`; ``torch.nn.Embedding`` has 1.

    References
    ----------
    Radford et al. (2019), "Language models are unsupervised multitask learners", section 2.3.
    """
    rng = np.random.default_rng(whole_number("seed", seed, 0))

    def make(spec: TensorSpec, name: str) -> np.ndarray:
        if name == "token_embedding.weight" and embedding_std is not None:
            return rng.normal(0, embedding_std, spec.shape)
        return _drawn(spec, rng, last if name.endswith(_LAST) else std)

    tensors = NewTensors(make)
    checkpoint = _Checkpoint(config, tensors, tokenizer, None)
    family = _family_of(checkpoint)
    sizes = (config.get(size) for size in ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers"))
    layers = next((int(size) for size in sizes if size), 1)
    last = std / math.sqrt(2 * layers) if issubclass(family, LanguageModel) else std
    model = family.load(checkpoint, name=name, dtype=np.float64)
    if not isinstance(model, LanguageModel):
        head = masked_word_names(checkpoint)
        head.load(checkpoint, model, np.float64)
        config = {**config, "architectures": [head.architecture]}
    return Trainable(config, tensors.arrays, tokenizer, name=name, dtype=dtype)


def _drawn(spec: TensorSpec, rng: np.random.Generator, std: float) -> np.ndarray:
    """Return a new tensor: a matrix or table from a normal distribution, a bias of 0, a norm or another factor of 1."""
    if len(spec.shape) > 1 and not spec.hf_name.endswith("bias"):
        return rng.normal(0, std, spec.shape)
    is_factor = spec.hf_name.endswith(("weight", "scale", "scalar"))
    return np.full(spec.shape, 1 - spec.offset if is_factor else 0.0)


def _family_of(checkpoint: Any) -> type[TextModel]:
    """Return the family of a model of texts; an error for another."""
    family = family_of(checkpoint)
    if not issubclass(family, TextModel):
        raise RegardError(f"training is of models of texts; a {family.__name__} reads pictures")
    return family


def _stored(model: Any) -> tuple[str, Path]:
    """Return the name of a model, and where its checkpoint is.

    Raises
    ------
    RegardError
        It has none.
    """
    if not isinstance(model, TextModel):
        if not isinstance(model, str | os.PathLike):
            raise RegardError(
                f"a model to train is one of new_model, a loaded one, or the name or folder of one, got a "
                f"{type(model).__name__}"
            )
        return os.fspath(model), resolve.find(os.fspath(model))
    try:
        return model.name, resolve.find(model.name, download=False)
    except RegardError as error:
        raise RegardError(
            f"{model.name!r} is not stored under its name: give what new_model returned, which continues from where "
            "its training ended, or the folder of a checkpoint"
        ) from error


class _Checkpoint(FolderCheckpoint):
    """A checkpoint in memory; the settings of generation are those of a folder, if there is one."""

    def __init__(
        self, config: Mapping[str, Any], tensors: Any, tokenizer: SubwordTokenizer, folder: Path | None
    ) -> None:
        super().__init__(Path("model in training") if folder is None else folder)
        self.folder, self._config, self._tensors, self._tokenizer = folder, dict(config), tensors, tokenizer

    def config(self) -> ConfigReader:
        return ConfigReader(self._config, self.path)

    def tensors(self) -> Any:
        return self._tensors

    def tokenizer(self) -> SubwordTokenizer:
        return self._tokenizer


def _decays(name: str, x: np.ndarray) -> bool:
    """Whether a tensor decays: matrices and tables do, biases and norms do not."""
    return x.ndim > 1 and not name.endswith("bias")


def _start(x: np.ndarray) -> int:
    """Return the address of the first number."""
    return int(x.__array_interface__["data"][0])
