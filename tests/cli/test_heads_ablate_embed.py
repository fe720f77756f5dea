"""regard heads, ablate and embed, against the Python API."""

import io
import json
import re
import subprocess
import sys

import numpy as np
import pandas
import pytest

import regard
from regard import Trace
from regard.cli import main
from regard.functional import softmax
from regard.metrics import METRICS, corpus_head_metrics, head_metrics, repeated_tokens
from regard.metrics.registry import listed_metrics
from regard.trace.edits import ablate

TEXT = "the cat the cat"


@pytest.fixture
def tiny(write_bert):
    folder = write_bert()
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return str(folder)


def measured(folder):
    trace = Trace(maps=True, only="*")
    regard.load(folder)(TEXT, trace=trace)
    return head_metrics(trace)


def test_heads_are_sorted_with_missing_values_last(run, tiny):
    _, out, _ = run("heads", TEXT, "--model", tiny, "--sort", "previous_token", "--json")
    rows = json.loads(out)["heads"]
    assert [row["previous_token"] for row in rows] == sorted(measured(tiny).previous_token.ravel(), reverse=True)
    _, out, _ = run("heads", "the cat", "--model", tiny, "--json")
    assert json.loads(out)["heads"][0]["induction"] is None
    every = run("heads", "the cat", "--model", tiny, "--all")[1]
    assert re.findall(r"^(L\dH\d) .*–", every, re.MULTILINE) == [f"L{layer}H{head}" for layer, head in np.ndindex(2, 3)]
    by_distance = run("heads", TEXT, "--model", tiny, "--sort", "distance")[1]
    heads = re.findall(r"^(L\dH\d) +\S+ +(\S+)", by_distance, re.MULTILINE)
    assert len(heads) == 6
    assert heads == sorted(heads, key=lambda head: -float(head[1]))


@pytest.mark.parametrize("entry", listed_metrics(), ids=lambda entry: entry.name)
def test_what_a_metric_is_fits_on_one_line(entry):
    assert len(entry.description) <= 78


def test_sort_takes_each_metric_whatever_is_imported_first():
    shown = subprocess.run(
        [sys.executable, "-m", "regard", "heads", "--help"], capture_output=True, text=True, check=True
    )
    assert f"first: layer, {', '.join(METRICS)}" in " ".join(shown.stdout.split())


def test_heads_on_repeated_tokens(run, write_bert):
    table = np.random.default_rng(0).standard_normal((40, 12)).astype(np.float32)
    folder = write_bert({"max_position_embeddings": 40}, {"embeddings.position_embeddings.weight": table})
    status, out, _ = run("heads", "--repeated-tokens", "5", "--model", str(folder), "--json")
    assert status == 0
    found = repeated_tokens(regard.load(folder), length=5)
    told = [row["induction"] for row in json.loads(out)["heads"]]
    np.testing.assert_allclose(told, found.induction.ravel(), rtol=1e-12)


def test_ablate_shows_the_cosine_of_each_token(run, tiny):
    status, out, err = run("ablate", TEXT, "--model", tiny, "--head", "L0H1", "--head", "L1H2")
    assert (status, err) == (0, "")
    assert "L0H1, L1H2 ablated by zero" in " ".join(out.split())
    model = regard.load(tiny)
    before, after = model(TEXT).hidden[0], model(TEXT, edit=ablate((0, 1), (1, 2))).hidden[0]
    tokens = ["[CLS]", "the", "cat", "the", "cat", "[SEP]"]
    for token, one, other in zip(tokens, before, after, strict=True):
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        assert re.search(rf"^{re.escape(token)} +{cosine:.4f}$", out, re.MULTILINE)
    _, out, _ = run("ablate", TEXT, "--model", tiny, "--head", "L0H1", "--by", "mean", "--json")
    told = json.loads(out)
    assert (told["heads"], told["by"], [row["token"] for row in told["cosines"]]) == (["L0H1"], "mean", tokens)


def test_ablate_shows_the_changed_next_token_probabilities(run):
    model, argv = regard.load("induction"), ["ablate", "qzkfqz", "--model", "induction", "--head", "L0H1", "--top", "4"]
    status, out, _ = run(*argv, "--json")
    assert status == 0
    outputs = model("qzkfqz"), model("qzkfqz", edit=ablate((0, 1)))
    before, after = (softmax(output.logits[0, -1].astype(float)) for output in outputs)
    order = np.argsort(-abs(after - before))[:4]
    rows = json.loads(out)["next"]
    assert [row["token"] for row in rows] == [model.tokenizer.decode([int(i)]) for i in order]
    np.testing.assert_allclose([row["before"] for row in rows], before[order], rtol=1e-5)
    np.testing.assert_allclose([row["after"] for row in rows], after[order], rtol=1e-5)
    _, out, _ = run(*argv)
    assert f"{rows[0]['after'] - rows[0]['before']:+.4f}".replace("-", "−") in out
    assert " -0." not in out


LINES = ["the cat sat", "a b", "the mats"]


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES) + "\n")
    return str(path)


def test_embed_writes_the_vector_of_each_line(run, tiny, lines, tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    vectors = regard.load(tiny).embed(LINES)
    array, table = tmp_path / "vectors.npy", tmp_path / "vectors.parquet"
    for out in (array, table):
        told = f"wrote {out}: 3 vectors of 12 numbers\n"
        assert run("embed", lines, "--model", tiny, "-o", str(out)) == (0, "", told)
    np.testing.assert_array_equal(np.load(array), vectors)
    read = parquet.read_table(table)
    assert read.column("text").to_pylist() == LINES
    assert read.column("line").to_pylist() == [1, 2, 3]
    np.testing.assert_array_equal(np.array(read.column("vector").to_pylist(), np.float32), vectors)
    monkeypatch.setattr(screen := io.StringIO(), "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    assert main(["embed", lines, "--model", tiny, "-o", str(array)]) == 0
    assert "3/3" in screen.getvalue()  # a bar is drawn at a terminal alone


def test_embed_takes_texts_and_standard_input(run, tiny, tmp_path, monkeypatch):
    vectors = regard.load(tiny).embed(LINES)
    out = str(tmp_path / "vectors.npy")
    typed = [part for line in LINES for part in ("--text", line)]
    assert run("embed", *typed, "--model", tiny, "-o", out)[0] == 0
    np.testing.assert_array_equal(np.load(out), vectors)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\r\n".join(LINES).encode())))
    assert run("embed", "-", "--model", tiny, "-o", out, "--batch-size", "1")[0] == 0
    np.testing.assert_allclose(np.load(out), vectors, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("content", "message", "option"), [
    ("the cat\n\na\n  \n", "regard: lines 2, 4 are empty: --skip-empty leaves them out\n", "--skip-empty"),
    ("a\na b c d e f g\n", "line 2 has 9 tokens, but ", "--truncate"),
])  # fmt: skip
def test_embed_names_the_lines_that_it_cannot_take_and_takes_them_on_request(
    run, tiny, tmp_path, content, message, option
):
    path, out = tmp_path / "lines.txt", tmp_path / "vectors.npy"
    path.write_text(content)
    out.write_bytes(b"kept")
    status, _, err = run("embed", str(path), "--model", tiny, "-o", str(out))
    assert (status, message in err) == (2, True)
    assert out.read_bytes() == b"kept"
    assert run("embed", str(path), "--model", tiny, "-o", str(out), option)[0] == 0
    assert np.load(out).shape == (2, 12)


def test_a_pooling_may_be_chosen(run, write_bert, tmp_path):
    folder, out = write_bert(), tmp_path / "v.npy"
    assert run("embed", "--text", "a", "-o", str(out), "--model", str(folder), "--pooling", "max")[0] == 0
    np.testing.assert_array_equal(np.load(out), regard.load(folder).embed(["a"], pooling="max"))
    status, _, err = run("embed", "--text", "a", "-o", str(out), "--model", str(folder), "--pooling", "min")
    assert (status, "invalid choice: 'min' (choose from 'cls', 'max'" in err) == (2, True)


@pytest.fixture
def sentences(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("the cat the cat\n\na cat sat\n  the the\n")
    return str(path)


def test_heads_of_a_corpus_are_a_table_and_its_means(run, tiny, sentences, tmp_path):
    """An empty line is not a text, and is left out of the mean, which is said."""
    parquet = pytest.importorskip("pyarrow.parquet")
    metrics = corpus_head_metrics(regard.load(tiny), ["the cat the cat", "a cat sat", "the the"])
    found = metrics.to_columns()
    for suffix in ("parquet", "csv"):
        path = tmp_path / f"heads.{suffix}"
        status, out, err = run("heads", "--corpus", sentences, "--model", tiny, "--output", str(path))
        assert status == 0
        assert "6 heads averaged over 3 texts" in " ".join(out.split())
        assert f"heads.{suffix}" in err
        assert "regard: 1 empty line is left out of the mean\n" in err
    table = parquet.read_table(tmp_path / "heads.parquet")
    assert table.column_names == list(found)
    for name, column in found.items():
        np.testing.assert_array_equal(table[name].to_numpy(), column)
    lines = (tmp_path / "heads.csv").read_text().splitlines()
    assert lines[0] == ",".join(found)
    assert len(lines) == 7
    np.testing.assert_array_equal([float(line.split(",")[2]) for line in lines[1:]], found["entropy"])
    shown = json.loads(run("heads", "--corpus", sentences, "--model", tiny, "--json")[1])
    assert shown["corpus"] == sentences
    for row in shown["heads"]:
        assert row["sink"] == metrics.means["sink"][row["layer"], row["head"]]


def test_a_corpus_has_texts_of_which_long_ones_are_cut_on_request(run, tiny, tmp_path):
    path = tmp_path / "corpus.txt"
    given = ("heads", "--corpus", str(path), "--model", tiny, "--json")
    path.write_text("\n \n")
    status, _, err = run(*given)
    assert (status, "every line is empty" in err) == (2, True)
    path.write_text(f"{TEXT}\n{'the cat ' * 40}\n")
    status, _, err = run(*given)
    assert (status, "accepts at most" in err) == (2, True)
    assert run(*given, "--truncate")[0] == 0
    assert run("heads", TEXT, "--truncate", "--model", tiny)[0] == 2


def test_heads_of_a_text_are_a_table_too_and_what_it_holds_is_said(run, tmp_path):
    """The line about a file says what is in it, not what another kind of file would need."""
    path = tmp_path / "heads.csv"
    status, _, err = run("heads", "qzkfqz", "--model", "induction", "-o", str(path))
    assert (status, err.splitlines()[-1]) == (0, f"wrote {path}: a row for each of 8 heads")
    lines = path.read_text().splitlines()
    assert lines[0].startswith("text,layer,head,entropy,")
    assert lines[0].endswith(",label")
    assert len(lines) == 9


@pytest.mark.parametrize(("command", "other"), [("heads", ".csv"), ("embed", ".npy")])
def test_parquet_without_pyarrow_is_an_error_before_anything_is_computed(capsys, monkeypatch, tmp_path, command, other):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "found.parquet"
    source = ["--file", "absent"] if command == "embed" else ["qzkfqz", "--model", "nowhere/such-model"]
    given = ["embed", str(tmp_path / "lines.txt")] if command == "embed" else [command, *source]
    (tmp_path / "lines.txt").write_text("a text")
    assert main([*given, "-o", str(path)]) != 0
    assert f"pip install 'regard[parquet]', or write a {other} file" in capsys.readouterr().err
    assert not path.exists()


TABLE = ["The cat sat.", "", "A dog, which ran", "=cmd()"]


@pytest.fixture(params=[".csv", ".tsv", ".jsonl", ".parquet"])
def table(request, tmp_path):
    """A table with a number and a text in each row, one of which has none."""
    path = tmp_path / f"texts{request.param}"
    frame = pandas.DataFrame({"n": range(len(TABLE)), "text": [text or None for text in TABLE]})
    if request.param == ".parquet":
        frame.to_parquet(path)
    elif request.param == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep="\t" if request.param == ".tsv" else ",")
    return path


def test_embed_reads_a_column_of_a_table(run, tiny, table, tmp_path):
    given = ["embed", str(table), "--model", tiny, "-o", str(tmp_path / "v.npy")]
    for options, message in (
        ([], "is a table: name the column of its texts, --column, one of n, text"),
        (["--column", "words"], "has no column 'words'"),
        (["--column", "n"], "" if table.suffix == ".csv" or table.suffix == ".tsv" else "row 1 of"),
        (["--column", "text"], "row 2 is empty"),
    ):
        status, _, err = run(*given, *options)
        assert (status, message in err) == (2 if message else 0, True)
    assert run(*given, "--column", "text", "--skip-empty")[0] == 0
    found = np.load(tmp_path / "v.npy")
    np.testing.assert_array_equal(found, regard.load(tiny).embed([text for text in TABLE if text]))


def test_heads_read_a_column_of_a_table(run, tiny, table):
    out = " ".join(run("heads", "--corpus", str(table), "--column", "text", "--model", tiny)[1].split())
    assert "averaged over 3 texts" in out
    assert "is a table: name the column" in run("heads", "--corpus", str(table), "--model", tiny)[2]


@pytest.mark.parametrize("name", ["texts.json", "texts.jsonl.gz", "texts.pdf"])
def test_files_that_hold_no_text_a_line_are_refused(run, tiny, tmp_path, name):
    (tmp_path / name).write_text("[1]\n")
    for command in (
        ["embed", str(tmp_path / name), "-o", str(tmp_path / "v.npy")],
        ["heads", "--corpus", str(tmp_path / name)],
    ):
        assert "does not hold one text per line" in run(*command, "--model", tiny)[2]


def test_corpora_of_every_command_have_the_same_lines(run, tiny, tmp_path):
    path, out = tmp_path / "s.txt", tmp_path / "v.npy"
    path.write_bytes("the cat\u2028a.\nA b\u0085c.\rthe\x0c\x0bd.\n".encode())
    assert run("embed", str(path), "--model", tiny, "-o", str(out))[0] == 0
    assert len(np.load(out)) == 3
    assert "averaged over 3 texts" in " ".join(run("heads", "--corpus", str(path), "--model", tiny)[1].split())


def test_embed_takes_prompts_and_a_limit(run, tiny, tmp_path):
    out = str(tmp_path / "v.npy")
    given = ["embed", "--text", "the cat", "--model", tiny, "-o", out]
    assert run(*given, "--prompt", "a b ", "--max-length", "7")[0] == 0
    np.testing.assert_array_equal(np.load(out), regard.load(tiny).embed(["a b the cat"]))
    assert "embeds at most 3" in run(*given, "--max-length", "3")[2]
    assert "no prompt 'title'" in run(*given, "--prompt-name", "title")[2]


@pytest.mark.parametrize("command", ["show", "heads", "embed"])
def test_texts_of_another_language_are_told_in_a_line(run, tiny, tmp_path, command):
    text = "zebra yacht the xylophone"
    given = ["--text", text, "-o", str(tmp_path / "v.npy")] if command == "embed" else [text]
    status, _, err = run(command, *given, "--model", tiny)
    assert status == 0
    assert "3 of 4 tokens are unknown, and look the same, to" in err
    assert "choose a model of this language, --model NAME" in err
    known = ["--text", "the cat", "-o", str(tmp_path / "w.npy")] if command == "embed" else ["the cat"]
    assert "unknown" not in run(command, *known, "--model", tiny)[2]


def test_heads_of_a_corpus_say_of_how_many_texts_a_mean_is(run, tiny, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("the cat the cat\na b\nthe mats\n")
    out = " ".join(run("heads", "--corpus", str(path), "--model", tiny)[1].split())
    assert re.search(r"Of 3 texts .*induction of 1.*: the others have no case", out)
    path.write_text("the cat the cat\na b a b\n")
    assert "the others have no case" not in " ".join(run("heads", "--corpus", str(path), "--model", tiny)[1].split())
