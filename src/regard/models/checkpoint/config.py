"""Read a checkpoint's config.json strictly: every unknown field or value is an error, unless it is to be ignored."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from regard._utils.errors import RegardError
from regard._utils.files import read_json_object
from regard._utils.validation import escape, short_name, truncate
from regard.functional.activation import ACTIVATIONS
from regard.models.checkpoint.known_fields import ALIASES, COMMON, DEFAULTS, FIELDS, TRANSFORMERS

WITHOUT_EFFECT = frozenset(
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
"""Fields that do not affect the hidden states in any family.

Origin of the weights, training, generation, labels of classes, pooler, ids of tokens that the tokenizer knows, and the
way to compute the same numbers.
"""

_MAX_COUNT = 2**31 - 1
_MAX_UNKNOWN = 20  # fields in a message
_MAX_PROBLEM = 800  # characters; the longest lists of supported values have some 400
MAX_LAYERS, MAX_EXPERTS = 10_000, 4096  # several times those of any model
# What configurations of all models say in older versions, without effect at these values.
_OFF: Mapping[str, Any] = MappingProxyType(
    {"add_cross_attention": False, "is_decoder": False, "pruned_heads": {}, "tie_encoder_decoder": False}
)
# Fields of older versions that changed the numbers of some models.
_OLDER = frozenset(
    """
    add_cross_attention auto_map compression_config cross_attention_hidden_size is_decoder position_embedding_type
    pruned_heads rope_interleaved rotary_emb_base rotary_pct tie_encoder_decoder use_sliding_window
    """.split()  # noqa: SIM905
)


class ConfigReader:
    """Reads the fields of config.json at `path` one by one, and reports all problems at once.

    Fields have the names, and absent ones the defaults, of transformers' class for the model type. A field that is not
    read is a problem, unless it is one of these:

    - without effect: what `WITHOUT_EFFECT` has, and what a family names by `without_effect`. These do not affect the
      hidden states: they are for training, for the heads of tasks, or for how the same numbers are computed. Or what
      would have an effect is off;
    - ignored: transformers does not have it either, so that it changes nothing there. It is added to the list
      `ignored`; without that list it is a problem;
    - to be ignored: the caller says, with `ignore`, that it changes nothing. None: nothing can be ignored.

    A `model_type` for which a family outside regard is registered is read as that of the family from which it derives.

    With `keys`, what fields are called in a file of another format, no default of transformers counts: what is absent
    is off, and a problem where the default is a value.
    """

    def __init__(
        self,
        fields: dict[str, Any],
        path: str | Path,
        ignore: Collection[str] | None = None,
        registered_type: str | None = None,
        ignored: list[str] | None = None,
        keys: Mapping[str, str] | None = None,
    ) -> None:
        self._aliases, self._keys = _of_type(ALIASES, fields), keys
        self._fields = _standardized(fields, self._aliases, _of_type(DEFAULTS, fields) if keys is None else {})
        self._ignored = None if ignored is None else _Ignored(fields, ignored, fields.get("transformers_version"))
        self._without_effect = WITHOUT_EFFECT
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
        ignore = None if self._ignore is None else [field for field in self._ignore if field in fields]
        if ignore:
            self._ignore = [field for field in self._ignore or () if field not in ignore]
        reader = ConfigReader(fields, f"{name} of {self._path}", ignore)
        if self._ignored is not None:
            reader._ignored = _Ignored(fields, self._ignored.names, self._ignored.version)
        return reader

    def peek(self, name: str) -> Any:
        """Return the value of a field, or None, without reading it."""
        return self._fields.get(name)

    def put(self, name: str, value: Any) -> None:
        """Set a field, when another file overrides it."""
        self._fields[name] = value

    def count(self, name: str, default: int | None = None) -> int:
        """Read a whole number of at least 1, which fits into 32 bits: a few of them multiplied fit into 64."""
        return self._whole(name, default, 1)

    def _whole(self, name: str, default: int | None, least: int) -> int:
        value = self._pop(name, default)
        if type(value) is not int or value < least:
            self._report(f"{self._label(name)} must be a whole number of at least {least}, got {truncate(value)}")
            return least
        if value > _MAX_COUNT:
            self._report(f"{name} must be at most {_MAX_COUNT}, got {truncate(value)}")
            return least
        return value

    def num_layers(self, name: str, default: int | None = None) -> int:
        """Read a number of layers, at most `MAX_LAYERS`: there is an object for each."""
        layers = self.count(name, default)
        self.require(layers <= MAX_LAYERS, f"{name} {layers} is more than the maximum of {MAX_LAYERS}")
        return layers if layers <= MAX_LAYERS else 1

    def width(self, name: str, default: int | None = None) -> int:
        """Read a whole number of at least 0; with a default, None is absent."""
        if default is not None and self._fields.get(name) is None:
            self._fields.pop(name, None)
        return self._whole(name, default, 0)

    def integer(self, name: str, default: int) -> int:
        """Read a whole number."""
        value = self._pop(name, default)
        if type(value) is not int:
            self._report(f"{name} must be a whole number, got {truncate(value)}")
            return default
        return value

    def index(self, name: str, default: int | None, size: int) -> int:
        """Read a whole number from 0 to `size` − 1."""
        value = self._pop(name, default)
        if type(value) is not int or not 0 <= value < size:
            self._report(f"{name} must be a whole number from 0 to {size - 1}, got {truncate(value)}")
            return 0
        return value

    def optional_count(self, name: str, default: int | None = None) -> int | None:
        """Read a whole number of at least 1, or None."""
        is_none = self._fields.get(name, default if self._keys is None else None) is None
        return self._fields.pop(name, None) if is_none else self.count(name, default)

    def flag(self, name: str, default: bool) -> bool:
        """Read True or False."""
        value = self._pop(name, default)
        if not isinstance(value, bool):
            self._report(f"{name} must be true or false, got {truncate(value)}")
            return default
        return value

    def optional_positive(self, name: str, default: float | None = None) -> float | None:
        """Read a number above 0, or None."""
        is_none = self._fields.get(name, default if self._keys is None else None) is None
        return self._fields.pop(name, None) if is_none else self.positive(name, default or 1.0)

    def take(self, name: str, default: Any = None) -> Any:
        """Read a value without validation, which is left to `require`."""
        return self._fields.pop(name, default)

    def positive(self, name: str, default: float) -> float:
        """Read a number above 0."""
        value = self._pop(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            self._report(f"{name} must be a number above 0, got {truncate(value)}")
            return default
        return float(value)

    def choice(self, name: str, default: Any, allowed: Collection[Any]) -> Any:
        """Read one of the supported values."""
        value = self._pop(name, default) if len(allowed) > 1 else self._fields.pop(name, default)
        if name == "model_type" and value is not None and value == self._registered_type:
            return default if value not in allowed else value
        if not any(value == each and type(value) is type(each) for each in allowed):
            supported = ", ".join(repr(a) for a in allowed)
            self._report(f"{name}={truncate(value)} is not supported (supported: {supported})")
            return default
        return value

    def only(self, **values: Any) -> None:
        """Read fields of which one value is supported, which is also the default."""
        for name, value in values.items():
            self.choice(name, value, [value])

    def activation(self, name: str, default: str) -> str:
        """Read the name of an activation of `regard.functional.activation`."""
        return str(self.choice(name, default, ACTIVATIONS))

    def without_effect(self, *names: str) -> None:
        """State which other fields of this family do not affect the hidden states."""
        self._without_effect |= {*names}

    def leave_out(self, *names: str) -> None:
        """Read the fields of a part that is not run; they are listed with those that are ignored."""
        for name in names:
            if self._fields.pop(name, None) is not None and self._ignored and name not in self._ignored.names:
                self._ignored.names.append(name)

    def splits(self, name: str, width: int, num_heads: int) -> None:
        """Report a problem unless `width`, the value of the field `name`, splits into heads."""
        self.require(width % num_heads == 0, f"{name} {width} does not split into {num_heads} attention heads")

    def require(self, fits: bool, problem: str) -> None:
        """Report `problem` unless `fits`."""
        if not fits:
            self._report(problem)

    def _pop(self, name: str, default: Any) -> Any:
        """Return a field, which is read then, or its default."""
        if self._keys is not None and name not in self._fields and default is not None and default is not False:
            self._report(f"{self._label(name)} is missing")
        return self._fields.pop(name, default)

    def _label(self, name: str) -> str:
        """Return the name of a field, with what it is called in the file."""
        return f"{name} ({self._keys[name]})" if self._keys and name in self._keys else name

    def _report(self, problem: str) -> None:
        """Note a problem, without the middle of the value that it has where that is long."""
        half = _MAX_PROBLEM // 2
        self._problems.append(problem if len(problem) <= 2 * half else f"{problem[:half]} ... {problem[-half:]}")

    def finish(self) -> None:
        """Raise an error that names all problems and every field that was not read, if there are any."""
        ignore = self._ignore or ()
        off = {name for name, value in _OFF.items() if self._fields.get(name) == value}
        unread = {name for name, value in self._fields.items() if value is not None} - off - self._without_effect
        unknown = sorted(unread - set(ignore))
        contradictions = [name for name in unknown if name in self._aliases]
        unknown = [name for name in unknown if name not in self._aliases]
        if self._ignored is not None:
            unknown = [name for name in unknown if not self._ignored.add(name)]
        problems = self._problems + [
            f"{name}={truncate(self._fields[name])} is another name of {self._aliases[name]}, which has another value; "
            "remove one"
            for name in contradictions
        ]
        problems += [
            f"unknown field {short_name(name)}={truncate(self._fields[name])}" for name in unknown[:_MAX_UNKNOWN]
        ]
        if len(unknown) > _MAX_UNKNOWN:
            problems.append(f"{len(unknown) - _MAX_UNKNOWN} more unknown fields")
        ignored = self._ignored.names if self._ignored is not None else ()
        for name in ignore:
            if name not in unread and name not in ignored:
                problems.append(f"ignore names {truncate(name)}, which is not an unknown field of the configuration")
        are_typeable = len(unknown) <= _MAX_UNKNOWN and all(short_name(name) == name for name in unknown)
        if unknown and are_typeable and self._ignore is not None:
            options = " ".join(f"--ignore {name}" for name in unknown)
            these = "these fields change" if len(unknown) > 1 else "this field changes"
            problems.append(f"pass load(..., ignore={[*ignore, *unknown]}), or {options}, if {these} nothing")
        if problems:
            raise RegardError(f"cannot run the model of {self._path}: {escape('; '.join(problems))}")


def _of_type(table: Mapping[str, Mapping[str, Any]], fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of a table for the model type of a configuration; empty if it has none."""
    model_type = fields.get("model_type")
    return table.get(model_type, {}) if isinstance(model_type, str) else {}


def _standardized(fields: Mapping[str, Any], aliases: Mapping[str, str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields by their first names, with defaults of absent ones; an alias with another value stays an alias."""
    standardized = {**defaults, **{name: fields[name] for name in fields if name not in aliases}}
    for alias, name in aliases.items():
        value, first = fields.get(alias), fields.get(name)
        if value is not None and value != first:
            standardized[name if first is None else alias] = value
    return standardized


class _Ignored:
    """The fields of a configuration that change nothing in transformers, by `names`.

    They are those that its class for the model type does not have. Nothing is known of a file by a newer version than
    the one that was read, nor of a model with code of its own.
    """

    def __init__(self, fields: dict[str, Any], names: list[str], version: Any) -> None:
        self.names, self.version, model_type = names, version, fields.get("model_type")
        own_code = isinstance(fields.get("auto_map"), dict) and any("Model" in name for name in fields["auto_map"])
        names_of_type = FIELDS.get(model_type) if isinstance(model_type, str) else None
        is_known = names_of_type is not None and not own_code and not _is_newer(version)
        self._known = frozenset(f"{COMMON} {names_of_type}".split()) | _OLDER if is_known else None

    def add(self, name: str) -> bool:
        """Add a field if it changes nothing; return whether it does not."""
        is_ignored = self._known is not None and name not in self._known
        if is_ignored and name not in self.names:
            self.names.append(name)
        return is_ignored


def _is_newer(version: Any) -> bool:
    """Return whether a version of transformers is newer than the one whose classes were read."""
    numbers = [[int(x[:9]) for x in re.findall(r"\d+", str(each))[:2]] for each in (version, TRANSFORMERS)]
    return numbers[0] > numbers[1]
