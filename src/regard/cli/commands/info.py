"""``regard info``: versions, threads and available models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, option, options
from regard.cli.shared_options import MODEL_NAMES, color

with deferred_imports():
    import os
    import platform
    import sys
    import textwrap
    from importlib.metadata import PackageNotFoundError, version

    import numpy as np
    from rich.text import Text

    from regard._utils.errors import RegardError
    from regard._version import __version__
    from regard.cli.console import has_color, make_console
    from regard.functional import native
    from regard.functional.native.loader import num_processors
    from regard.models import FAMILIES, PretrainedModel, TextModel
    from regard.models.families import load_unpacked
    from regard.models.hub import resolve
    from regard.models.hub.paths import models_folder
    from regard.views import escape

COMMAND = Command(
    place=13,
    summary="print versions, threads and available models; of one model what its files say",
    usage="[options]",
    examples="  regard info\n  regard info --model induction",
)

_PACKAGES = ("numpy", "array-api-compat", "tokenizers", "rich", "matplotlib", "huggingface_hub")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@options
class Options:
    """What is typed."""

    model: str | None = option("NAME", MODEL_NAMES)
    ignore: Sequence[str] | None = option(
        "FIELD", "an unknown field of its config.json that changes nothing", action="append"
    )
    color: str = color()


def run(options: Options) -> None:
    """Print what a bug report should contain."""
    if options.ignore and options.model is None:
        raise RegardError("--ignore is for the configuration of a model: give --model too")
    console = make_console(options.color)
    facts = [*_facts(), ("colour", "yes" if has_color(console) else "no")]
    if options.model is not None:
        facts = list(_facts_of_model(load_unpacked(options.model, ignore=options.ignore or ())))
    width = max(len(name) for name, *_ in facts) + 2
    page = Text()
    for name, *values in facts:
        page.append(name.ljust(width), style="bold")
        page.append(f"\n{' ' * width}".join(map(escape, values)) + "\n")
    page.rstrip()
    console.print(page, soft_wrap=True)  # a path is not broken


def _facts() -> Iterator[tuple[str, ...]]:
    """Yield what a bug report should contain: a name, and the lines of its value."""
    yield "regard", __version__
    yield "python", f"{platform.python_version()} ({platform.python_implementation()})"
    yield "system", f"{platform.system()} {platform.machine()}"
    for package in _PACKAGES:
        yield package, _version(package)
    yield "attention", _attention()
    yield "BLAS", _blas()
    yield "processors", str(num_processors())
    limits = ", ".join(f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ)
    yield "threads", limits or "one per processor; OMP_NUM_THREADS sets a limit"
    yield "families", *textwrap.wrap(", ".join(sorted(FAMILIES)), 60)
    yield "models", *(f"{e.name}: {folder or 'not downloaded'}" for e, folder in resolve.installed())
    yield "model folder", str(models_folder())


def _facts_of_model(model: PretrainedModel) -> Iterator[tuple[str, ...]]:
    """Yield what the files of a model say beside its weights."""
    yield "model", str(model)
    yield "ignored fields", ", ".join(getattr(model.config, "ignored", ())) or "none"
    if not isinstance(model, TextModel):
        return
    most = "any number of" if model.max_length == sys.maxsize else f"{model.max_length:,}"
    yield "takes", f"{most} tokens"
    settings = model.sentence
    if settings.problem is not None or settings.pooling is None:
        yield "vectors of texts", settings.problem or "it names no pooling"
        return
    pooling = settings.pooling
    steps = [", ".join(pooling.modes), *["a linear map"] * len(pooling.dense), *["length 1"] * pooling.normalize]
    yield "vectors of texts", ", then ".join(steps)
    if settings.max_length is not None:
        yield "embeds at most", f"{settings.max_length:,} tokens"
    prompts = [f"{name}: {prompt!r}" for name, prompt in settings.prompts.items() if prompt]
    yield "prompts", *(prompts or ["none"])
    yield "default prompt", settings.default_prompt_name or "none"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _attention() -> str:
    kernel = native.kernel()
    if kernel is None:
        return f"NumPy: {native.unavailable_reason()}"
    threads = native.num_threads()
    by = f"{kernel.instruction_set()}, {threads} thread{'s' * (threads != 1)}"
    return f"compiled: {by}; bfloat16 in {kernel.tiles()}"


def _blas() -> str:
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
