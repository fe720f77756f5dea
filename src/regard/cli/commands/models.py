"""``regard models``: the named models, and those of the Hugging Face hub on this machine."""

from __future__ import annotations

from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, options
from regard.cli.shared_options import color

with deferred_imports():
    from rich.text import Text

    from regard.cli.console import make_console
    from regard.models.families import runs
    from regard.models.hub import hub_cache, resolve
    from regard.views import escape

COMMAND = Command(
    place=11,
    summary="list the named models, those fetched from the Hugging Face hub, and their folders",
    usage="[options]",
    examples="  regard models",
)


@options
class Options:
    """What is typed."""

    color: str = color()


def run(options: Options) -> None:
    """Print each named model, each in the cache of the Hugging Face hub, and where its files are."""
    entries = resolve.installed()
    width = max(len(entry.name) for entry, _ in entries) + 2
    page = Text()
    for entry, folder in entries:
        where = f"not downloaded; run regard pull {entry.name}" if folder is None else escape(str(folder))
        page.append(entry.name.ljust(width), style="bold").append(f"{entry.summary}\n")
        page.append(f"{' ' * width}{entry.layers} layers × {entry.heads} heads, {entry.licence}\n")
        page.append(f"{' ' * width}{where}\n\n", style="dim")
    for model in hub_cache.cached_models():
        size = f"{model.size / 1e6:,.1f} MB" if model.size else ""
        revision = f", revision {model.revision}" if model.revision else ""
        page.append(escape(model.name), style="bold").append(f"{escape(revision)}\n")
        facts = [model.kind or "", size, model.problem or _why_not(model.kind) or ""]
        page.append(f"{' ' * width}{escape(', '.join(filter(None, facts)))}\n")
        page.append(f"{' ' * width}{escape(str(model.path))}\n\n", style="dim")
    page.rstrip()
    make_console(options.color).print(page, soft_wrap=True)  # a path is not broken


def _why_not(kind: str | None) -> str | None:
    """Return why a model of this kind cannot be loaded; None if it can."""
    return None if kind == hub_cache.GGUF or runs(kind) else "a type that regard does not run"
