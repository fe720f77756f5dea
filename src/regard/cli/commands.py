"""The commands: summary, examples and arguments of each. Its module, named like it, runs it. Imports nothing heavy."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from typing import NamedTuple

from regard.cli import arguments
from regard.cli.arguments import LazyChoices, count, head, head_or_mean, layer_and_head, whole_number


class Command(NamedTuple):
    """A command: its line in ``regard --help``, usage, examples, and the function that adds its arguments."""

    summary: str
    usage: str
    examples: str
    add_arguments: Callable[[ArgumentParser], None]


def _show(parser: ArgumentParser) -> None:
    arguments.add_text(parser)
    arguments.add_model(parser, "minilm")
    group = parser.add_argument_group("attention map")
    arguments.add_layer_and_head(group, head_or_mean, layer="the last", head="mean")
    group.add_argument("--merge-subwords", action="store_true", help="merge sub-word tokens into words")
    group.add_argument("--show-special-tokens", action="store_true", help="show special tokens such as [CLS]")
    group.add_argument(
        "--word", metavar="WORD", help="print only the rows of this word, files show all; of a picture a patch, r2c5"
    )
    group.add_argument("--top", type=count, default=3, metavar="N", help="how many keys to name for each query (3)")
    parser.add_argument("--truncate", action="store_true", help="cut a text that is too long for the model")
    parser.add_argument("--quiet", action="store_true", help="print nothing, only write files")
    arguments.add_output_files(parser, "show")
    arguments.add_print(parser)
    arguments.add_theme(parser)
    arguments.add_json(parser, "the map")
    arguments.add_color(parser)
    arguments.add_toy(parser)


def _explain(parser: ArgumentParser) -> None:
    arguments.add_text(parser)
    arguments.add_model(parser, "minilm")
    arguments.add_layer_and_head(parser, head, layer="0", head="0", default=0)
    parser.add_argument("--word", metavar="WORD", help="only the row of this word, with the arithmetic written out")
    arguments.add_output_files(parser, "explain")
    arguments.add_color(parser)
    arguments.add_toy(parser)


def _compare(parser: ArgumentParser) -> None:
    parser.add_argument("texts", metavar="TEXT", nargs=2, help="the two texts")
    parser.add_argument("--word", metavar="WORD", required=True, help="a word of both texts")
    arguments.add_model(parser, "minilm")
    arguments.add_output_files(parser, "compare")
    arguments.add_theme(parser)
    arguments.add_json(parser, "the similarities")
    arguments.add_color(parser)
    arguments.add_toy(parser)


def _explore(parser: ArgumentParser) -> None:
    arguments.add_text(
        parser, "the text, the folder of a training run and, if you like, a text, or a map on disk, MAP.zarr"
    )
    arguments.add_model(parser, "minilm")
    parser.set_defaults(model=None)  # minilm for a text, no model for a saved run
    parser.add_argument("--compare-model", metavar="NAME", help="a second model, for the same text or the second text")
    parser.add_argument("--trace", metavar="FILE", nargs="+", help="one or two saved runs in place of a text")
    arguments.add_layer_and_head(parser, head, layer="the page chooses", head="the page chooses")
    parser.add_argument(
        "--corpus", metavar="FILE", help="sentences, one a line: the page finds those where a head attends most"
    )
    parser.add_argument("--open", metavar="ADDRESS", help="what a copied address shows, or one in a file")
    arguments.add_server(parser)
    arguments.add_output_files(parser, "explore")
    arguments.add_theme(parser)
    arguments.add_toy(parser)


def _generate(parser: ArgumentParser) -> None:
    arguments.add_text(parser)
    arguments.add_model(parser, "smollm2")
    parser.add_argument("--max-new-tokens", type=count, default=128, metavar="N", help="at most N tokens (128)")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="stop before TEXT; may be repeated")
    group = parser.add_argument_group("sampling")
    group.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0: greedy decoding (0)")
    group.add_argument("--top-k", type=count, metavar="K", help="sample from the K most probable tokens")
    group.add_argument("--top-p", type=float, metavar="P", help="sample from the fewest tokens of total probability P")
    group.add_argument("--seed", type=whole_number, metavar="N", help="seed of the sampling")
    parser.add_argument("--chat", action="store_true", help="format the text with the model's chat template")
    arguments.add_output_files(parser, "generate")


def _heads(parser: ArgumentParser) -> None:
    arguments.add_text(parser)
    arguments.add_model(parser, "minilm")
    parser.add_argument(
        "--corpus", metavar="FILE", help="the mean over many texts, one a line, or with --out any corpus"
    )
    parser.add_argument("--truncate", action="store_true", help="truncate lines of --corpus that are too long")
    parser.add_argument("--repeated-tokens", type=count, metavar="N", help="N random tokens, twice, in place of a text")
    parser.add_argument(
        "--sort",
        choices=LazyChoices(_sort_keys),
        metavar="KEY",
        help="print all heads, the largest first: %(choices)s",
    )
    parser.add_argument("--all", action="store_true", help="print all heads, not only the strongest")
    arguments.add_json(parser, "the metrics")
    arguments.add_output_files(parser, "heads")
    arguments.add_corpus(parser)
    arguments.add_color(parser)
    arguments.add_toy(parser)


def _ablate(parser: ArgumentParser) -> None:
    arguments.add_text(parser)
    arguments.add_model(parser, "minilm")
    parser.add_argument(
        "--head",
        action="append",
        required=True,
        type=layer_and_head,
        metavar="L3H7",
        help="a head to ablate; may be repeated",
    )
    parser.add_argument(
        "--by",
        choices=("zero", "mean"),
        default="zero",
        help="replace by zero or the mean over tokens (zero)",
    )
    parser.add_argument("--top", type=count, default=10, metavar="N", help="how many next tokens to show (10)")
    arguments.add_json(parser, "the changes")
    arguments.add_color(parser)
    arguments.add_toy(parser)


def _attribute(parser: ArgumentParser) -> None:
    arguments.add_text(parser)
    parser.add_argument("--corpus", metavar="FILE", help="with --out, each text of a corpus in place of one")
    parser.add_argument("--truncate", action="store_true", help="truncate texts of --corpus that are too long")
    parser.add_argument(
        "--to", required=True, metavar="TEXT", help='the next token, " Paris"; of an encoder a text to be similar to'
    )
    parser.add_argument("--versus", metavar="TEXT", help="a second one, whose number is subtracted")
    arguments.add_model(parser, "smollm2")
    parser.add_argument(
        "--method",
        choices=LazyChoices(_attribution_methods),
        metavar="NAME",
        help="%(choices)s (gradient; of an encoder integrated)",
    )
    parser.add_argument(
        "--score",
        choices=("logit", "log_probability"),
        metavar="NAME",
        help="of the next token: %(choices)s (logit)",
    )
    parser.add_argument(
        "--baseline",
        choices=("zero", "pad", "mask"),
        metavar="NAME",
        help="where integrated gradients begin: %(choices)s (zero)",
    )
    parser.add_argument("--steps", type=count, metavar="N", help="points of integrated gradients (32)")
    parser.add_argument("--merge-subwords", action="store_true", help="merge sub-word tokens into words")
    arguments.add_output_files(parser, "attribute")
    arguments.add_corpus(parser)
    arguments.add_theme(parser)
    arguments.add_json(parser, "the contributions")
    arguments.add_color(parser)
    arguments.add_toy(parser)


def _embed(parser: ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="a file with one text a line, - reads standard input; or, with --out, a corpus",
    )
    parser.add_argument("--text", action="append", metavar="TEXT", dest="texts", help="a text, in place of a file")
    arguments.add_model(parser, "minilm")
    parser.add_argument(
        "--pooling",
        choices=LazyChoices(_poolings),
        metavar="MODE",
        help="%(choices)s (as the model is configured)",
    )
    parser.add_argument("--batch-size", type=count, default=32, metavar="N", help="lines per batch (32)")
    parser.add_argument("--max-length", type=count, metavar="N", help="tokens of a line (as the model is configured)")
    parser.add_argument("--truncate", action="store_true", help="cut lines that are too long")
    parser.add_argument("--prompt", metavar="TEXT", help="a text before each line")
    parser.add_argument("--prompt-name", metavar="NAME", help="a prompt that the model has, before each line")
    parser.add_argument("--skip-empty", action="store_true", help="skip empty lines")
    arguments.add_output_files(parser, "embed")
    arguments.add_corpus(parser)


def _train(parser: ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", nargs="?", choices=LazyChoices(_tasks), help="one of %(choices)s")
    parser.add_argument("--text", metavar="FILE", help="learn to continue a text, in place of a task")
    parser.add_argument("--masked", action="store_true", help="learn to fill in masked tokens of the text")
    parser.add_argument("--bpe", type=count, metavar="N", help="a vocabulary of N byte pairs (characters)")
    parser.add_argument("--context", type=count, metavar="N", help="tokens of a sequence of the text (64)")
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="train a loaded model, on what it is made for (a new GPT)",
    )
    parser.add_argument("--folder", metavar="FOLDER", help="where checkpoints are written (regard-TASK)")
    parser.add_argument("--resume", action="store_true", help="continue the run in the folder")
    parser.add_argument("--watch", action="store_true", help="see it learn: loss, maps and heads in the browser")
    arguments.add_server(parser)
    parser.add_argument("--log", metavar="FILE", help="write each step to FILE, .csv or .jsonl")
    group = parser.add_argument_group("training, by default as the task has it")
    group.add_argument("--steps", type=count, metavar="N", help="updates")
    group.add_argument("--batch-size", type=count, metavar="N", help="sequences of a batch")
    group.add_argument("--learning-rate", type=float, metavar="X", help="the largest; it falls along a cosine")
    group.add_argument("--warmup", type=whole_number, metavar="N", help="steps in which the learning rate rises")
    group.add_argument("--weight-decay", type=float, metavar="X", help="of matrices and tables")
    group.add_argument("--dropout", type=float, metavar="P", help="probability with which a number is dropped (0)")
    group.add_argument("--label-smoothing", type=float, metavar="P", help="probability given to all tokens evenly (0)")
    group.add_argument("--accumulate", type=count, metavar="N", help="batches of an update (1)")
    group.add_argument("--checkpoint", action="store_true", help="compute blocks twice, which takes less memory")
    group.add_argument("--evaluate-every", type=count, metavar="N", help="steps between losses on held-out batches")
    group.add_argument(
        "--save-every",
        type=count,
        metavar="N",
        help="steps between checkpoints (a tenth of all; with --watch a thirtieth)",
    )
    group.add_argument("--seed", type=whole_number, metavar="N", help="of weights and batches (0)")
    arguments.add_color(parser)


def _pull(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a name from regard models")
    parser.add_argument("--force", action="store_true", help="download again what is already there")


def _info(parser: ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", help="a name from regard models, or a folder")
    parser.add_argument(
        "--ignore", action="append", metavar="FIELD", help="an unknown field of its config.json that changes nothing"
    )
    arguments.add_color(parser)


def _completion(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="the shell")


def _attribution_methods() -> Sequence[str]:
    from regard.metrics import ATTRIBUTION_METHODS

    return tuple(ATTRIBUTION_METHODS)


def _sort_keys() -> Sequence[str]:
    from regard.metrics.registry import listed_metrics

    return ("layer", *(metric.name for metric in listed_metrics()))


def _tasks() -> Sequence[str]:
    from regard.training.tasks import TASKS

    return tuple(TASKS)


def _poolings() -> Sequence[str]:
    from regard.models.pooling import MODES

    return tuple(MODES)


COMMANDS = {
    "show": Command(
        "show which words each word attends to",
        "TEXT [options]",
        """\
  regard "The cat sat on the mat"
  regard "The animal was too tired" --word tired --head L3H7
  regard --file letter.txt --merge-subwords -o letter.png
  echo "The cat sat" | regard - --json""",
        _show,
    ),
    "explain": Command(
        "print every step from token to output with its numbers",
        "TEXT [options]",
        """\
  regard explain "The cat sat" --toy --seed 42 --embed-dim 4 --num-heads 2
  regard explain "The cat sat" --toy --embeddings glove.6B.50d.txt --word cat
  regard explain "The cat sat on the mat" --head L2H5 --word sat""",
        _explain,
    ),
    "compare": Command(
        "compare the vectors of one word in two texts",
        "TEXT TEXT --word WORD [options]",
        """\
  regard compare "She sat on the river bank" "She went to the bank for a loan" --word bank
  regard compare "a bat flew" "a bat hit the ball" --word bat -o bat.png""",
        _compare,
    ),
    "explore": Command(
        "explore attention in the browser",
        "TEXT [TEXT] [options]\n       regard explore RUN [TEXT] [options]",
        """\
  regard explore "The animal did not cross the street because it was too tired"
  regard explore "the bat flew" "the bat broke"
  regard explore --file letter.txt -o letter.html
  regard explore regard-induction -o learned.html    (a folder of regard train)""",
        _explore,
    ),
    "generate": Command(
        "continue a text with a language model",
        "TEXT [options]",
        """\
  regard generate "Once upon a time" --max-new-tokens 60
  regard generate "The capital of France is" --temperature 0.7 --top-p 0.9 --seed 1
  regard generate "What is the capital of France?" --chat
  regard generate --file letter.txt --stop . -o letter.safetensors""",
        _generate,
    ),
    "heads": Command(
        "print the strongest heads by each metric, or all",
        "TEXT [options]",
        """\
  regard heads "The cat sat on the mat, and the cat slept"
  regard heads "The cat sat on the mat" --all
  regard heads --repeated-tokens 50 --sort induction --model induction
  regard heads --corpus sentences.txt -o heads.csv""",
        _heads,
    ),
    "ablate": Command(
        "show what changes without some heads",
        "TEXT --head L3H7 [options]",
        """\
  regard ablate "The cat sat on the mat" --head L3H7
  regard ablate "The cat sat on the mat" --head L3H7 --head L5H0 --by mean""",
        _ablate,
    ),
    "attribute": Command(
        "show which tokens mattered for the next one",
        "TEXT --to TEXT [options]\n       regard attribute --corpus CORPUS --to TEXT --out FOLDER [options]",
        """\
  regard attribute "The capital of France is" --to " Paris"
  regard attribute "The capital of France is" --to " Paris" --versus " Rome" -o paris.png
  regard attribute "The cat sat on the mat" --to "A kitten rested" --model minilm""",
        _attribute,
    ),
    "embed": Command(
        "write one vector for each line of a text",
        "FILE -o FILE [options]\n       regard embed CORPUS --out FOLDER [options]",
        """\
  regard embed sentences.txt -o vectors.npy
  regard embed sentences.txt -o vectors.npy --truncate
  cat sentences.txt | regard embed - -o vectors.npy
  regard embed --text "The cat sat." --text "A dog ran." -o vectors.npy""",
        _embed,
    ),
    "train": Command(
        "train a small model on a task or a text",
        "TASK|--text FILE [options]",
        """\
  regard train induction
  regard train induction --watch
  regard train addition --folder sums --log sums.csv
  regard train --text book.txt --bpe 500
  regard train --text book.txt --masked --dropout 0.1""",
        _train,
    ),
    "models": Command("list the known models and their folders", "[options]", "  regard models", arguments.add_color),
    "pull": Command("download a model", "NAME [options]", "  regard pull minilm\n  regard pull minilm --force", _pull),
    "info": Command(
        "print versions, threads and available models; of one model what its files say",
        "[options]",
        "  regard info\n  regard info --model induction",
        _info,
    ),
    "completion": Command(
        "print a completion script for a shell",
        "{bash,zsh,tcsh}",
        """\
  regard completion bash > ~/.local/share/bash-completion/completions/regard
  regard completion zsh > ~/.zfunc/_regard    (with fpath+=~/.zfunc before compinit)
  regard completion tcsh > ~/.regard.tcsh     (and source it in ~/.tcshrc)""",
        _completion,
    ),
}
