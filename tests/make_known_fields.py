"""Write ``src/regard/models/checkpoint/known_fields.py``: the fields that transformers' configurations have.

    python tests/make_known_fields.py

A field is known to a family if its configuration class declares or renames it, or if its code or that which all models
share reads it; the class and its bases read fields of themselves, and get the rest as arguments. What other functions
get as arguments (`from_pretrained`) is not a field, nor is a method of a configuration.
"""

import ast
import importlib
import inspect
import json
import re
import sys
import textwrap
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src" / "regard" / "models" / "checkpoint" / "known_fields.py"
_READ = (
    r"(?<!load_)(?<!kernel_)(?<!quantization_)config\.(?!json\b)(\w+)\b(?!\()",
    r"(?:get|has|set)attr\(\s*(?:self\.)?\w*config\w*(?:\(\))?,\s*[\"'](\w+)",
    r"\w*config_dict(?:\.(?:get|pop)\(|\[)\s*[\"'](\w+)",
)
_READ_OF_ARGUMENTS = r"kwargs\.(?:pop|get|setdefault)\(\s*[\"'](\w+)"
_WITH_FIELDS = ("__init__", "__post_init__", "convert_rope_params_to_dict")
"""Methods of configurations whose arguments are fields."""
_READ_OF_ITSELF = (r"(?:get|has|set)attr\(\s*self,\s*[\"'](\w+)", r"self\.(\w+)\b(?!\()")
_DEFAULTS = ("max_position_embeddings", "num_experts_per_tok", "type_vocab_size")
"""Fields of which regard takes the default too, where a configuration leaves them out; other sizes it must state."""

# What all models share: masks, rotary positions, layers, loading.
_SHARED = (
    *(
        "cache_utils",
        "configuration_utils",
        "masking_utils",
        "modeling_layers",
        "modeling_rope_utils",
        "modeling_utils",
    ),
    *(
        "modeling_flash_attention_utils",
        "integrations.sdpa_attention",
        "integrations.eager_paged",
        "core_model_loading",
    ),
)


def fields_read(modules: Iterable[str]) -> set[str]:
    """Return the fields that modules read."""
    names: set[str] = set()
    for name in modules:
        source = inspect.getsource(importlib.import_module(name))
        names |= {found for pattern in _READ for found in re.findall(pattern, source)}
    return names


def known_fields(model_type: str) -> set[str]:
    """Return the fields that the class of a model type declares, and those that its modules read."""
    from transformers.modeling_rope_utils import RotaryEmbeddingConfigMixin

    kind = _class_of(model_type)
    names = {*inspect.signature(kind.__init__).parameters, *kind.attribute_map, *vars(kind())}
    is_rotary = "rope_parameters" in names
    for base in kind.__mro__:
        names |= set(getattr(base, "__annotations__", {}))
        if base.__module__.startswith("transformers.") and (is_rotary or base is not RotaryEmbeddingConfigMixin):
            source = inspect.getsource(base)
            names |= {found for pattern in _READ_OF_ITSELF for found in re.findall(pattern, source)}
            for method in ast.walk(ast.parse(textwrap.dedent(source))):
                if isinstance(method, ast.FunctionDef) and method.name in _WITH_FIELDS:
                    names |= set(re.findall(_READ_OF_ARGUMENTS, ast.unparse(method)))
    names |= fields_read([kind.__module__, kind.__module__.replace("configuration_", "modeling_")])
    return _fields(names) - {"self", "kwargs"}


def _fields(names: Iterable[str]) -> set[str]:
    """Return the names that a field may have."""
    from transformers import PreTrainedConfig

    return {x for x in names if not x.startswith("__") and not callable(getattr(PreTrainedConfig, x, None))}


def defaults(model_type: str) -> dict[str, int]:
    """Return the defaults of the class of a model type, of the fields `_DEFAULTS`, by their first names."""
    kind = _class_of(model_type)
    parameters = inspect.signature(kind.__init__).parameters
    names = [kind.attribute_map.get(name, name) for name in _DEFAULTS]
    return {name: parameters[name].default for name in names if name in parameters}


def _class_of(model_type: str) -> Any:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return CONFIG_MAPPING[model_type]


def content() -> str:
    """Return the module."""
    import transformers

    from regard.models.families import FAMILIES

    found = {name: known_fields(name) for name in sorted(FAMILIES)}
    shared = _fields(fields_read(f"transformers.{each}" for each in _SHARED))
    aliases = {name: dict(_class_of(name).attribute_map) for name in found}
    taken = {name: defaults(name) for name in found}
    common = set.intersection(*found.values()) | shared

    def block(names: set[str], indent: int) -> str:
        text = textwrap.fill(" ".join(sorted(names)), 112 - indent, break_on_hyphens=False, break_long_words=False)
        return textwrap.indent(text, " " * indent)

    def table(entries: dict[str, dict[str, Any]]) -> str:
        rows = []
        for name, entry in entries.items():
            items = [f'"{key}": {json.dumps(value)}' for key, value in sorted(entry.items())]
            line = f'    "{name}": {{{", ".join(items)}}},\n'
            split = f'    "{name}": {{\n' + "".join(f"        {item},\n" for item in items) + "    },\n"
            rows += [line if len(line) <= 121 else split] if items else []
        return "{\n" + "".join(rows) + "}\n"

    families = "".join(f'    "{name}": """\n{block(fields - common, 8)}\n    """,\n' for name, fields in found.items())
    return (
        '"""Fields of config.json that transformers has, by model type; made by ``tests/make_known_fields.py``."""\n\n'
        "from __future__ import annotations\n\n"
        f'TRANSFORMERS = "{transformers.__version__}"\n"""The version whose classes were read."""\n\n'
        f'COMMON = """\n{block(common, 4)}\n"""\n"""Of every type, separated by spaces."""\n\n'
        f"FIELDS = {{\n{families}}}\n" + '"""Of each type beside those, separated by spaces."""\n\n'
        f"ALIASES: dict[str, dict[str, str]] = {table(aliases)}"
        '"""Second names of fields, and the first ones, by model type."""\n\n'
        f"DEFAULTS: dict[str, dict[str, int]] = {table(taken)}"
        '"""What absent fields are, by model type."""\n'
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    TARGET.write_text(content(), encoding="utf-8")
    sys.stdout.write(f"{TARGET}\n")
