"""How a sentence model embeds a text, as the files of sentence-transformers beside it say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.files import read_file, read_json_object
from regard._utils.validation import short_name, truncate, whole_number
from regard.formats.safetensors import SafetensorsFile
from regard.models.checkpoint.config import ConfigReader
from regard.models.pooling import DENSE_ACTIVATIONS, MODES, DenseLayer, Pooling
from regard.text.encoding import Encoding
from regard.text.subword_tokenizer import SubwordTokenizer
from regard.text.tokenizer_config import TokenizerFiles
from regard.text.words import join_names

_LIBRARY = "sentence_transformers."
_MODULES = "modules.json"
_POOLING = "1_Pooling/config.json"
_TEXTS = "config_sentence_transformers.json"
# Next to the Transformer; the other names are those of the first versions.
_TRANSFORMER = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
SETTINGS_FILES = tuple(f"sentence_{kind}_config.json" for kind in _TRANSFORMER)
"""What the file with the settings of the Transformer may be called, in the order in which they are looked for."""
_POOLING_FIELDS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# Arguments for other libraries that change nothing of the vectors but their last digits.
_LOADING = ("cache_dir", "local_files_only", "revision", "token", "trust_remote_code")
_HARMLESS = {
    **dict.fromkeys(("model_args", "model_kwargs"), ("attn_implementation", "device_map", "dtype", "torch_dtype")),
    **dict.fromkeys(("config_args", "config_kwargs"), ()),
    **dict.fromkeys(("tokenizer_args", "processor_kwargs"), ("padding_side", "use_fast")),
    "processing_kwargs": (),
}
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_ONLY_TEXT = ({"text": {"method": "forward", "method_output_name": "last_hidden_state"}},)


@dataclass(frozen=True, eq=False)
class SentenceSettings:
    """What the files beside a model say of its vectors of texts.

    Parameters
    ----------
    pooling : Pooling, optional
        How the vectors of the tokens become one; None where the files do not say.
    max_length : int, optional
        The most tokens of a text, special ones included; None: as many as the model takes.
    prompts : mapping of str to str
        What is put before a text, by name.
    default_prompt_name : str, optional
        The prompt of a text for which none is named.
    lowercase : bool
        Whether texts are lower-cased before they are tokens, whatever the tokenizer does.
    similarity : str
        How two vectors are meant to be compared: ``"cosine"``, ``"dot"``, ``"euclidean"`` or ``"manhattan"``.
    problem : str, optional
        Why the vectors that the files describe cannot be computed.
    """

    pooling: Pooling | None = None
    max_length: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    lowercase: bool = False
    similarity: str = "cosine"
    problem: str | None = None

    def chosen_pooling(self, pooling: str | Pooling | None, name: str) -> Pooling:
        """Return the pooling that is given, else the model's own; an error if it has none."""
        if isinstance(pooling, str):
            return Pooling((pooling,))
        if not isinstance(pooling, Pooling | None):
            raise RegardError(f"pooling must be a Pooling or one of {', '.join(MODES)}, got {truncate(pooling)}")
        if pooling is None and self.problem is not None:
            raise RegardError(f"{self.problem}; give pooling, one of {', '.join(MODES)}, for vectors without it")
        if (effective := pooling or self.pooling) is None:
            raise RegardError(
                f"{name} has no default pooling: no modules.json and no 1_Pooling; give pooling, one of "
                f"{', '.join(MODES)}"
            )
        return effective

    def chosen_prompt(self, prompt: str | None, prompt_name: str | None) -> str:
        """Return the text that is put before each text; an error if there is no prompt of this name."""
        if prompt is not None and prompt_name is not None:
            raise RegardError("prompt= and prompt_name= are both given; give one of them")
        if prompt is not None:
            if not isinstance(prompt, str):
                raise RegardError(f"prompt is a str, got {truncate(prompt)}")
            return prompt
        if prompt_name is None:
            return "" if self.default_prompt_name is None else self.prompts[self.default_prompt_name]
        if not isinstance(prompt_name, str) or prompt_name not in self.prompts:
            names = join_names(self.prompts) if self.prompts else "none"
            raise RegardError(f"the model has no prompt {prompt_name!r}; known: {names}; prompt= takes any text")
        return self.prompts[prompt_name]


@dataclass(frozen=True, eq=False)
class SentenceReader:
    """Makes tokens of texts to be embedded: lower-cases them and puts a prompt before them as the model wants it.

    It has the part of a model that tokenizing a text needs.

    Parameters
    ----------
    name : str
        Of the model.
    model_tokenizer : Tokenizer
    max_length : int
        The most tokens of a text.
    prompt : str
    """

    name: str
    model_tokenizer: Any
    max_length: int
    prompt: str

    def tokenizer(self, text: str) -> Encoding:
        """Return a text after the prompt as tokens."""
        encoding: Encoding = self.model_tokenizer(self.prompt + text)
        return encoding

    def prompt_tokens(self, encoding: Encoding) -> int:
        """Return how many tokens at the beginning of a text are of the prompt and before it; 0 without a prompt."""
        if not self.prompt or not encoding.text.startswith(self.prompt):
            return 0
        alone: Encoding = self.model_tokenizer(self.prompt).truncated(self.max_length)
        return len(alone) - bool(len(alone) and alone.special_tokens_mask[-1])


def sentence_reader(
    model: Any, max_length: int | None = None, prompt: str | None = None, prompt_name: str | None = None
) -> SentenceReader:
    """Return what makes tokens of the texts that a model embeds; None stands for what its files say.

    An error if `max_length` is more than the model takes, or if it has no prompt of this name.
    """
    settings: SentenceSettings = model.sentence
    if max_length is None:
        limit = min(model.max_length, settings.max_length or model.max_length)
    elif (limit := whole_number("max_length", max_length, 1)) > model.max_length:
        raise RegardError(f"max_length is {limit}, but {model.name} accepts at most {model.max_length} tokens")
    tokenizer = model.tokenizer
    if settings.lowercase and isinstance(tokenizer, SubwordTokenizer):
        tokenizer = tokenizer.lowercased
    return SentenceReader(model.name, tokenizer, limit, settings.chosen_prompt(prompt, prompt_name))


# The files.


def transformer_folder(folder: Path) -> Path:
    """Return the folder of the Transformer of a sentence model, which in the first versions is one inside `folder`."""
    try:
        modules = _modules(folder) or [("", "")]
    except RegardError:
        return folder  # `read_sentence_settings` tells
    kind, inner = modules[0]
    is_one = kind == "Transformer" and inner != "" and _is_folder_name(inner)
    return folder / inner if is_one and (folder / inner / "config.json").is_file() else folder


def read_sentence_settings(folder: Path) -> SentenceSettings:
    """Return what the files of a sentence model in `folder` say; empty settings for another model.

    ``modules.json`` lists the steps: Transformer, Pooling, any number of Dense, and Normalize if vectors are scaled to
    length 1. With ``1_Pooling/config.json`` alone, as in packages with a part of the files, vectors are scaled to
    length 1, as most sentence models do; cosine similarities are the same either way. Next to the Transformer
    ``sentence_bert_config.json`` has the most tokens, ``config_sentence_transformers.json`` the prompts. What
    cannot be computed or read is the `problem` of the settings.

    References
    ----------
    Reimers and Gurevych (2019), "Sentence-BERT", https://arxiv.org/abs/1908.10084, and the library of the authors.
    """
    try:
        steps, inner = _steps(folder)
        settings = SentenceSettings(pooling=_pooling(folder, steps))
        return _with_texts(_with_transformer(settings, folder, inner), folder)
    except RegardError as error:
        return SentenceSettings(problem=f"the vectors of the model in {folder} cannot be computed: {error}")


def sentence_files(folder: Path) -> dict[str, bytes]:
    """Return the files in `folder` that say how it embeds texts by their names, weights of Dense among them.

    They are those of a folder that has the Transformer itself.
    """
    names = {name: name for name in (_POOLING, _TEXTS)}
    try:
        (steps, inner), modules = _steps(folder), json.loads(read_file(folder / _MODULES) or b"null")
    except RegardError:
        steps, inner, modules = [], "", None  # what cannot be computed is not copied
    names |= {f"{at}/{file}": f"{at}/{file}" for _, at in steps if at for file in ("config.json", "model.safetensors")}
    names |= {name: f"{inner}/{name}".lstrip("/") for name in SETTINGS_FILES}
    contents = {name: content for name, at in names.items() if (content := read_file(folder / at)) is not None}
    if modules is not None:
        flat = [{**module, "path": ""} if module["path"] == inner else module for module in modules]
        contents[_MODULES] = json.dumps(flat, indent=2).encode()
    return contents


def _modules(folder: Path) -> list[tuple[str, str]] | None:
    """Return the kind and the folder of each module; the kind of one that is not the library's is its whole name."""
    content = read_file(folder / _MODULES)
    if content is None:
        return None
    try:
        modules = json.loads(content.decode())
        names = [(str(module["type"]), str(module["path"])) for module in modules]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RegardError(f"{folder / _MODULES} is not a list of modules: {truncate(error)}; fetch it again") from error
    return [(kind.rpartition(".")[2] if kind.startswith(_LIBRARY) else kind, inner) for kind, inner in names]


def _is_folder_name(name: str) -> bool:
    """Tell whether it names a folder inside another one, or "" that one."""
    return Path(name).name == name != ".."


def _steps(folder: Path) -> tuple[list[tuple[str, str]], str]:
    """Return the modules after the Transformer, kind and folder of each, and the folder of the Transformer."""
    steps, path = _modules(folder), folder / _MODULES
    if steps is None:
        there = read_file(folder / _POOLING) is not None
        return ([("Pooling", "1_Pooling"), ("Normalize", "")] if there else []), ""
    steps = [step for step in steps if step[0] != "Dropout"]  # which drops nothing when a model is used
    kinds = [kind for kind, _ in steps]
    after = kinds[2:-1] if kinds[-1:] == ["Normalize"] else kinds[2:]
    if kinds[:2] != ["Transformer", "Pooling"] or set(after) - {"Dense"}:
        raise RegardError(
            f"{path} lists the modules {join_names(map(short_name, kinds)) or 'none'}; supported: a Transformer, a "
            "Pooling after it, then any number of Dense, and optionally a Normalize"
        )
    for kind, name in steps:  # a folder of the model, not a path
        if not _is_folder_name(name) or (kind in ("Pooling", "Dense") and not name):
            raise RegardError(
                f"{path} gives {truncate(name)} as the folder of its {kind}; it must be a folder next to it"
            )
    inner = steps[0][1]
    if inner and not (folder / inner / "config.json").is_file():
        raise RegardError(
            f"{path} gives {short_name(inner)} as the folder of its Transformer, which has no config.json"
        )
    return steps[1:], inner


def _pooling(folder: Path, steps: list[tuple[str, str]]) -> Pooling | None:
    if not steps:
        return None
    pooling = _read_pooling(folder / steps[0][1] / "config.json")
    dense = tuple(_read_dense(folder / name) for kind, name in steps if kind == "Dense")
    return replace(pooling, normalize=steps[-1][0] == "Normalize", dense=dense)


def _read_pooling(path: Path) -> Pooling:
    reader = ConfigReader.open(path)
    for name in ("word_embedding_dimension", "embedding_dimension"):
        if reader.peek(name) is not None:
            reader.count(name)  # the width of the model is used
    include_prompt = reader.flag("include_prompt", True)
    flags = [mode for name, mode in _POOLING_FIELDS.items() if reader.choice(name, False, [False, True])]
    named: Any = reader.take("pooling_mode")  # which counts alone, where it is there
    modes = []
    for mode in named if isinstance(named, list) else [named] * (named is not None):
        kind = "mean_sqrt_len" if mode == "mean_sqrt_len_tokens" else mode
        reader.require(isinstance(kind, str) and kind in MODES, f"pooling_mode={truncate(mode)} is not supported")
        modes.append(kind)
    reader.finish()
    return Pooling(tuple(modes or flags or ["mean"]), include_prompt=include_prompt)


def _read_dense(folder: Path) -> DenseLayer:
    reader = ConfigReader.open(folder / "config.json")
    shape = reader.count("out_features"), reader.count("in_features")
    has_bias = reader.flag("bias", True)
    path = str(reader.take("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = path.rpartition(".")[2]
    is_known = path.startswith("torch.nn.") and activation in DENSE_ACTIVATIONS
    reader.require(is_known, f"activation_function={truncate(path)} is not supported")
    reader.only(use_residual=False)
    for name in ("module_input_name", "module_output_name"):
        reader.choice(name, None, [None, "sentence_embedding"])
    reader.finish()
    stored = folder / "model.safetensors"
    if not stored.exists():
        raise RegardError(f"there is no {stored}: the weights of a Dense are read only from safetensors")
    file = SafetensorsFile(stored)
    shapes = {"linear.weight": shape, **({"linear.bias": shape[:1]} if has_bias else {})}
    if dict(file.shapes) != shapes:
        raise RegardError(f"{stored} has the tensors {truncate(dict(file.shapes))}, and its config.json says {shapes}")
    return DenseLayer(file["linear.weight"].T, file["linear.bias"] if has_bias else None, activation)


def _with_transformer(settings: SentenceSettings, folder: Path, inner: str) -> SentenceSettings:
    """Add what the file beside the Transformer says: the most tokens, and whether texts are lower-cased."""
    paths = (folder / inner / name for name in SETTINGS_FILES)
    path, fields = next(((path, each) for path in paths if (each := read_json_object(path)) is not None), (folder, {}))
    reader = ConfigReader(fields, path)
    max_length = reader.optional_count("max_seq_length")
    lowercase = reader.flag("do_lower_case", False)
    reader.choice("transformer_task", None, [None, "feature-extraction"])
    reader.choice("modality_config", None, [None, *_ONLY_TEXT])
    reader.choice("module_output_name", None, [None, "token_embeddings"])
    reader.without_effect("unpad_inputs", "backend")
    for kind, harmless in _HARMLESS.items():
        options = reader.take(kind) or {}
        changing = set(options) - {*harmless, *_LOADING} if isinstance(options, dict) else {kind}
        reader.require(not changing, f"{kind} with {join_names(map(short_name, sorted(changing)))} is not supported")
    tokenizer = TokenizerFiles(folder / inner).settings
    side = tokenizer.get("truncation_side")
    reader.require(side in (None, "right"), f"truncation_side={truncate(side)} is not supported")
    reader.finish()
    if max_length is None:
        max_length = _tokenizer_limit(tokenizer)
    return replace(settings, max_length=max_length, lowercase=lowercase)


def _tokenizer_limit(settings: Mapping[str, Any]) -> int | None:
    """Return the most tokens that a tokenizer_config.json gives; transformers writes 1e30 where there is no limit."""
    limit = settings.get("model_max_length")
    is_one = isinstance(limit, int) and not isinstance(limit, bool) and 0 < limit < 1e9
    return limit if is_one else None


def _with_texts(settings: SentenceSettings, folder: Path) -> SentenceSettings:
    """Add what config_sentence_transformers.json says: prompts, and how vectors are compared."""
    path = folder / _TEXTS
    reader = ConfigReader(read_json_object(path) or {}, path)
    reader.without_effect("__version__", "model_type")
    prompts, default = reader.take("prompts") or {}, reader.take("default_prompt_name")
    similarity = reader.choice("similarity_fn_name", None, [None, *_SIMILARITIES]) or "cosine"
    truncate_dim = reader.optional_count("truncate_dim")
    reader.finish()
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise RegardError(f"prompts in {path} must be texts by name")
    prompts = {"query": "", "document": "", **{key: text or "" for key, text in prompts.items()}}  # as every model has
    if default is not None and default not in prompts:
        raise RegardError(f"{path} names {truncate(default)} as its default prompt, which it does not have")
    pooling = settings.pooling and replace(settings.pooling, truncate_dim=truncate_dim)
    return replace(settings, pooling=pooling, prompts=prompts, default_prompt_name=default, similarity=similarity)
