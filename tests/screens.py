"""What each command prints, at three widths and in colour: the files of `tests/cli/screens`.

``python tests/screens.py`` writes what has changed there. The test compares with tolerance: another machine rounds
differently, so a number may differ by one in its last digit, and a colour slightly.
"""

import contextlib
import functools
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from unittest import mock

FOLDER = Path(__file__).parent / "cli" / "screens"
WIDTHS = (80, 100, 120)
SENTENCE = "The animal did not cross the street because it was too tired"
LONG_WORDS = (
    "Unquestionably extraordinary strawberries notwithstanding counterproductive internationalization overwhelmingly "
    "characteristically misunderstood electromagnetic responsibilities incomprehensibility disproportionately "
    "straightforward compartmentalization"
)
LONG = (
    "The animal did not cross the street because it was too tired and the street was wide, so the animal sat down on "
    "the grass and watched the cars go by until the sun went down over the hills"
)
CAUSAL = ("--model", "smollm2")
SCREENS = {
    "show": ["The cat sat on the mat"],
    "show-head": [SENTENCE, "--head", "L3H1"],
    "show-word": [SENTENCE, "--head", "L3H1", "--word", "it", "-o", "it.png"],
    "show-causal": ["The capital of France is", *CAUSAL],
    "show-causal-long": [LONG, *CAUSAL, "--top", "1", "--head", "L3H2"],
    "show-long": [LONG, "--top", "1", "--head", "L3H1"],
    "show-long-words": [LONG_WORDS, "--merge-subwords"],
    "show-long-words-word": [LONG_WORDS, "--merge-subwords", "--word", "electromagnetic"],
    "show-wide-characters": ["日本語の猫 😀 café नमस्ते e\u0301\u0302 strawberry", *CAUSAL],
    "show-toy": ["a b c a", "--toy", "--num-heads", "2"],
    "explain": ["explain", "The cat sat on the mat", "--head", "L2H5"],
    "explain-word": ["explain", "The capital of France is", "--word", "of", *CAUSAL],
    "explain-toy": ["explain", "The cat sat", "--toy", "--embed-dim", "4", "--num-heads", "2", "--word", "cat"],
    "compare": ["compare", "She sat on the river bank", "She took a loan from the bank", "--word", "bank"],
    "explore": ["explore", "The cat sat", "--toy", "-o", "page.html"],
    "generate": ["generate", "Once upon a time", "--max-new-tokens", "12"],
    "heads": ["heads", "The cat sat on the mat, and the cat slept"],
    "heads-all": ["heads", "The cat sat on the mat", "--sort", "previous_token"],
    "ablate": ["ablate", "The cat sat on the mat", "--head", "L3H7"],
    "ablate-causal": ["ablate", "The capital of France is", "--head", "L3H7", "--head", "L0H0", *CAUSAL],
    "why": ["why", SENTENCE, "--head", "L3H1", "--word", "it", "--to", "animal", "--versus", "street"],
    "why-causal": ["why", LONG, *"--head L17H3 --word animal:2 --to did:1 --by=token --top=5".split(), *CAUSAL],
    "attribute": ["attribute", "The cat sat on the mat", "--to", "A kitten rested on a rug", "--model", "minilm"],
    "attribute-causal": ["attribute", "The capital of France is", "--to", " Paris", "--versus", " Rome", *CAUSAL],
    "paths": "paths xK3bQxK3 --to=b --versus=Q --corrupted=xK4bQxK3 --edges=12 --model=induction -o p.svg".split(),
    "embed": ["embed", "--text", "The cat sat.", "--text", "A dog ran.", "-o", "vectors.npy"],
    "models": ["models"],
    "pull": ["pull", "minilm"],
    "info": ["info"],
    "mistake": ["The cat sat", "--layer", "9"],
}
_NO_COLOR = ("explore", "generate", "embed", "pull")
_ESCAPE = re.compile(r"(\x1b\[[0-9;]*m)")
_NUMBER = re.compile(r"((?<![\w.])[ ░▒▓█]*[−+]?\d+\.\d+(?:e[−-]\d+)?|(?<=  )[ ░▒▓█]*\d+(?=[ ░▒▓█]|$)|█{2,}$)")


def screen(name: str) -> str:
    """Return what a command prints at each width, then in colour."""
    argv = SCREENS[name]
    parts = [f"════ {width} columns ════\n{_printed(argv, width, 'never')}" for width in WIDTHS]
    if argv[0] not in (*_NO_COLOR, "info") and name != "mistake":
        parts.append(f"════ 100 columns in colour ════\n{_printed(argv, 100, 'always')}")
    return "".join(parts)


def differs(old: str, new: str) -> str:
    """Return the first two lines that differ beyond rounding, or ""."""
    one, other = old.splitlines(), new.splitlines()
    pairs = ((a, b) for a, b in zip(one, other, strict=False) if not _is_close(a, b))
    return "\n".join(next(pairs, ())) or (f"{len(one)} lines, now {len(other)}" if len(one) != len(other) else "")


def _printed(argv: list[str], width: int, color: str) -> str:
    """Run a command in an empty folder; return both streams, without what differs from run to run."""
    from regard.cli import main
    from regard.models.hub.hub_cache import GGUF, CachedModel
    from regard.models.hub.registry import KNOWN

    here = Path.cwd()
    settings = {"COLUMNS": str(width), "TERM": "xterm-256color", "COLORTERM": "truecolor", "REGARD_OFFLINE": "1"}
    options = [] if argv[0] in _NO_COLOR else ["--color", color]
    folder = Path("/home/you/.cache/regard/models")
    printed = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, settings))
        for unwanted in ("NO_COLOR", "FORCE_COLOR"):
            os.environ.pop(unwanted, None)
        for module in ("input", "commands.generate", "commands.embed"):
            stack.enter_context(mock.patch(f"regard.cli.{module}.load", load_once))
        installed = [(KNOWN["minilm"], folder / "minilm"), (KNOWN["smollm2"], None)]
        stack.enter_context(mock.patch("regard.models.hub.resolve.installed", return_value=installed))
        hub = Path("/home/you/.cache/huggingface/hub")
        cached = [
            CachedModel("org/name", hub / "models--org--name/snapshots/0123", 91_000_000, "bert"),
            CachedModel("org/name-GGUF:Q8_0", hub / "models--org--name-GGUF/snapshots/4567/m-Q8_0.gguf", 9**9, GGUF),
            CachedModel("org/speech", hub / "models--org--speech/snapshots/89ab", 1_500_000_000, "whisper"),
        ]
        stack.enter_context(mock.patch("regard.models.hub.hub_cache.cached_models", return_value=cached))
        stack.enter_context(mock.patch("regard.models.hub.resolve.pull", lambda name, **_: folder / name))
        stack.enter_context(mock.patch("regard.cli.commands.info.models_folder", return_value=folder))
        stack.enter_context(mock.patch("regard.plot.save.encode", return_value=b""))  # of pictures, only the name shows
        stack.enter_context(mock.patch("regard.cli.commands.attribute.attribute", _attribute))
        os.chdir(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.callback(os.chdir, here)
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(contextlib.redirect_stderr(printed))
        main([*argv, *options])
    text = re.sub(r"\d+\.\d\d s\b", "0.00 s", printed.getvalue())
    if argv == ["info"]:  # versions and processors
        text = re.sub(r"(?m)^(\S*\w+\S* +)(?!/)\S.*$", _without_value, text)
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def _without_value(line: re.Match[str]) -> str:
    return line[0] if line[1].strip() in ("families", "models", "model", "colour") else f"{line[1]}…"


@functools.cache
def load_once(name: str, **options):
    import regard

    return regard.load(name, download=False, **options)


@functools.cache
def _attribute(*arguments, **options):
    """Return an attribution, computed once for all widths."""
    from regard.metrics import attribute

    return attribute(*arguments, **options)


def _is_close(old: str, new: str) -> bool:
    one, other = _ESCAPE.split(old), _ESCAPE.split(new)
    return old == new or (len(one) == len(other) and all(map(_are_close_parts, one, other)))


def _are_close_parts(old: str, new: str) -> bool:
    if old.startswith("\x1b"):
        one, other = ([int(n or 0) for n in escape[2:-1].split(";")] for escape in (old, new))
        return len(one) == len(other) and all(abs(a - b) <= 16 for a, b in zip(one, other, strict=True))
    one, other = _NUMBER.split(old), _NUMBER.split(new)
    return len(one) == len(other) and all(
        a == b or (place % 2 == 1 and _are_close_numbers(a, b))
        for place, (a, b) in enumerate(zip(one, other, strict=True))
    )


def _are_close_numbers(old: str, new: str) -> bool:
    if len(old) != len(new) or not any(map(str.isdigit, old)):
        return abs(len(old) - len(new)) <= 1 and {*old, *new} == {"█"}
    a, b = (text.strip(" ░▒▓█").replace("−", "-") for text in (old, new))
    last = 10.0 ** (-len(a.partition("e")[0].partition(".")[2]) + int(a.partition("e")[2] or 0))
    return abs(float(a) - float(b)) <= 1.01 * last


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parents[2] / "src"))
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        if path.stem not in SCREENS:
            path.unlink()
    for name in SCREENS:
        path = FOLDER / f"{name}.txt"
        new = screen(name)
        if not path.exists() or differs(path.read_text(encoding="utf-8"), new):
            path.write_text(new, encoding="utf-8")
            print(f"wrote {path.name}")
