"""``regard why TEXT --head L3H1 --word it --to animal``: which parts of the model made one token attend to another."""

from __future__ import annotations

from typing import Any, Literal

from regard.cli import shared_options as shared
from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, option, options

with deferred_imports():
    import numpy as np
    from rich.table import Table
    from rich.text import Text

    from regard._utils.errors import RegardError
    from regard.cli.console import make_table, open_page
    from regard.cli.input import announce_memory, check_word, read_input
    from regard.cli.output import write_json
    from regard.metrics import WHY_STEPS, ScoreAttribution
    from regard.models.output import run_traced
    from regard.text.encoding import Encoding
    from regard.text.token_labels import token_labels
    from regard.text.words import join_names
    from regard.trace import Trace
    from regard.views import escape, format_number, head_label

COMMAND = Command(
    place=7,
    summary="print which parts of the model made one token attend to another",
    usage="TEXT --head L3H1 --word it --to animal [options]",
    examples="""\
  regard why "The animal was tired because it had run" --head L3H1 --word it --to animal
  regard why "The animal was tired because it had run" --head L3H1 --word it --to animal --versus run""",
)

_IN_WORDS = {"softcap": "soft cap", "bias": "position bias"}


@options
class Options:
    """What is typed."""

    source: shared.TextSource = shared.text_source()
    model: shared.ModelChoice = shared.model_choice("minilm")
    head: tuple[int, int] = option("L3H1", "the layer and the head", required=True, type=shared.layer_and_head)
    word: str = option("WORD", "the token that attends; to:2 is the second *to*", required=True)
    to: str = option("TEXT", "the token that it attends to", required=True)
    versus: str | None = option("TEXT", "another token: why to that one rather than to this one")
    by: Literal["head", "token"] = option(
        None, "a head is one part, or one for each token (head)", choices=("head", "token"), default="head"
    )
    top: int = option("N", "how many pairs to show (10)", type=shared.count, default=10)
    json: bool = shared.json_flag("the score, its largest pairs and what each part adds")
    color: str = shared.color()
    toy: shared.ToyLayer = shared.toy_layer()


def run(options: Options) -> None:
    """Print the largest pairs of what wrote the query and what wrote the key."""
    text, model, encoding = read_input(options.source, options.model, options.toy)
    layer, head = options.head
    query, key = _position("--word", options.word, encoding), _position("--to", options.to, encoding)
    versus = None if options.versus is None else _position("--versus", options.versus, encoding)
    trace = Trace(optional=WHY_STEPS, maps=True)
    announce_memory(model, len(encoding), trace)
    run_traced(model, encoding, trace)
    name: Any = f"encoder.blocks.{layer}.attn" if hasattr(model, "encode") else layer
    score = trace.why(name, head, query, key, versus, by=options.by)
    if options.json:
        write_json({"model": model.name, "text": text} | _as_json(score, options))
        return
    console = open_page(options.color, model, f" · {head_label(layer, head)}")
    console.print()
    console.print(Text(_summary(score)), soft_wrap=True)
    console.print()
    console.print(_table(score, options.top), soft_wrap=True)
    console.print()
    console.print(Text("The scales by which norms divide are held at their values of this run", style="dim"))
    if hasattr(model, "encode"):
        console.print(Text("Of the encoder; trace.why in Python takes attention of the decoder too", style="dim"))


def _position(name: str, word: str, encoding: Encoding) -> int:
    """Return the position of a word that is one token."""
    rows = check_word(word, encoding, show_special_tokens=True)
    if len(rows) > 1:
        labels = [label.casefold() for label in token_labels(encoding)]
        counts = [f":{labels[: row + 1].count(labels[row])}" * (labels.count(labels[row]) > 1) for row in rows]
        tokens = [escape(labels[row], 24) + number for row, number in zip(rows, counts, strict=True)]
        raise RegardError(f"{name} {escape(word, 40)} is several tokens: name one, {join_names(tokens)}")
    return rows[0]


def _summary(score: ScoreAttribution) -> str:
    """Return in words what is explained."""
    query, key, *other = (repr(escape(token, 24)) for token in score.tokens)
    number = format_number(score.score, "+.3f")
    if other:
        return f"{query} attends to {key} rather than to {other[0]}: the scores differ by {number}"
    terms = "".join(
        f"; the {_IN_WORDS[name]} adds {format_number(value, '+.3f')}" for name, value in score.terms.items()
    )
    return f"{query} attends to {key} with a weight of {score.weight:.1%}: the score is {number}{terms}"


def _table(score: ScoreAttribution, top: int) -> Table:
    """Return the largest pairs as sentences, and the rest."""
    table = make_table(">adds", "pair of parts")
    pairs, query, key = score.top(top), escape(score.tokens[0], 24), escape(score.tokens[1], 24)
    for pair in pairs:
        sentence = f"{escape(pair.query.label, 48)} at {query!r} meets {escape(pair.key.label, 48)} at {key!r}"
        table.add_row(format_number(pair.value, "+.3f"), Text(sentence))
    if others := len(score.query_writers) * len(score.key_writers) - len(pairs):
        rest = score.total - sum(pair.value for pair in pairs)
        table.add_row(format_number(rest, "+.3f"), Text(f"{others:,} other pair{'s' * (others > 1)}", style="dim"))
    return table


def _as_json(score: ScoreAttribution, options: Options) -> dict[str, Any]:
    at = {"query": score.query, "key": score.key} | ({} if score.versus is None else {"versus": score.versus})
    return {
        "head": head_label(*options.head),
        "by": options.by,
        **{name: {"position": i, "token": token} for (name, i), token in zip(at.items(), score.tokens, strict=True)},
        "score": score.score,
        "terms": dict(score.terms),
        "weight": score.weight,
        "pairs": [
            {"query_writer": pair.query.label, "key_writer": pair.key.label, "contribution": pair.value}
            for pair in score.top(options.top)
        ],
        "query_writers": _writers(score.query_writers, score.queries),
        "key_writers": _writers(score.key_writers, score.keys),
    }


def _writers(writers: Any, values: np.ndarray) -> list[dict[str, Any]]:
    """Return what each writer adds, summed over those of the other side, the largest first."""
    order = np.argsort(-np.abs(values), kind="stable").tolist()
    return [{"writer": writers[i].label, "contribution": float(values[i])} for i in order]
