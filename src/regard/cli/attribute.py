"""``regard attribute TEXT --to " Paris"``: what mattered, beside what was attended to; of a corpus in a folder."""

from __future__ import annotations

import argparse
import json

from rich.text import Text

from regard._utils.errors import RegardError
from regard.cli.console import has_color, make_console, print_header
from regard.cli.corpus import is_corpus_run, run_corpus
from regard.cli.input import announce_memory, load_model, option_names
from regard.cli.output import write
from regard.cli.output_files import Attributed, check_length, check_output_files, write_output_files
from regard.cli.texts import read_text
from regard.metrics import ATTRIBUTION_METHODS, attribute
from regard.metrics.attribution_target import Spelling, encoding_of, likelier_spelling
from regard.terminal import attribution_table
from regard.trace import Trace
from regard.views import AttributionRow, attribution_rows, escape, format_number


def run(arguments: argparse.Namespace) -> None:
    """Print how much each token contributed to a next token, or to the similarity with another text; or of a corpus."""
    if is_corpus_run(arguments):
        _run_corpus(arguments)
        return
    if arguments.corpus is not None or arguments.truncate:
        raise RegardError("--corpus and --truncate are for --out FOLDER")
    check_output_files(arguments)
    text = read_text(arguments)
    texts = [each for each in (text, arguments.to, arguments.versus) if each]
    model = load_model(arguments, texts)
    encoding = encoding_of(model, text, arguments.to)
    check_length(arguments, model, len(encoding))
    announce_memory(model, len(encoding), Trace(only="*.weights"))
    found = attribute(
        model,
        encoding,
        arguments.to,
        versus=arguments.versus,
        method=arguments.method,
        score=arguments.score,
        baseline=arguments.baseline,
        steps=arguments.steps,
    )
    options = {"--to": arguments.to, "--versus": arguments.versus}
    spellings = {option: likelier_spelling(model, encoding, token) for option, token in options.items()}
    notes = [_note(option, spelling) for option, spelling in spellings.items() if spelling is not None]
    rows = attribution_rows(encoding, found.scores, found.attended, merge_subwords=arguments.merge_subwords)
    if arguments.json:
        shown = {
            "model": model.name,
            "text": text,
            "method": found.method,
            "metric": found.metric,
            "value": found.value,
            "baseline_value": found.baseline_value,
            "completeness_gap": found.completeness_gap,
            "is_complete": found.is_complete,
            "notes": notes,
            "tokens": [{"token": row.label, "score": row.score, "attended": row.attended} for row in rows],
        }
        write(json.dumps(shown, allow_nan=False))
    else:
        console = make_console(arguments)
        print_header(console, model, f" · {ATTRIBUTION_METHODS[found.method].title.lower()}")
        console.print(Text(f"{escape(found.metric)}: {format_number(found.value, '.4g')}"))
        console.print()
        console.print(attribution_table(rows, width=console.width, color=has_color(console)), soft_wrap=True)
        console.print()
        console.print(Text(_strongest(rows)))
        for note in notes:
            console.print(Text(note))
        if found.baseline_value is not None:
            difference = found.value - found.baseline_value
            said = f"contributions sum to {found.scores.sum():+.4g}, the number changes by {difference:+.4g}"
            console.print(Text(said.replace("-", "−"), style="dim"))
            if not found.is_complete:
                console.print(Text("not yet exact: give more --steps, another --baseline or another --method"))
    write_output_files(Attributed(found, rows), arguments)


def _run_corpus(arguments: argparse.Namespace) -> None:
    """Write a row for each token of a corpus."""
    others = ("text", "file", "toy", "output", "json", "merge_subwords")
    if given := [name for name in others if getattr(arguments, name)]:
        what = "a text" if given[0] in ("text", "file") else "-o" if given[0] == "output" else option_names(given[:1])
        raise RegardError(f"--out writes the tokens of a corpus: leave out {what}")
    if arguments.corpus is None:
        raise RegardError("--out is for a corpus: give --corpus FILE")
    names = ("to", "versus", "method", "score", "baseline", "steps", "truncate")
    run_corpus(arguments, arguments.corpus, "AttributeJob", {name: getattr(arguments, name) for name in names})


def _note(option: str, spelling: Spelling) -> str:
    """Say that the same word is likelier with a space before it, or without."""
    chosen, other = escape(spelling.chosen), escape(spelling.other)
    how = "with" if other.startswith(" ") else "without"
    likelier, less = (f"{value:.2g}" for value in (spelling.other_probability, spelling.probability))
    return (
        f'"{other}", {how} a space before it, is likelier to come next ({likelier}) than "{chosen}" ({less}): '
        f'give {option} "{other}" to explain that'
    )


def _strongest(rows: list[AttributionRow]) -> str:
    """Say which token mattered most, and which was attended to most, as the explorer does."""
    mattered, attended = max(rows, key=lambda row: abs(row.score)), max(rows, key=lambda row: row.attended)
    if mattered.score == 0:
        return "nothing mattered: every contribution is 0"
    same = "also the most attended to" if mattered is attended else f"{escape(attended.label)} was attended to most"
    return f"{escape(mattered.label)} mattered most; {same}"
