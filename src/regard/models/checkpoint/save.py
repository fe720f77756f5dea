"""Write a model as a folder that transformers and `regard.load` read: configuration, tensors, tokenizer.

The layers of a family state where each array stands in its checkpoint (`TensorPlaces`), so the arrays of a model are
written under the names and in the layout of the files that it was loaded from. What is in those files besides, such as
a head that is not run, is copied.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from regard._utils.errors import RegardError
from regard._utils.files import atomic_folder, atomic_write, read_file, read_json_object, write_json
from regard._utils.validation import whole_number
from regard.formats.safetensors import StreamedTensor, write_safetensors
from regard.models.checkpoint.open import Checkpoint, FolderCheckpoint, open_checkpoint
from regard.models.checkpoint.tensors import Place, TensorPlaces, Tensors
from regard.models.checkpoint.weight_files import INDEX
from regard.models.hub import resolve
from regard.models.pooling import DenseLayer
from regard.models.sentence import sentence_files, transformer_folder
from regard.nn import parameters
from regard.nn.layer import settings
from regard.text import SubwordTokenizer
from regard.text.id_tokenizer import IdTokenizer
from regard.text.subword_tokenizer import MASKS
from regard.text.tokenizer_config import CHAT_TEMPLATES, TokenizerFiles
from regard.text.words import join_names

_KINDS = {"float32": "F32", "bfloat16": "BF16", "float64": "F64"}
_PART = 1 << 20  # numbers that are written at a time
_COPIED = (
    *("generation_config.json", "chat_template.jinja", "special_tokens_map.json"),
    *("preprocessor_config.json", "processor_config.json"),  # of pictures
)
_SPECIAL = {
    "unk_token": ("<unknown>", "[UNK]"), "mask_token": MASKS, "cls_token": ("[CLS]",), "sep_token": ("[SEP]",),
}  # fmt: skip


class StoredPlaces:
    """The checkpoint of a model, and where in it each of its arrays stands.

    Parameters
    ----------
    model : PretrainedModel
        Loaded, and perhaps edited.

    Raises
    ------
    RegardError
        It is not stored under its name, or another model is.
    """

    def __init__(self, model: Any) -> None:
        try:
            path = resolve.find(model.name, download=False)
        except RegardError as error:
            raise RegardError(
                f"{model.name!r} is not stored under its name, by which its configuration is found again: {error}"
            ) from error
        self.checkpoint = open_checkpoint(path, getattr(model.config, "ignored", ()))
        self.folder: Path | None = None
        self.config = self.checkpoint.config().fields
        if isinstance(self.checkpoint, FolderCheckpoint):
            self.config = read_json_object(self.checkpoint.path / "config.json") or self.config
            self.folder = self.checkpoint.outer
            if not type(model).__module__.startswith("regard."):
                self.checkpoint.registered_type = self.config.get("model_type")
        self.tensors = TensorPlaces(self.checkpoint.tensors())
        self.skeleton = skeleton = type(model).load(_Places(self.checkpoint, self.tensors), name=model.name)
        self.arrays, expected = parameters(model), parameters(skeleton)
        shapes = [{name: x.shape for name, x in arrays.items()} for arrays in (self.arrays, expected)]
        if shapes[0] != shapes[1]:
            others = sorted(name for name in shapes[0].keys() | shapes[1] if shapes[0].get(name) != shapes[1].get(name))
            raise RegardError(
                f"{model.name} has other arrays than the files under its name: {join_names(others, 10)}; "
                "of a training, trainable.save writes them"
            )
        if model.config != skeleton.config:
            raise RegardError(f"{model.name} has another configuration than the files under its name: load it again")
        own, stored = settings(model), settings(skeleton)
        _refuse_settings(model, (name for name in own.keys() | stored if own.get(name, ...) != stored.get(name, ...)))
        self.places: dict[str, Place] = {}
        for name, place in self.tensors.places(skeleton).items():
            if place is None:
                raise RegardError(f"{model.name} cannot be saved: {name} is computed from its tensors")
            self.places[name] = place

    def check_unwritten(self, model: Any) -> None:
        """Raise RegardError if what is copied from the files, of vectors of texts and of generation, was replaced."""
        stored = {"forced": getattr(self.skeleton, "forced", None), "sentence": None}
        if hasattr(model, "sentence"):
            stored["sentence"] = self.checkpoint.sentence_settings()
        _refuse_settings(model, (name for name in stored if not _is_same(getattr(model, name, None), stored[name])))


def _refuse_settings(model: Any, others: Iterable[str]) -> None:
    if names := sorted(others):
        raise RegardError(
            f"{model.name} has other settings than the files under its name, in which they cannot be written: "
            f"{join_names(names, 10)}"
        )


def _is_same(a: Any, b: Any) -> bool:
    """Tell whether two values are of one type and equal, in all their parts."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    if is_dataclass(a) or isinstance(a, DenseLayer):
        return all(_is_same(value, vars(b).get(name)) for name, value in vars(a).items())
    return bool(a == b)


class _Places:
    """A checkpoint whose tensors are places; the rest is that of another one."""

    def __init__(self, checkpoint: Checkpoint, tensors: Tensors) -> None:
        self._checkpoint, self._tensors = checkpoint, tensors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._checkpoint, name)

    def tensors(self) -> Tensors:
        """Return the places."""
        return self._tensors


def save_model(model: Any, folder: Any, *, dtype: str = "float32", shard_bytes: int = 5_000_000_000) -> None:
    """Write a model; see `PretrainedModel.save`."""
    if dtype not in _KINDS:
        raise RegardError(f"dtype must be one of {', '.join(_KINDS)}, got {dtype!r}")
    shard_bytes = whole_number("shard_bytes", shard_bytes, 1)
    stored = StoredPlaces(model)
    stored.check_unwritten(model)
    tensors = _streamed(stored, _KINDS[dtype], model)
    config = {n: value for n, value in stored.config.items() if n not in ("torch_dtype", "quantization_config")}
    with atomic_folder(folder) as part:
        write_json(part / "config.json", {**config, "dtype": dtype})
        _write_shards(part, tensors, shard_bytes)
        tokenizer = getattr(getattr(model, "text", model), "tokenizer", None)
        write_beside_weights(part, tokenizer, config, stored.folder)


def _streamed(stored: StoredPlaces, kind: str, model: Any) -> dict[str, StreamedTensor]:
    """Return the tensors of a model by their names, each computed when it is written."""
    parts: dict[str, dict[Hashable, tuple[str, Place]]] = {}
    for name, place in stored.places.items():
        of_tensor = parts.setdefault(place.name, {})
        other, first = of_tensor.setdefault(place.part, (name, place))
        if not _are_equal(place.as_stored(stored.arrays[name]), first.as_stored(stored.arrays[other])):
            raise RegardError(f"{name} and {other} are one tensor in the files, {place.name}, but differ: set both")
    tensors: dict[str, StreamedTensor] = {}
    source, shapes = stored.tensors, stored.tensors.shapes
    for name, of_tensor in parts.items():
        arrays = [(place, stored.arrays[array]) for array, place in of_tensor.values()]
        compute = partial(_whole if None in of_tensor else _joined, arrays, source)
        tensors[name] = StreamedTensor(kind, shapes[arrays[0][0].stored], partial(_converted, compute, kind, name))
    copies = getattr(model.config, "vocab_size", None)
    used = set(stored.tensors.placed.values())
    for name, shape in shapes.items():
        if name in used or name in tensors:
            continue
        if shape[:1] == (copies,) and any(
            shapes[other] == shape and np.array_equal(source[name], source[other]) for other in used
        ):
            continue  # a second copy of a table or of its bias, which may have been edited
        x = source[name]
        if x.dtype.kind == "f":
            part = partial(_converted, partial(_stored, source, name), kind, name, may_be_infinite=True)
            tensors[name] = StreamedTensor(kind, shape, part)
    return tensors


def _are_equal(a: Any, b: Any) -> bool:
    if a is b or getattr(a, "blocks", a) is getattr(b, "blocks", b):
        return True
    addresses = [getattr(x, "blocks", x).__array_interface__["data"] for x in (a, b)]
    return addresses[0] == addresses[1] or np.array_equal(a, b)


def _whole(arrays: list[tuple[Place, Any]], _: Tensors) -> Iterator[np.ndarray]:
    """Yield the rows of a tensor that is one array, some at a time."""
    place, array = arrays[0]
    rows = place.as_stored(array)
    if rows.ndim < 2:
        yield np.asarray(rows) - place.spec.offset if place.spec.offset else np.asarray(rows)
        return
    step = max(1, _PART // max(1, rows.size // max(1, rows.shape[0])))
    for start in range(0, rows.shape[0], step):
        yield np.asarray(rows[start : start + step])


def _joined(arrays: list[tuple[Place, Any]], source: Tensors) -> Iterator[np.ndarray]:
    """Yield a tensor of which the arrays are parts; what none of them has stays as it is stored."""
    stored = source[arrays[0][0].stored]
    tensor = np.array(stored, np.result_type(stored, *(array.dtype for _, array in arrays)))
    for place, array in arrays:
        tensor[place.index] = place.as_stored(np.asarray(array)) - place.spec.offset
    yield tensor


def _stored(source: Tensors, name: str) -> Iterator[np.ndarray]:
    yield source[name]


def _converted(compute: Any, kind: str, name: str, *, may_be_infinite: bool = False) -> Iterator[np.ndarray]:
    """Yield parts of a tensor as they are written; one that is not run may be infinite, as a bound that is none."""
    for part in compute():
        with np.errstate(over="ignore"):
            x = np.asarray(part, np.float64 if kind == "F64" else np.float32)
        bounds = np.isinf(part) if may_be_infinite else False
        is_finite = (np.isfinite(x) | bounds).all()
        if kind == "BF16":
            bits: Any = np.ascontiguousarray(x).view(np.uint32)
            x = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)  # to nearest, ties to even
            is_finite &= (((x & 0x7F80) != 0x7F80) | bounds).all()
        if not is_finite:
            raise RegardError(f"{name} has numbers that are not finite in the dtype in which it is to be saved")
        yield x


def _write_shards(folder: Path, tensors: Mapping[str, StreamedTensor], shard_bytes: int) -> None:
    """Write model.safetensors, or several files and their index if there are more bytes than `shard_bytes`."""
    shards: list[dict[str, StreamedTensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    if len(shards) == 1:
        write_safetensors(folder / "model.safetensors", shards[0], {"format": "pt"})
        return
    files: dict[str, str] = {}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05}-of-{len(shards):05}.safetensors"
        write_safetensors(folder / file, shard, {"format": "pt"})
        files |= dict.fromkeys(shard, file)
    total = sum(tensor.nbytes for tensor in tensors.values())
    write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": files})


def write_beside_weights(
    folder: Path, tokenizer: SubwordTokenizer | None, config: Mapping[str, Any], source: Path | None
) -> None:
    """Write a tokenizer, and copy what a folder says of generation, chats, pictures and vectors of texts.

    Parameters
    ----------
    folder : path
        Where it is written.
    tokenizer : SubwordTokenizer, optional
    config : mapping
        The fields of config.json.
    source : path, optional
        The folder from which the model is.
    """
    if tokenizer is not None and not isinstance(tokenizer, IdTokenizer):
        with atomic_write(folder / "tokenizer.json") as stream:
            stream.write(tokenizer.backend.to_str(pretty=True).encode())
        write_json(folder / "tokenizer_config.json", _tokenizer_settings(tokenizer, config, source))
    if source is None:
        return
    inner = transformer_folder(source)
    named = [f"{CHAT_TEMPLATES}/{each.name}" for each in (inner / CHAT_TEMPLATES).glob("*.jinja")]
    copied = {name: content for name in (*_COPIED, *named) if (content := read_file(inner / name)) is not None}
    for name, content in {**copied, **sentence_files(source)}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        with atomic_write(folder / name) as stream:
            stream.write(content)


def _tokenizer_settings(tokenizer: SubwordTokenizer, config: Mapping[str, Any], source: Path | None) -> dict[str, Any]:
    """Return the settings of the folder that the model is from, and the special tokens."""
    backend, pad = tokenizer.backend, tokenizer.pad_id
    template = tokenizer.chat_template
    before: dict[str, Any] = {}
    if template is not None and template.source is not None:  # a GGUF file has it without settings
        before |= {**template.tokens, "chat_template": template.source}
    if source is not None:
        before |= TokenizerFiles(transformer_folder(source)).settings
    settings = {name: value for name, value in before.items() if name not in ("auto_map", "name_or_path")}
    for kind, names in _SPECIAL.items():
        present = [name for name in names if backend.token_to_id(name) is not None]
        if present and settings.get(kind) is None:
            settings[kind] = present[0]
    for kind in ("bos", "eos"):
        number = config.get(f"{kind}_token_id")
        token = backend.id_to_token(number) if isinstance(number, int) and number >= 0 else None
        if token is not None and settings.get(f"{kind}_token") is None:
            settings[f"{kind}_token"] = token
    if pad is not None:
        settings["pad_token"] = backend.id_to_token(pad)
    return {"clean_up_tokenization_spaces": False, **settings, "tokenizer_class": "PreTrainedTokenizerFast"}
