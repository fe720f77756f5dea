"""The output of each command, against the Python API."""

import contextlib
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import golden
import regard
import tiny_decoder
from regard import Trace
from regard.cli import main
from regard.cli.commands import compare
from regard.cli.deferred import bind_imports
from regard.models import toy
from regard.models.hub.registry import KNOWN
from regard.nn import EncoderBlock
from regard.plot import head_grid, heatmap, movement, save
from regard.views import find_rows, select

TEXT = "The cats sat"


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path):
    """No network, and no models but those a test names."""
    for name in ("REGARD_MODELS", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REGARD_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("regard.models.hub.resolve._other_places", lambda model: ())


def traced(folder, text=TEXT):
    trace = Trace()
    regard.load(folder)(text, trace=trace)
    return trace


@pytest.mark.parametrize(("width", "millimetres"), [("column", 85), ("page", 170), ("100.5", 100.5)])
def test_a_picture_is_as_wide_as_asked(run, tmp_path, width, millimetres):
    one, every = str(tmp_path / "one.pdf"), str(tmp_path / "every.svg")
    files = ["-o", one, "--head-grid", every, "--width", width, "--caption"]
    assert run("the cat sat", "--toy", "--num-heads", "2", "--head", "1", *files)[0] == 0
    box = re.search(rb"/MediaBox \[ ([\d. ]+) \]", (tmp_path / "one.pdf").read_bytes())[1].split()
    assert float(box[2]) * 25.4 / 72 == pytest.approx(millimetres, abs=0.01)
    width = re.search(rb'<svg[^>]* width="([\d.]+)pt"', (tmp_path / "every.svg").read_bytes())[1]
    assert float(width) * 25.4 / 72 == pytest.approx(millimetres, abs=0.01)


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        (["--head", "1"], {"head": 1}),
        (["--head", "l0h2"], {"layer": 0, "head": 2}),
        (["--layer", "0", "--head", "2"], {"layer": 0, "head": 2}),
        (["--show-special-tokens", "--word", "CATS"], {"show_special_tokens": True}),
        (["--merge-subwords"], {"merge_subwords": True}),
    ],
)
def test_json_is_of_the_shown_rows_and_a_table_has_every_weight(run, tiny, tmp_path, options, chosen):
    path, view = tmp_path / "map.csv", select(traced(tiny), **chosen)
    status, out, err = run(TEXT, "--model", tiny, *options, "--json", "-o", str(path))
    assert (status, err) == (0, f"wrote {path}: a table of its weights\n")
    shown = view.rows(find_rows(view, "cats")) if "--word" in options else view
    found = json.loads(out)
    assert (found["layer"], found["head"], found["layers"], found["heads"]) == (view.layer, view.head, [0, 1], 3)
    assert (found["queries"], found["keys"]) == ([*shown.queries], [*shown.keys])
    np.testing.assert_array_equal(found["weights"], shown.weights)
    np.testing.assert_allclose(np.sum(found["weights"], 1) + found["special_mass"], 1, atol=1e-6)
    assert found["top_keys"][0][0]["weight"] == shown.weights[0].max()
    header, *rows = csv.reader(path.read_text().splitlines())
    assert header == ["weight", *view.keys]
    assert [row[0] for row in rows] == [*view.queries]
    np.testing.assert_array_equal([[float(x) for x in row[1:]] for row in rows], view.weights)


def test_the_tokens_of_a_map_are_no_formulas(run, tiny, tmp_path):
    path = tmp_path / "map.csv"
    assert run("= -1 a", "--toy", "-o", str(path))[0] == 0
    header, *rows = csv.reader(path.read_text().splitlines())
    assert header == ["weight", *(row[0] for row in rows)] == ["weight", "'=", "'-1", "a"]


def test_all_files_of_one_run(run, tiny, tmp_path):
    names = ["-o", "a.svg", "-o", "a.safetensors", "--output", "b.png", "--head-grid", "e.PDF"]
    names += ["--movement", "c.svg", "--movement", "d.png"]
    paths = [str(tmp_path / name) if "." in name else name for name in names]
    status, out, err = run(TEXT, "--model", tiny, *paths)
    assert status == 0
    assert [line.split(":")[0] for line in err.splitlines()] == [f"wrote {path}" for path in paths if "." in path]
    assert "wrote" not in out
    assert "cat" in out  # the table is printed too
    assert sorted(path.name for path in tmp_path.glob("*.*")) == [
        *("a.safetensors", "a.svg", "b.png", "c.svg", "d.png", "e.PDF")
    ]
    for suffix, signature in (("svg", b"<?xm"), ("png", b"\x89PNG"), ("PDF", b"%PDF")):
        assert {path.read_bytes()[:4] for path in tmp_path.glob(f"*.{suffix}")} == {signature}
    maps, arrays, saved = Trace(maps=True, only="*"), traced(tiny), Trace.load(tmp_path / "a.safetensors")
    regard.load(tiny)(TEXT, trace=maps)
    assert saved.names() == maps.names()
    assert np.array_equal(saved["blocks.1.mlp.hidden"], arrays["blocks.1.mlp.hidden"])
    for stage in ("scores", "weights"):  # computed from the maps, which round otherwise
        name = f"blocks.1.attn.{stage}"
        assert np.allclose(saved[name], arrays[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("options", "chosen"), [
    (["--layer", "0"], {"layer": 0}),
    (["--head", "2"], {"head": 2}),
    (["--merge-subwords", "--theme", "dark"], {"merge_subwords": True, "theme": "dark"}),
    pytest.param(["--show-special-tokens"], {"show_special_tokens": True}, marks=pytest.mark.sweep),
])  # fmt: skip
def test_every_picture_has_the_chosen_map_tokens_and_theme(run, tiny, tmp_path, options, chosen):
    drawings = {
        "-o": lambda trace, **chosen: heatmap(trace, **chosen).figure,
        "--head-grid": head_grid,
        "--movement": lambda trace, **chosen: movement(trace, **chosen).figure,
    }
    drawn, expected, plain = (tmp_path / f"{name}.svg" for name in ("drawn", "expected", "plain"))
    for option, draw in drawings.items():
        if option == "-o" or not {"layer", "head"} & set(chosen):
            assert run(TEXT, "--model", tiny, option, str(drawn), *options)[0] == 0
            save(draw(traced(tiny), **chosen), expected)
            save(draw(traced(tiny)), plain)
            assert drawn.read_bytes() == expected.read_bytes()
            assert option == "--movement" or drawn.read_bytes() != plain.read_bytes()


def test_a_file_is_replaced_only_by_a_whole_one(run, tmp_path):
    path = tmp_path / "x.png"
    path.write_text("mine")
    assert run("a b", "--toy", "-o", str(path), "--layer", "7")[0] == 2
    assert path.read_text() == "mine"


def test_word_vectors_are_matched_to_words_in_any_order(run, tmp_path):
    (tmp_path / "vectors").write_text("sat 5 6\nother 7 8\ncat 3 4\nthe 1 2\n")
    saved = str(tmp_path / "trace.safetensors")
    assert run("The cat sat", "--toy", "--embeddings", str(tmp_path / "vectors"), "-o", saved)[0] == 0
    np.testing.assert_array_equal(Trace.load(saved)["token_embeddings"][0], [[1, 2], [3, 4], [5, 6]])


def test_pull_prints_the_folder_and_force_downloads_again(run, monkeypatch):
    monkeypatch.setattr(
        "regard.models.hub.resolve.pull", lambda name, force, revision, **_: f"/{name}/{force}/{revision}\x1b"
    )
    assert run("pull", "minilm")[1] == "/minilm/False/None␛\n"
    assert run("pull", "minilm", "--force", "--revision", "v1")[1] == "/minilm/True/v1␛\n"


def test_a_text_may_come_from_a_file_and_from_a_pipe(run, tiny, tmp_path, monkeypatch):
    (tmp_path / "text").write_bytes(b"\xef\xbb\xbfthe cat\n")
    _, from_file, _ = run("--file", str(tmp_path / "text"), "--model", tiny, "--json")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n")))
    _, from_pipe, _ = run("-", "--model", tiny, "--json")
    assert from_file == from_pipe == run("the cat", "--model", tiny, "--json")[1]


def test_toy_works_without_any_model(run):
    status, out, _ = run("The cat sat", "--toy", "--seed", "7", "--num-heads", "2")
    assert (status, "toy layer, random weights, seed 7" in out) == (0, True)
    trace = Trace()
    toy("The cat sat", seed=7, num_heads=2)("The cat sat", trace=trace)
    assert f"{trace['blocks.0.attn.weights'][0].mean(0)[0].max():.2f}" in out
    assert "toy layer" in run("--toy", "--", "info")[1]  # a text may be the name of a command


@pytest.mark.parametrize("argv", [["--model", "TINY", "the cat"], ["explain the cat", "--model", "TINY"]])
def test_an_option_or_a_text_of_words_is_no_misspelt_command(run, tiny, argv):
    status, out, err = run(*(tiny if word == "TINY" else word for word in argv))
    assert (status, "did you mean" in err) == (0, False)
    assert "2 layers × 3 heads" in out


def test_explain_as_json_has_the_numbers_of_the_trace_and_saves_it(run, tiny, tmp_path):
    chosen, saved = ("--layer", "-1", "--head", "2"), str(tmp_path / "trace.safetensors")  # counted from the last
    status, out, _ = run("explain", TEXT, "--model", tiny, *chosen, "--json", "-o", saved)
    shown, trace, maps = json.loads(out), traced(tiny), Trace(maps=True, only="*")
    regard.load(tiny)(TEXT, trace=maps)
    assert (status, Trace.load(saved).names()) == (0, maps.names())
    assert (shown["text"], shown["layer"], shown["head"], shown["kv_head"]) == (TEXT, 1, 2, 2)
    assert shown["tokens"] == ["[CLS]", "the", "cat", "##s", "sat", "[SEP]"]
    assert shown["scale"] == pytest.approx(0.5)
    values = {step["name"]: step["values"] for step in shown["steps"]}
    assert [*values][-4:] == [f"blocks.1.attn.{name}" for name in ("scores", "weights", "context", "output")]
    np.testing.assert_array_equal(values["blocks.1.attn.q"], trace["blocks.1.attn.q"][0, 2])
    np.testing.assert_allclose(values["blocks.1.attn.weights"], trace["blocks.1.attn.weights"][0, 2], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(values["blocks.0.output"], trace["blocks.0.output"][0])


def test_explain_a_word_as_json_writes_the_arithmetic_out(run, tmp_path):
    folder = str(tiny_decoder.write(tmp_path / "tiny"))
    _, out, _ = run("explain", "The cat", "--model", folder, "--word", "cat", "--head", "L0H5", "--json")
    shown = json.loads(out)
    rows = shown["rows"]
    assert (shown["word"], "steps" in shown) == ("cat", False)
    assert "".join(row["token"] for row in rows).strip() == "cat"
    for row in rows:
        assert [key["key"] for key in row["keys"]] == list(range(row["query"] + 1))  # causal
        for key in row["keys"]:
            assert key["product"] == pytest.approx(np.dot(row["q"], key["k"]), rel=1e-5)
            assert key["score"] == pytest.approx(key["product"] * shown["scale"], rel=1e-5)
        powers = np.exp([key["final_score"] for key in row["keys"]])
        weights = [key["weight"] for key in row["keys"]]
        np.testing.assert_allclose(weights, powers / powers.sum(), atol=1e-6)
        np.testing.assert_allclose(row["context"], np.dot(weights, [key["v"] for key in row["keys"]]), atol=1e-6)


def test_explain_as_json_has_no_score_where_the_mask_forbids(run, tmp_path):
    folder = str(tiny_decoder.write(tmp_path / "tiny"))
    shown = json.loads(run("explain", "The cat", "--model", folder, "--json")[1])
    biased = next(step["values"] for step in shown["steps"] if step["name"].endswith(".biased"))
    assert [row.count(None) for row in biased] == list(range(len(biased)))[::-1]


@pytest.mark.parametrize("command", [[TEXT], [TEXT, "--word", "cats"], [TEXT, "--json"], ["explain", TEXT]])
def test_layers_above_the_chosen_one_are_not_run(run, tiny, tmp_path, monkeypatch, command):
    ran, call = [], EncoderBlock.__call__

    def counted(self, x, **options):
        ran.extend([self] * (x.shape[-2] > 2))  # not with one token, to list its steps, or two, to estimate its memory
        return call(self, x, **options)

    monkeypatch.setattr(EncoderBlock, "__call__", counted)
    chosen = [*command, "--model", tiny, "--layer", "0", "--head", "1"]
    status, out, _ = run(*chosen)
    assert (status, len(ran)) == (0, 1)
    everything = run(*chosen, "-o", str(tmp_path / "everything.safetensors"))[1]
    assert len(ran) == 3
    assert everything.splitlines()[-3:] == out.splitlines()[-3:]


def test_compare_has_the_similarity_of_embeddings_and_after_each_layer_and_draws_both(run, tiny, tmp_path):
    drawn, expected = tmp_path / "both.png", tmp_path / "expected.png"
    texts = ("the cat sat", "a cat b c")
    _, out, _ = run("compare", *texts, "--word", "cat", "--model", tiny, "--json", "-o", str(drawn))
    similarities, traces = json.loads(out)["similarities"], [traced(tiny, text) for text in texts]
    assert list(similarities) == ["original", "layer 0", "layer 1"]
    assert similarities["original"] == pytest.approx(1)
    a, b = (trace["blocks.1.output"][0, 2] for trace in traces)
    assert similarities["layer 1"] == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-5)
    save(movement(traces, merge_subwords=True, highlight="cat").figure, expected)
    assert drawn.read_bytes() == expected.read_bytes()


def test_compare_does_not_say_that_equal_vectors_have_moved_apart(run, tiny):
    _, out, _ = run("compare", "the cat", "the cat", "--word", "cat", "--model", tiny)
    assert "The word's two vectors start at similarity 1.000 and end at 1.000." in out
    bind_imports(compare)
    assert compare._conclusion(1.0, 0.99996) == "The word's two vectors start at similarity 1.000 and end at 1.000."
    assert "falls from 1.000 to 0.999." in compare._conclusion(1.0, 0.9992)


@pytest.mark.parametrize("command", ["models", "info"])
@pytest.mark.parametrize("columns", ["80", "120"])
def test_names_and_paths_are_not_broken(run, monkeypatch, tmp_path, command, columns):
    folder = tmp_path / ("a-folder-with-a-long-name-" * 4) / "minilm"
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("regard.models.hub.resolve.installed", lambda: [(KNOWN["minilm"], folder)])
    _, out, _ = run(command)
    assert str(folder) in out
    assert KNOWN["minilm"].summary in " ".join(out.split()) or command == "info"
    assert all(len(line) <= int(columns) or str(tmp_path) in line for line in out.splitlines())
    assert all(line == line.rstrip() for line in out.splitlines())


def test_info_of_a_model_reads_no_weights(run, monkeypatch):
    packed = []
    monkeypatch.setattr("regard.models.families.pack", packed.append)
    status, out, _ = run("info", "--model", "induction")
    assert status == 0
    assert "ignored fields" in out
    assert not packed
    assert run("qzkfqz", "--model", "induction")[0] == 0
    assert len(packed) == 1  # of a command that runs it


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_covers_the_commands(run, shell):
    status, out, _ = run("completion", shell)
    assert status == 0
    assert "compare" in out
    assert "show-special-tokens" in out


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash on this system")
@pytest.mark.parametrize(("typed", "offered"), [
    ("cat --lay", "--layer"),
    ("--lay", "--layer"),
    ("explain cat --lay", "--layer"),
    ("cat --model mini", "minilm"),
    ("pull mini", "minilm"),
    ("cat --file pict", "picture.png"),
    ("cat --movement pict", "picture.png"),
    ("cat --output pict", "picture.png"),
    ("heads cat --sort ind", "induction"),
    ("cat --toy --positions sin", "sinusoidal"),
])  # fmt: skip
def test_a_shell_completes(run, tmp_path, typed, offered):
    (tmp_path / "script").write_text(run("completion", "bash")[1])
    (tmp_path / "picture.png").touch()
    words = typed.split()
    ask = f'. ./script; COMP_WORDS=(regard "$@"); COMP_CWORD={len(words)}; _shtab_regard; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", ask, "bash", *words], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [offered]


@pytest.mark.parametrize(
    "command", ["", "show", "explain", "compare", "generate", "models", "pull", "info", "completion"]
)
def test_help_has_examples(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([*([command] if command else []), "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert "examples:\n  regard" in out.replace("  echo", "  regard")
    assert command or "regard show --help lists its options" in out


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")
@pytest.mark.parametrize(("colour", "coloured"), [("never", False), ("auto", True)])
def test_a_terminal_gets_colour_unless_it_is_switched_off(colour, coloured):
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    argv = [sys.executable, "-m", "regard", "a b", "--toy", "--color", colour]
    with subprocess.Popen(argv, stdout=theirs, stderr=subprocess.PIPE, env=environment):
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while piece := os.read(ours, 1 << 16):
                shown += piece
    os.close(ours)
    assert b"toy layer" in shown
    assert (b"\x1b[38;2;" in shown or b"48;2;" in shown) == coloured


def test_no_columns_is_no_width(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert "attends most to" in run("a b", "--toy")[1]


def test_the_name_of_a_folder_is_inert(run, write_bert, monkeypatch, tmp_path):
    tiny = str(write_bert(folder="evil\x1b[31m\u202e"))
    monkeypatch.setenv("REGARD_MODELS", tiny)
    for argv in ([TEXT], ["explain", TEXT], ["compare", "the cat", "a cat", "--word", "cat"]):
        status, out, _ = run(*argv, "--model", tiny)
        assert status == 0
        assert "evil␛[31m⟨U+202E⟩" in out.replace("\n", "")
        assert "\x1b" not in out
    assert "\x1b" not in run("info")[1]


def test_hostile_special_tokens_are_inert(run, tiny):
    """The name of a special token is the model's, and a model is a stranger's too."""
    import regard.text

    vocabulary = Path(tiny) / "vocab.txt"
    backend = regard.text.SubwordTokenizer.from_wordpiece(vocabulary).backend.to_str()
    Path(tiny, "tokenizer.json").write_text(backend.replace("[CLS]", r"\u001b[31mCLS\u0007\u202e"))
    Path(tiny, "tokenizer_config.json").write_text(json.dumps({"cls_token": "\x1b[31mCLS\x07\u202e"}))
    for options in ([], ["--show-special-tokens"], ["--word", "cat"]):
        status, out, error = run(TEXT, "--model", tiny, *options)
        assert (status, error) == (0, "")
        assert "␛[31m" in out
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out)


def test_hostile_text_is_inert(run):
    _, out, _ = run("evil\x1b[31m\x07 \u202egnp.exe a\u0000b \x9b2J", "--toy")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out)
    assert "␛[31m" in out
    assert "⟨U+202E⟩" in out


def test_of_an_encoder_decoder_the_encoder_is_shown(run):
    folder = str(golden.FOLDER / "t5/relu")
    trace = Trace()
    regard.load(folder)("w5 w6 w7", trace=trace)
    status, out, _ = run("w5 w6 w7", "--model", folder, "--json")
    assert status == 0
    weights = trace["encoder.blocks.1.attn.weights"][0].mean(0, dtype=np.float64)
    np.testing.assert_allclose(json.loads(out)["weights"], weights, atol=1e-6)
    assert run("explain", "w5 w6 w7", "--model", folder)[0] == 0
    assert run("compare", "w5 w6", "w6 w7", "--word", "w6", "--model", folder)[0] == 0


def test_the_layers_to_show_are_those_with_a_map(run):
    words = ("w5 w6 w7", "--model", str(golden.FOLDER / "qwen3_next/mixed"))  # layers 1 and 3 have none
    assert json.loads(run(*words, "--json")[1])["layer"] == 2
    assert json.loads(run("explain", *words, "--json")[1])["layer"] == 0


def test_a_long_file_is_cut_and_drawn_without_a_word(run, write_bert, tmp_path):
    folder, page = str(write_bert()), tmp_path / "page.txt"
    page.write_text("the cat sat on the mats " * 40)
    given = ["--file", str(page), "--model", folder]
    assert "accepts at most 7" in run(*given)[2]
    status, out, err = run(*given, "--truncate", "--quiet", "-o", str(tmp_path / "map.svg"))
    assert (status, out) == (0, "")
    assert err == f"wrote {tmp_path / 'map.svg'}\n" or "map.svg" in err
    assert "--quiet prints nothing" in run(*given, "--truncate", "--quiet")[2]
    assert "7 tokens" in run(*given, "--truncate")[1]


def test_a_word_that_occurs_twice_is_said_to_be_averaged(run):
    _, out, _ = run("compare", "a cat b cat", "a cat", "--word", "cat", "--toy")
    assert "In A the word occurs 2 times: its vectors are averaged." in out
    assert "In B" not in out
    assert "meaningless" in out  # random weights
