"""Write ``src/regard/models/checkpoint/known_fields.py``: the fields that transformers' configurations have.

    python tests/make_known_fields.py

A field is known to a family if its configuration class declares or renames it, or if its code or that which all models
share reads it.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src" / "regard" / "models" / "checkpoint" / "known_fields.py"
_READ = (
    r"config\.(\w+)",
    r"(?:get|has|set)attr\(\s*(?:self\.)?\w*config\w*(?:\(\))?,\s*[\"'](\w+)",
    r"\w*config_dict(?:\.(?:get|pop)\(|\[)\s*[\"'](\w+)",
    r"kwargs\.(?:pop|get|setdefault)\(\s*[\"'](\w+)",
)


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
        with suppress(ImportError):
            source = inspect.getsource(importlib.import_module(name))
            names |= {found for pattern in _READ for found in re.findall(pattern, source)}
    return names


def known_fields(model_type: str) -> set[str]:
    """Return the fields that the class of a model type declares, and those that its modules read."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    names = {*inspect.signature(kind.__init__).parameters, *kind.attribute_map, *vars(kind())}
    for base in kind.__mro__:
        names |= set(getattr(base, "__annotations__", {}))
    names |= fields_read([kind.__module__, kind.__module__.replace("configuration_", "modeling_")])
    return {name for name in names if not name.startswith("_") and name not in ("self", "kwargs")}


def content() -> str:
    """Return the module."""
    import transformers

    from regard.models.families import FAMILIES

    found = {name: known_fields(name) for name in sorted(FAMILIES)}
    shared = {name for name in fields_read(f"transformers.{each}" for each in _SHARED) if not name.startswith("_")}
    common = set.intersection(*found.values()) | shared

    def block(names: set[str], indent: int) -> str:
        text = textwrap.fill(" ".join(sorted(names)), 112 - indent, break_on_hyphens=False, break_long_words=False)
        return textwrap.indent(text, " " * indent)

    families = "".join(f'    "{name}": """\n{block(fields - common, 8)}\n    """,\n' for name, fields in found.items())
    return (
        '"""Fields of config.json that transformers has, by model type; made by ``tests/make_known_fields.py``."""\n\n'
        "from __future__ import annotations\n\n"
        f'TRANSFORMERS = "{transformers.__version__}"\n"""The version whose classes were read."""\n\n'
        f'COMMON = """\n{block(common, 4)}\n"""\n"""Of every type, separated by spaces."""\n\n'
        f"FIELDS = {{\n{families}}}\n" + '"""Of each type beside those, separated by spaces."""\n'
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    TARGET.write_text(content(), encoding="utf-8")
    sys.stdout.write(f"{TARGET}\n")
