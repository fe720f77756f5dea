"""Pretrained transformers, one readable file for each family, run in NumPy.

`load` turns a name or a path into a `Model`. Calling it with a text returns its contextual vectors, and `regard.Trace`
records the steps. A `LanguageModel` continues a text, `generate`. `register` adds a family from outside.

A family is imported on first use.
"""

from __future__ import annotations

from regard._utils.lazy import attach


def _modules_of_families() -> dict[str, str]:
    from regard.models.families import FAMILIES

    return {
        family + suffix: f"regard.models.{module}"
        for module, _, family in (entry.partition(".") for entry in FAMILIES.values() if isinstance(entry, str))
        for suffix in ("", "Config")
    }


__getattr__, __dir__ = attach(__name__, _modules_of_families)
