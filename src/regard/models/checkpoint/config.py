"""Read a checkpoint's config.json strictly: every unknown field or value is an error, unless it is to be ignored."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard._utils.validation import escape, truncate
from regard.functional.activation import ACTIVATIONS
from regard.models.checkpoint.known_fields import ALIASES, COMMON, DEFAULTS, FIELDS, TRANSFORMERS

# Fields that do not affect the hidden states: origin of the weights, training, generation, labels of classes, pooler,
# ids of tokens that the tokenizer knows, and the way to compute the same numbers.
IGNORED_FIELDS = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _attn_implementation_internal _commit_hash _model_name_or_path
    _name_or_path _num_labels architectures attention_dropout attention_probs_dropout_prob attn_implementation auto_map
    bad_words_ids begin_suppress_tokens bos_token_id chunk_size_feed_forward classifier_dropout cls_token_id
    decoder_start_token_id directionality diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size
    eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id
    gradient_checkpointing hidden_dropout_prob id2label initializer_range label2id length_penalty mask_token_id
    max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences
    output_attentions output_hidden_states output_past output_scores pad_token_id pooler_fc_size
    pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type prefix problem_type
    remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens
    task_specific_params temperature tf_legacy_loss tie_word_embeddings tokenizer_class top_k top_p torch_dtype
    torchscript transformers.js_config transformers_version typical_p unk_token_id unsloth_fixed unsloth_version
    use_bfloat16 use_cache
    """.split()  # noqa: SIM905
)


_MAX_COUNT = 2**31 - 1
# Fields of older versions that changed the numbers of some models.
_OLDER = frozenset(
    """
    add_cross_attention auto_map compression_config cross_attention_hidden_size is_decoder position_embedding_type
    pruned_heads rope_interleaved rotary_emb_base rotary_pct tie_encoder_decoder use_sliding_window
    """.split()  # noqa: SIM905
)


class ConfigReader:
    """Reads the fields of config.json at `path` one by one, and reports all problems at once.

    Fields have the names, and absent ones the defaults, of transformers' class for the model type. The unknown fields
    `ignore` are not problem; if it is None, none can be ignored. A `model_type` for which a family outside regard is
    registered is read as that of the family from which it derives. With a list `ignored`, a field that transformers
    does not have either, so that it changes nothing there, is not a problem, and is added to that.
    """

    def __init__(
        self,
        fields: dict[str, Any],
        path: str | Path,
        ignore: Collection[str] | None = None,
        registered_type: str | None = None,
        ignored: list[str] | None = None,
    ) -> None:
        self._aliases = _of_type(ALIASES, fields)
        self._fields = _standardized(fields, self._aliases)
        self._inert = None if ignored is None else _Inert(fields, ignored, fields.get("transformers_version"))
        self._registered_type = registered_type
        self._path = path
        self._ignore = ignore
        self._problems: list[str] = []

    @classmethod
    def open(
        cls,
        path: Path,
        ignore: Collection[str] | None = None,
        registered_type: str | None = None,
        ignored: list[str] | None = None,
    ) -> ConfigReader:
        """Read config.json at `path`."""
        fields = read_json_object(path)
        if fields is None:
            raise RegardError(f"there is no {path.name} in {path.parent}: not the folder of a model")
        return cls(fields, path, ignore, registered_type, ignored)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that were not read yet; of a new reader, all."""
        return dict(self._fields)

    def nested(self, name: str, fields: dict[str, Any]) -> ConfigReader:
        """Return a reader of the object `name`, which has these fields; those to be ignored may be there too."""
        ignored = None if self._ignore is None else [field for field in self._ignore if field in fields]
        if ignored:
            self._ignore = [field for field in self._ignore or () if field not in ignored]
        reader = ConfigReader(fields, f"{name} of {self._path}", ignored)
        if self._inert is not None:
            reader._inert = _Inert(fields, self._inert.noted, self._inert.version)
        return reader

    def peek(self, name: str) -> Any:
        """Return the value of a field, or None, without reading it."""
        return self._fields.get(name)

    def put(self, name: str, value: Any) -> None:
        """Set a field, when another file overrides it."""
        self._fields[name] = value

    def count(self, name: str, default: int | None = None) -> int:
        """Read a whole number of at least 1, which fits into 32 bits: a few of them multiplied fit into 64."""
        value = self._fields.pop(name, default)
        if type(value) is not int or value < 1:
            self._problems.append(f"{name} must be a whole number of at least 1, got {value!r}")
            return 1
        if value > _MAX_COUNT:
            self._problems.append(f"{name} must be at most {_MAX_COUNT}, got {truncate(value)}")
            return 1
        return value

    def width(self, name: str) -> int:
        """Read a whole number of at least 0."""
        if type(self._fields.get(name)) is int and self._fields[name] == 0:
            return int(self._fields.pop(name))
        return self.count(name)

    def index(self, name: str, default: int | None, size: int) -> int:
        """Read a whole number from 0 to `size` − 1."""
        value = self._fields.pop(name, default)
        if type(value) is not int or not 0 <= value < size:
            self._problems.append(f"{name} must be a whole number from 0 to {size - 1}, got {value!r}")
            return 0
        return value

    def optional_count(self, name: str, default: int | None = None) -> int | None:
        """Read a whole number of at least 1, or None."""
        is_none = self._fields.get(name, default) is None
        return self._fields.pop(name, None) if is_none else self.count(name, default)

    def flag(self, name: str, default: bool) -> bool:
        """Read True or False."""
        value = self._fields.pop(name, default)
        if not isinstance(value, bool):
            self._problems.append(f"{name} must be true or false, got {value!r}")
            return default
        return value

    def optional_positive(self, name: str, default: float | None = None) -> float | None:
        """Read a number above 0, or None."""
        is_none = self._fields.get(name, default) is None
        return self._fields.pop(name, None) if is_none else self.positive(name, default or 1.0)

    def take(self, name: str, default: Any = None) -> Any:
        """Read a value without validation, which is left to `require`."""
        return self._fields.pop(name, default)

    def positive(self, name: str, default: float) -> float:
        """Read a number above 0."""
        value = self._fields.pop(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            self._problems.append(f"{name} must be a number above 0, got {value!r}")
            return default
        return float(value)

    def choice(self, name: str, default: Any, allowed: Collection[Any]) -> Any:
        """Read one of the supported values."""
        value = self._fields.pop(name, default)
        if name == "model_type" and value is not None and value == self._registered_type:
            return default if value not in allowed else value
        if not any(value == known and type(value) is type(known) for known in allowed):
            known = ", ".join(repr(a) for a in allowed)
            self._problems.append(f"{name}={value!r} is not supported (supported: {known})")
            return default
        return value

    def only(self, **values: Any) -> None:
        """Read fields of which one value is supported, which is also the default."""
        for name, value in values.items():
            self.choice(name, value, [value])

    def activation(self, name: str, default: str) -> str:
        """Read the name of an activation of `regard.functional.activation`."""
        return str(self.choice(name, default, ACTIVATIONS))

    def ignore(self, *names: str) -> None:
        """Read fields of this family that do not affect the hidden states."""
        for name in names:
            self._fields.pop(name, None)

    def splits(self, name: str, width: int, num_heads: int) -> None:
        """Report a problem unless `width`, the value of the field `name`, splits into heads."""
        self.require(width % num_heads == 0, f"{name} {width} does not split into {num_heads} attention heads")

    def require(self, fits: bool, problem: str) -> None:
        """Report `problem` unless `fits`."""
        if not fits:
            self._problems.append(problem)

    def finish(self) -> None:
        """Raise an error that names all problems and every field that was not read, if there are any."""
        ignore = self._ignore or ()
        given = {name for name, value in self._fields.items() if value is not None}
        unknown = sorted(given - IGNORED_FIELDS - set(ignore))
        contradictions = [name for name in unknown if name in self._aliases]
        unknown = [name for name in unknown if name not in self._aliases]
        if self._inert is not None:
            unknown = [name for name in unknown if not self._inert.note(name)]
        problems = self._problems + [
            f"{name}={truncate(self._fields[name])} is another name of {self._aliases[name]}, which has another value; "
            "remove one"
            for name in contradictions
        ]
        problems += [f"unknown field {name}={truncate(self._fields[name])}" for name in unknown]
        for name in ignore:
            if name not in self._fields:
                problems.append(f"ignore names {truncate(name)}, which is not an unknown field of the configuration")
        if unknown and self._ignore is not None:
            options = " ".join(f"--ignore {name}" for name in unknown)
            these = "these fields change" if len(unknown) > 1 else "this field changes"
            problems.append(f"pass load(..., ignore={[*ignore, *unknown]}), or {options}, if {these} nothing")
        if problems:
            raise RegardError(f"cannot run the model of {self._path}: {escape('; '.join(problems))}")


def _of_type(table: Mapping[str, Mapping[str, Any]], fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of a table for the model type of a configuration; empty if it has none."""
    model_type = fields.get("model_type")
    return table.get(model_type, {}) if isinstance(model_type, str) else {}


def _standardized(fields: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Return fields by their first names, with defaults of absent ones; an alias with another value stays an alias."""
    found = {**_of_type(DEFAULTS, fields), **{name: fields[name] for name in fields if name not in aliases}}
    for alias, name in aliases.items():
        value, first = fields.get(alias), fields.get(name)
        if value is not None and value != first:
            found[name if first is None else alias] = value
    return found


class _Inert:
    """Tells which fields of a configuration change nothing in transformers, and notes them.

    They are those that its class for the model type does not have. Nothing is known of a file by a newer version than
    the one that was read, nor of a model with code of its own.
    """

    def __init__(self, fields: dict[str, Any], noted: list[str], version: Any) -> None:
        self.noted, self.version, model_type = noted, version, fields.get("model_type")
        own_code = isinstance(fields.get("auto_map"), dict) and any("Model" in name for name in fields["auto_map"])
        names = FIELDS.get(model_type) if isinstance(model_type, str) else None
        is_known = names is not None and not own_code and not _is_newer(version)
        self._has = frozenset(f"{COMMON} {names}".split()) | _OLDER if is_known else None

    def note(self, name: str) -> bool:
        """Return whether a field changes nothing."""
        is_inert = self._has is not None and name not in self._has
        if is_inert and name not in self.noted:
            self.noted.append(name)
        return is_inert


def _is_newer(version: Any) -> bool:
    """Return whether a version of transformers is newer than the one whose classes were read."""
    numbers = [[int(x[:9]) for x in re.findall(r"\d+", str(each))[:2]] for each in (version, TRANSFORMERS)]
    return numbers[0] > numbers[1]
