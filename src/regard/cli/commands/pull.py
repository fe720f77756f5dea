"""``regard pull NAME``: download a model."""

from __future__ import annotations

from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, argument, flag, option, options

with deferred_imports():
    from regard.cli.output import write
    from regard.models.families import check_type
    from regard.models.hub import resolve
    from regard.views import escape

COMMAND = Command(
    place=12,
    summary="download a model",
    usage="NAME [options]",
    examples="  regard pull minilm\n  regard pull minilm --force\n"
    "  regard pull Qwen/Qwen3-0.6B\n  regard pull Qwen/Qwen3-0.6B-GGUF:Q8_0",
)


@options
class Options:
    """What is typed."""

    name: str = argument("NAME", "a name from regard models, or org/name of the Hugging Face hub")
    revision: str | None = option("REV", "a branch, a tag or a commit of org/name (main)")
    force: bool = flag("download again what is already there")


def run(options: Options) -> None:
    """Download a model unless it is there already, and print its folder, or its GGUF file."""
    path = resolve.pull(options.name, force=options.force, revision=options.revision, check_type=check_type)
    write(escape(str(path)))
