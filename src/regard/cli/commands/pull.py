"""``regard pull NAME``: download a model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, argument, flag, option, options

with deferred_imports():
    from regard._utils.errors import RegardError
    from regard.cli.output import write
    from regard.models.families import check_config
    from regard.models.hub import resolve
    from regard.models.hub.hub_name import parse_hub_name
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
    ignore: Sequence[str] | None = option(
        "FIELD", "an unknown field of its config.json that changes nothing", action="append"
    )


def run(options: Options) -> None:
    """Download a model unless it is there already, and print its folder, or its GGUF file."""
    if options.ignore and parse_hub_name(options.name) is None:
        raise RegardError(f"--ignore is for a model of the Hugging Face hub, org/name, not for {options.name}")
    check = partial(check_config, ignore=options.ignore or ())
    path = resolve.pull(options.name, force=options.force, revision=options.revision, check_config=check)
    write(escape(str(path)))
