"""``regard attribute TEXT``: what mattered, and what was attended to; for a corpus in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from regard.cli import shared_options as shared
from regard.cli.deferred import deferred_imports
from regard.cli.options import Command, LazyChoices, flag, option, options
from regard.cli.output_files import PICTURES, OutputFile, OutputFiles, output_files

with deferred_imports():
    from rich.cells import cell_len
    from rich.text import Text

    from regard._utils.errors import RegardError
    from regard.cli.console import has_color, open_page
    from regard.cli.corpus import is_corpus_run, run_corpus
    from regard.cli.input import announce_memory, load_model, warn_unknown
    from regard.cli.output import write_json
    from regard.cli.progress import waiting
    from regard.cli.tables import write_table
    from regard.cli.texts import read_text
    from regard.metrics import ATTRIBUTION_METHODS, Attribution, attribute, attribute_generation
    from regard.metrics.attribution_target import (
        QUANTITIES,
        Spelling,
        encoding_of,
        likelier_spelling,
        most_probable_token,
        predicts_tokens,
    )
    from regard.models import Model
    from regard.terminal import attribution_table
    from regard.terminal.tables import ljust
    from regard.text.encoding import Encoding
    from regard.text.token_labels import token_labels
    from regard.trace import Trace
    from regard.views import AttributionRow, attribution_rows, escape, format_number

COMMAND = Command(
    place=8,
    summary="show which tokens mattered for the next one",
    usage="TEXT [--to TEXT] [options]\n       regard attribute --corpus CORPUS --to TEXT --out FOLDER [options]",
    examples="""\
  regard attribute "The capital of France is"
  regard attribute "The capital of France is" --to " Paris" --versus " Rome" -o paris.png
  regard attribute "The cat sat on the mat" --to "A kitten rested" --model minilm
  regard attribute "The capital of France is" --generate 5 --method attnlrp""",
)

_PICTURE = OutputFile("-o", PICTURES, "each token with its contribution", max_tokens=200)
_TABLE = OutputFile("-o", (".csv",), "a table of token, score, attended")


def _methods() -> Sequence[str]:
    from regard.metrics import ATTRIBUTION_METHODS

    return tuple(ATTRIBUTION_METHODS)


@options
class Options:
    """What is typed."""

    source: shared.TextSource = shared.text_source()
    corpus: str | None = option("FILE", "with --out, each text of a corpus in place of one")
    truncate: bool = flag("truncate texts of --corpus that are too long")
    to: str | None = option(
        "TEXT", 'the next token, such as " Paris"; by default the most probable; of an encoder a text to be similar to'
    )
    versus: str | None = option("TEXT", "a second one, whose number is subtracted")
    generate: int | None = option("N", "generate N tokens, and show what mattered for each", type=shared.count)
    model: shared.ModelChoice = shared.model_choice("smollm2")
    method: str | None = option(
        "NAME", "%(choices)s (gradient; of an encoder integrated)", choices=LazyChoices(_methods)
    )
    score: Literal["logit", "log_probability"] | None = option(
        "NAME", "of the next token: %(choices)s (logit)", choices=("logit", "log_probability")
    )
    baseline: Literal["zero", "pad", "mask"] | None = option(
        "NAME", "where integrated gradients begin: %(choices)s (zero)", choices=("zero", "pad", "mask")
    )
    steps: int | None = option("N", "points of integrated gradients (32)", type=shared.count)
    merge_subwords: bool = shared.merge_subwords()
    files: OutputFiles = output_files(_PICTURE, _TABLE)
    partitions: shared.CorpusRun = shared.corpus_run()
    theme: str = shared.theme()
    json: bool = shared.json_flag("the contributions")
    color: str = shared.color()
    toy: shared.ToyLayer = shared.toy_layer()


def run(options: Options) -> None:
    """Print how much each token contributed to a next token, or to the similarity with another text; or of a corpus."""
    if is_corpus_run(options.partitions):
        _run_corpus(options)
        return
    if options.corpus is not None or options.truncate:
        raise RegardError("--corpus and --truncate are for --out FOLDER")
    options.files.check()
    text = read_text(options.source)
    texts = [each for each in (text, options.to, options.versus) if each]
    model = load_model(options.model, options.toy, texts)
    encoding = encoding_of(model, text, options.to)
    warn_unknown(model, [encoding])
    options.files.check_length(model, len(encoding))
    announce_memory(model, len(encoding), Trace(only="*.weights"))
    if options.generate is not None:
        _run_generation(options, model, encoding, options.generate)
        return
    to, notes = _target(model, encoding, options.to)
    with waiting("gradients"):
        attribution = attribute(
            model,
            encoding,
            to,
            versus=options.versus,
            method=options.method,
            score=options.score,
            baseline=options.baseline,
            steps=options.steps,
        )
    targets = {"--to": options.to, "--versus": options.versus}
    spellings = {option: likelier_spelling(model, encoding, token) for option, token in targets.items()}
    notes += [_note(option, spelling) for option, spelling in spellings.items() if spelling is not None]
    rows = attribution_rows(encoding, attribution.scores, attribution.attended, merge_subwords=options.merge_subwords)
    if options.json:
        shown = {
            "model": model.name,
            "text": text,
            "method": attribution.method,
            "metric": attribution.metric,
            "value": attribution.value,
            "baseline_value": attribution.baseline_value,
            "completeness_gap": attribution.completeness_gap,
            "is_complete": attribution.is_complete,
            "notes": notes,
            "tokens": [{"token": row.label, "score": row.score, "attended": row.attended} for row in rows],
        }
        write_json(shown)
    else:
        console = open_page(options.color, model, f" · {ATTRIBUTION_METHODS[attribution.method].title.lower()}")
        console.print(Text(f"{escape(attribution.metric)}: {format_number(attribution.value, '.4g')}"))
        console.print()
        console.print(attribution_table(rows, width=console.width, color=has_color(console)), soft_wrap=True)
        console.print()
        if attribution.is_complete is not False:
            console.print(Text(_strongest(rows)))
        for note in notes:
            console.print(Text(note))
        if attribution.baseline_value is not None:
            difference = attribution.value - attribution.baseline_value
            said = f"contributions sum to {attribution.scores.sum():+.4g}, the number changes by {difference:+.4g}"
            console.print(Text(said.replace("-", "−"), style="dim"))
            if not attribution.is_complete:
                console.print(Text("not yet exact: give more --steps, another --baseline or another --method"))
    options.files.write(
        {_PICTURE: lambda path: _draw(path, attribution, options), _TABLE: lambda path: _write_table(path, rows)}
    )


def _target(model: Model, encoding: Encoding, to: str | None) -> tuple[str | int, list[str]]:
    """Return what is attributed, by default the most probable next token, and a note that says so."""
    if to is not None:
        return to, []
    if not predicts_tokens(model):
        raise RegardError(f'{model.name} predicts no next token: give a text to be similar to, --to "A kitten rested"')
    token = most_probable_token(model, encoding)
    note = (
        f'"{escape(token.text)}" is the most probable next token ({token.probability:.2g}): --to TEXT explains another'
    )
    return token.id, [note]


def _draw(path: str, computed: Attribution, options: Options) -> None:
    from regard.plot import attribution, save

    save(attribution(computed, merge_subwords=options.merge_subwords, theme=options.theme), path)


def _write_table(path: str, rows: list[AttributionRow]) -> None:
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    write_table(path, dict(zip(("token", "score", "attended"), map(list, columns), strict=True)))


def _run_corpus(options: Options) -> None:
    """Write a row for each token of a corpus."""
    others = {
        "a text": options.source.text or options.source.file is not None,
        "--toy": options.toy,
        "-o": options.files,
        "--json": options.json,
        "--merge-subwords": options.merge_subwords,
        "--generate": options.generate,
    }
    _refuse("--out writes the tokens of a corpus", others)
    if options.corpus is None:
        raise RegardError("--out is for a corpus: give --corpus FILE")
    if options.to is None:
        raise RegardError("--corpus needs --to TEXT: a next token for all texts, of an encoder a text to be similar to")
    names = ("to", "versus", "method", "score", "baseline", "steps", "truncate")
    settings = {name: getattr(options, name) for name in names}
    run_corpus(options.partitions, options.model, options.corpus, "AttributeJob", settings)


def _run_generation(options: Options, model: Model, prompt: Encoding, count: int) -> None:
    """Print for each token that the model generates which tokens contributed most to it."""
    others = {
        "--to": options.to,
        "--versus": options.versus,
        "--baseline": options.baseline,
        "--steps": options.steps,
        "--merge-subwords": options.merge_subwords,
        "-o": options.files,
    }
    _refuse("--generate shows each generated token", others)
    with waiting("gradients"):
        generation = attribute_generation(
            model, prompt, method=options.method, score=options.score, max_new_tokens=count
        )
    labels, first = token_labels(generation.encoding), len(prompt)
    method, score, values, scores = generation.method, generation.score, generation.values.tolist(), generation.scores
    if options.json:
        each = zip(labels[first:], values, scores.tolist(), generation.attended.tolist(), strict=True)
        rows = [dict(zip(("token", "value", "scores", "attended"), row, strict=True)) for row in each]
        shown = {"model": model.name, "text": prompt.text, "method": method, "score": score}
        write_json({**shown, "tokens": labels, "generated": rows})
        return
    console = open_page(options.color, model, f" · {ATTRIBUTION_METHODS[method].title.lower()}")
    names = [escape(label, 24) for label in labels]
    heading = f"each generated token, its {QUANTITIES[score]}, and the three tokens that contributed most\n"
    console.print(Text(heading, style="bold"))
    width = max(map(cell_len, names[first:]))
    for name, value, row in zip(names[first:], values, scores, strict=True):
        largest = (-abs(row)).argsort(kind="stable")[:3].tolist()
        most = "  ".join(f"{names[i]} {format_number(row[i], '+.2f')}" for i in largest)
        console.print(Text(f"{ljust(name, width)} {format_number(value, '.2f'):>7}   {most}"))


def _refuse(why: str, others: Mapping[str, object]) -> None:
    """Raise for the first option that is given and not used."""
    for what, is_given in others.items():
        if is_given:
            raise RegardError(f"{why}: leave out {what}")


def _note(option: str, spelling: Spelling) -> str:
    """Say that the same word is likelier with a space before it, or without."""
    spelled, other = escape(spelling.token), escape(spelling.other)
    how = "with" if other.startswith(" ") else "without"
    likelier, less = (f"{value:.2g}" for value in (spelling.other_probability, spelling.probability))
    return (
        f'"{other}", {how} a space before it, is likelier to come next ({likelier}) than "{spelled}" ({less}): '
        f'give {option} "{other}" to explain that'
    )


def _strongest(rows: list[AttributionRow]) -> str:
    """Say which token mattered most, and which was attended to most, as the explorer does."""
    mattered, attended = max(rows, key=lambda row: abs(row.score)), max(rows, key=lambda row: row.attended)
    if mattered.score == 0:
        return "nothing mattered: every contribution is 0"
    same = "also the most attended to" if mattered is attended else f"{escape(attended.label)} was attended to most"
    return f"{escape(mattered.label)} mattered most; {same}"
