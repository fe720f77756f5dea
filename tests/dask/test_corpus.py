"""Runs over a corpus in this process: what is read, cut, written, continued and refused."""

import bz2
import gzip
import json
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pyarrow
import pytest
from corpora import parts, sentences
from hypothesis import given, strategies as st
from pyarrow import parquet

import regard
from regard import RegardError
from regard.cli import main
from regard.dask import output
from regard.dask.partitions import Scan, cut, first_rows, spread
from regard.dask.source import Piece, open_corpus

MODEL = ["--model", "induction", "--pooling", "mean"]  # of characters a to z
TEXTS = ["abcabc", "qzk", "kqxkqxab", "a", "zzzz", "bcd", "xyxyxyxy"]


@pytest.fixture
def embed(tmp_path, capsys):
    """Return a function that runs the command over a file, and gives the exit status, the output and the errors."""

    def run(file, *options, out="out"):
        status = main(["embed", str(file), "--out", str(tmp_path / out), *MODEL, *map(str, options)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def table(folder):
    return pyarrow.concat_tables([parquet.read_table(path) for path in sorted(folder.glob("part-*.parquet"))])


def vectors(texts):
    return regard.load("induction").embed(texts, pooling="mean")


def write(path, texts, column="text"):
    frame = pandas.DataFrame({"id": range(len(texts)), column: texts})
    writers = {
        ".parquet": lambda: frame.to_parquet(path, row_group_size=3),
        ".csv": lambda: frame.to_csv(path, index=False),
        ".jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        ".gz": lambda: frame.to_json(path, orient="records", lines=True),
        ".txt": lambda: path.write_text("\n".join(texts) + "\n"),
    }
    writers[path.suffix]()
    return path


@pytest.mark.parametrize("name", ["c.parquet", "c.csv", "c.jsonl", "c.jsonl.gz", "c.txt"])
def test_each_format_gives_the_vectors_of_one_call(embed, tmp_path, name):
    status, _, errors = embed(write(tmp_path / name, TEXTS), "--partition-tokens", 9)
    assert status == 0, errors
    found = table(tmp_path / "out")
    assert found["row"].to_pylist() == list(range(1, len(TEXTS) + 1))
    assert set(found["file"].to_pylist()) == {f"file://{tmp_path / name}"}
    assert found["error"].null_count == len(TEXTS)
    np.testing.assert_array_equal(np.array(found["vector"].to_pylist(), np.float32), vectors(TEXTS))


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # in Dask
def test_the_folder_is_a_data_set_of_parquet(embed, tmp_path):
    embed(write(tmp_path / "c.csv", TEXTS), "--partition-tokens", 9)
    whole = table(tmp_path / "out").to_pandas()
    pandas.testing.assert_frame_equal(pandas.read_parquet(tmp_path / "out"), whole)
    import dask.dataframe as dd

    again = dd.read_parquet(tmp_path / "out", dtype_backend="pyarrow").compute(scheduler="sync")
    assert again["row"].tolist() == whole["row"].tolist()


def test_addresses_of_fsspec(embed, tmp_path):
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.pipe_file("/in/c.txt", "\n".join(TEXTS).encode())
    assert main(["embed", "memory://in/c.txt", "--out", "memory://out", *MODEL]) == 0
    names = sorted(name.rpartition("/")[2] for name in fs.ls("/out", detail=False))
    assert names == ["_manifest.json", "part-0000000.parquet"]
    with fs.open("/out/part-0000000.parquet") as stream:
        found = parquet.read_table(stream)
    np.testing.assert_array_equal(np.array(found["vector"].to_pylist(), np.float32), vectors(TEXTS))


def texts_in(path):
    return [value for piece in open_corpus(str(path)).pieces for value in piece.read()]


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 20])
def test_a_line_is_in_one_piece_whatever_their_size(tmp_path, monkeypatch, block):
    monkeypatch.setattr("regard.dask.source._BLOCK", block)
    for text in ("a\nbb\n\nccc", "a\r\nbb\r\n", "\n\n", "", "é\n" * 3):
        (tmp_path / "c.txt").write_bytes(text.encode())
        expected = text.replace("\r", "").removesuffix("\n").split("\n") if text else []
        assert texts_in(tmp_path / "c.txt") == expected


@given(st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=8), st.integers(1, 60))
def test_partitions_hold_every_row_once_in_order_and_at_most_their_tokens(pieces, most):
    names = [Piece(f"file{i // 2}", "text", "text", i, 1) for i in range(len(pieces))]
    scans = [Scan(np.array(lengths, np.int64), (), 0, str(i)) for i, lengths in enumerate(pieces)]
    found = cut(names, scans, most)
    counted = [each.counted for each in scans]
    assert spread(names, counted, [(each.rows, each.tokens) for each in found]) == found  # known by their rows
    rows = [(s.piece, i) for each in found for s in each.segments for i in range(s.start, s.stop)]
    assert rows == [(piece, i) for piece, lengths in zip(names, pieces, strict=True) for i in range(len(lengths))]
    tokens = {piece: [max(n, 1) for n in lengths] for piece, lengths in zip(names, pieces, strict=True)}
    sums = [sum(sum(tokens[s.piece][s.start : s.stop]) for s in each.segments) for each in found]
    assert sums == [each.tokens for each in found]
    assert all(total <= most or each.rows == 1 for total, each in zip(sums, found, strict=True))


def test_rows_that_cannot_be_embedded_are_named(embed, tmp_path):
    rows = ["abc", None, 7, "", "a" * 10_000, ["a"], "cab"]
    file = tmp_path / "c.jsonl"
    lines = [json.dumps({"text": row}) for row in rows] + ["{broken", json.dumps({"other": 1})]
    file.write_text("\n".join(lines))
    status, _, errors = embed(file)
    assert status == 0
    assert "7 rows could not be run, see the column error; the first: file://" in errors
    assert "c.jsonl row 2: null" in errors
    found = table(tmp_path / "out")
    said = [None, "null", "no text but int", "empty", "10,000 tokens, but induction accepts", "no text but list", None]
    said += ["not UTF-8, not JSON, or a key twice", "null"]
    for one, expected in zip(found["error"].to_pylist(), said, strict=True):
        assert one == expected or one.startswith(expected)
    assert [vector is None for vector in found["vector"].to_pylist()] == [error is not None for error in said]


def test_10_mb_in_one_row(embed, tmp_path):
    file = write(tmp_path / "c.parquet", ["abc", "ab" * 5_000_000, "cab"])
    assert embed(file)[0] == 0
    assert table(tmp_path / "out")["error"].to_pylist()[1].startswith("more than ")
    assert embed(file, "--truncate", out="cut")[0] == 0
    found = table(tmp_path / "cut")
    assert found["error"].null_count == 3
    expected = regard.load("induction").embed(["ab" * 5_000], pooling="mean", truncate=True)
    np.testing.assert_array_equal(np.array(found["vector"].to_pylist()[1:2], np.float32), expected)


def test_an_empty_row_group_and_an_empty_file(embed, tmp_path):
    schema = pyarrow.schema([("text", pyarrow.string())])
    (tmp_path / "in").mkdir()
    with parquet.ParquetWriter(tmp_path / "in" / "a.parquet", schema) as writer:
        for rows in (["abc"], [], ["cab"]):
            writer.write_table(pyarrow.table({"text": pyarrow.array(rows, pyarrow.string())}))
    parquet.write_table(schema.empty_table(), tmp_path / "in" / "b.parquet")
    assert embed(tmp_path / "in")[0] == 0
    assert table(tmp_path / "out")["row"].to_pylist() == [1, 2]


def test_the_same_command_computes_what_is_missing(embed, tmp_path):
    file = write(tmp_path / "c.parquet", TEXTS)
    embed(file, "--partition-tokens", 9)
    whole = parts(tmp_path / "out")
    (tmp_path / "out" / "part-0000001.parquet").unlink()
    others = {path: path.stat().st_ino for path in (tmp_path / "out").glob("part-*")}
    status, _, errors = embed(file, "--partition-tokens", 9)
    assert status == 0
    assert f"{len(whole) - 1} of them there before" in errors
    assert parts(tmp_path / "out") == whole
    assert {path: path.stat().st_ino for path in others} == others


def swap_rows(manifest):
    (first, *_), (second, *_) = manifest["partitions"][:2]
    manifest["partitions"][0][0], manifest["partitions"][1][0] = first + 1, second - 1


DAMAGE = {
    "bounds": swap_rows,
    "a row twice": lambda manifest: manifest["partitions"][1].__setitem__(0, 99),
    "a row lost": lambda manifest: manifest["partitions"].pop(),
    "an empty partition": lambda manifest: manifest["partitions"].append([0, 0]),
    "negative rows": lambda manifest: manifest["partitions"].extend([[-1, 1], [1, 1]]),
    "no number": lambda manifest: manifest["partitions"][0].__setitem__(0, "3"),
    "a piece more": lambda manifest: manifest["pieces"].append(manifest["pieces"][0]),
    "a piece lost": lambda manifest: manifest["pieces"].pop(),
    "a piece without rows": lambda manifest: manifest["pieces"][0].__setitem__(1, 0),
    "another digest": lambda manifest: manifest["pieces"][0].__setitem__(0, "0" * 64),
    "no texts": lambda manifest: manifest["identity"].pop("texts"),
    "a list": lambda manifest: manifest.update(identity=[1]),
    "no errors": lambda manifest: manifest.update(errors=[["file", "row", "reason"]]),
    "another format": lambda manifest: manifest.update(format="regard: partitions of a corpus, 2"),
}


@pytest.mark.parametrize("signed", [False, True], ids=["by hand", "with its digest"])
@pytest.mark.parametrize("name", DAMAGE)
def test_a_manifest_that_does_not_cover_the_corpus_is_one_sentence(embed, tmp_path, name, signed):
    file = write(tmp_path / "c.parquet", TEXTS)
    embed(file, "--partition-tokens", 9)
    path = tmp_path / "out" / "_manifest.json"
    manifest = json.loads(path.read_text())
    DAMAGE[name](manifest)
    if signed:
        manifest.pop("sha256")
        manifest["sha256"] = output._sha256(manifest)
    path.write_text(json.dumps(manifest))
    for part in (tmp_path / "out").glob("part-*"):
        part.unlink()
    status, _, errors = embed(file, "--partition-tokens", 9)
    if (name, signed) == ("bounds", True):
        assert status == 0  # other partitions, which hold every row once
        assert table(tmp_path / "out")["row"].to_pylist() == list(range(1, len(TEXTS) + 1))
        return
    assert (status, errors.count("\n")) == (2, 1)
    assert re.search("is damaged or of another version|other texts", errors)


def test_a_manifest_names_no_files(embed, tmp_path):
    file = write(tmp_path / "c.parquet", TEXTS)
    embed(file)
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert all(len(piece) == 2 and len(piece[0]) == 64 and type(piece[1]) is int for piece in manifest["pieces"])


@pytest.mark.parametrize("rows", [[1, 2], [2, 1]], ids=["too few", "none of an empty piece"])
def test_rows_that_a_manifest_leaves_out_are_found_when_they_are_read(embed, tmp_path, rows):
    """The digest and the sums of the manifest are right, and its number of rows of a piece is not."""
    (tmp_path / "in").mkdir()
    for number, texts in enumerate((["abc", "ab"], ["b"] if rows == [2, 1] else ["b", "c"])):
        write(tmp_path / "in" / f"{number}.txt", texts)
    embed(tmp_path / "in")
    path = tmp_path / "out" / "_manifest.json"
    manifest = json.loads(path.read_text())
    pieces = [[manifest["pieces"][0][0], rows[0]], [manifest["pieces"][1][0], rows[1] if rows == [1, 2] else 0]]
    manifest.update(pieces=pieces, partitions=[[sum(count for _, count in pieces), 9]])
    manifest.pop("sha256")
    path.write_text(json.dumps(manifest | {"sha256": output._sha256(manifest)}))
    (tmp_path / "out" / "part-0000000.parquet").unlink()
    status, _, errors = embed(tmp_path / "in")
    assert (status, errors.count("\n")) == (2, 1)
    assert "has changed since the run began" in errors


def test_a_manifest_at_an_address_is_read_up_to_the_limit(monkeypatch):
    import fsspec

    fsspec.filesystem("memory").pipe_file("/large/_manifest.json", b"[" * 1001)
    monkeypatch.setattr(output.OutputFolder._read, "__defaults__", (1000,))
    with pytest.raises(RegardError, match=r"cannot read memory://large/_manifest.json: it has more than the limit"):
        output.OutputFolder("memory://large").read_manifest()


def test_a_touched_file_is_the_same_input_and_a_changed_one_is_not(embed, tmp_path):
    file = write(tmp_path / "c.parquet", TEXTS)
    embed(file)
    os.utime(file, (1, 1))
    assert embed(file)[0] == 0
    write(file, [*TEXTS[:-1], "abab"])
    status, _, errors = embed(file)
    assert status == 2
    assert "is of a run with other texts: repeat that run as it was, or give a new folder" in errors


@pytest.mark.parametrize(
    ("options", "other"),
    [(["--truncate"], "truncate"), (["--pooling", "max"], "pooling"), (["--partition-tokens", "5"], "tokens")],
)
def test_other_options_into_the_same_folder_are_an_error(embed, tmp_path, options, other):
    file = write(tmp_path / "c.parquet", TEXTS)
    embed(file)
    whole = parts(tmp_path / "out")
    status, _, errors = embed(file, *options)
    assert status == 2
    assert len(errors.splitlines()) == 1
    assert f"is of a run with other {other}" in errors
    assert parts(tmp_path / "out") == whole


def corpus(folder):
    return write(folder / "c.parquet", TEXTS)


def put(path, content):
    """Write bytes, texts or a table; a pipe where the content is None. Return the path."""
    path.parent.mkdir(exist_ok=True)
    if content is None:
        os.mkfifo(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif callable(content):
        content(path)
    else:
        write(path, content)
    return path


def no_rows(path):
    parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), path)


def two_formats(path):
    path.mkdir()
    for name in ("a.csv", "b.txt"):
        write(path / name, TEXTS)


PACKED = ("text\n" + "abc\n" * 5000).encode()
CUT_AND_CHANGED = [
    (f"c.{kind}.{suffix}", damaged)
    for kind, suffix, module in (("jsonl", "gz", gzip), ("txt", "bz2", bz2), ("csv", "xz", lzma))
    for packed in [module.compress(PACKED)]
    for half in [len(packed) // 2]
    for damaged in (packed[:half], packed[:half] + b"\0\1" + packed[half + 2 :])
]
NOT_A_FILE = "it is not a regular file"
MANIFESTS = [  # and what is said of them
    (b"{", "_manifest.json is damaged"),
    (b'{"a": ' * 100_000, "is damaged"),
    (None, NOT_A_FILE),
    (lambda path: path.symlink_to("/dev/zero"), NOT_A_FILE),
    (lambda path: (path.touch(), os.truncate(path, 1 << 40)), "more than the limit"),
    (Path.mkdir, "Is a directory"),
]
BAD_INPUT = [  # the file and other words of a command, and what is said
    (lambda f: [corpus(f), "--column", "txt"], "no column 'txt': give --column, one of id, text"),
    (lambda f: [f / "absent.parquet"], "there is no file"),
    (lambda f: [""], "the corpus has no name"),
    (lambda f: [corpus(f), "--out", ""], "no name"),
    (lambda f: [corpus(f), "--out", put(f / "full" / "mine.txt", b"kept").parent], "holds other files: give a new fol"),
    (lambda f: [corpus(f), "--out", corpus(f)], "is a file: give a folder"),
    *(
        (lambda f, made=made: [corpus(f), "--out", put(f / "out" / "_manifest.json", made).parent], said)
        for made, said in MANIFESTS
    ),
    (lambda f: [put(f / "bad.parquet", b"no parquet")], "cannot read"),
    (lambda f: [put(f / "mixed", two_formats)], "files of several formats, csv, text"),
    (lambda f: [put(f / "empty.csv", b"")], "has no column 'text': give --column, one of none"),
    (lambda f: [put(f / "none.parquet", no_rows)], "there is no text in"),
    *(
        (lambda f, name=name: [put(f / "in" / name, None).parent], f"{name}: {NOT_A_FILE}")
        for name in ("c.jsonl", "c.txt", "c.csv", "c.parquet")
    ),
    *(
        (lambda f, name=name, content=content: [put(f / name, content)], rf"cannot read .*{name}: \S")
        for name, content in CUT_AND_CHANGED
    ),
    (lambda f: [__file__], "is not a file of .parquet"),
    (lambda f: ["nowhere://c.parquet"], "cannot read nowhere://"),
    (lambda f: [corpus(f), "--workers", "2", "--scheduler", "tcp://127.0.0.1:1"], "choose one"),
    (lambda f: [corpus(f), "-o", "vectors.npy"], "neither --text, -o nor --skip-empty"),
    (lambda f: [corpus(f), "--memory", "1GB"], "processes that --workers starts"),
    (lambda f: [corpus(f), "--workers", "1", "--memory", "nonsense"], "an amount such as 2GB, got 'nonsense'"),
    (lambda f: [corpus(f), "--workers", "1", "--memory", "10MB"], "a worker needs 0.4 GB"),
    (lambda f: [corpus(f), "--scheduler", "here"], "here is not an address of a scheduler, such as .*: missing port"),
]


@pytest.mark.parametrize(("words", "said"), BAD_INPUT, ids=[f"{i}-{said!a}" for i, (_, said) in enumerate(BAD_INPUT)])
def test_bad_input_is_one_sentence(embed, tmp_path, words, said):
    file, *options = words(tmp_path)
    status, output, errors = embed(file, *options)
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert re.search(said, errors)
    assert "the same command continues" not in errors
    for path in tmp_path.glob("full/mine.txt"):
        assert path.read_text() == "kept"


def test_no_permission_is_one_sentence(tmp_path):
    """As another user, because root may do everything."""
    file = write(tmp_path / "c.parquet", TEXTS)
    if os.getuid() != 0:
        file.chmod(0)
        with pytest.raises(RegardError, match="no permission to read"):
            open_corpus(str(file))
        return
    code = f"""
import os, sys
from regard.dask.source import open_corpus
from regard.dask.output import OutputFolder
import pyarrow.parquet, fsspec.implementations.local
os.setuid(65534)
for act in (lambda: open_corpus({str(file)!r}), lambda: OutputFolder({str(tmp_path / "locked" / "out")!r}).create()):
    try:
        act()
    except Exception as error:
        print(type(error).__name__, error)
"""
    (tmp_path / "locked").mkdir()
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o001:
            break
    (tmp_path / "locked").chmod(0o700)
    file.chmod(0)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "RegardError no permission to read" in done.stdout
    assert "RegardError no permission to write" in done.stdout


def test_a_dry_run_writes_nothing(embed, tmp_path):
    file = write(tmp_path / "c.parquet", TEXTS)
    status, output, _ = embed(file, "--dry-run", "--partition-tokens", 9)
    assert status == 0
    lines = dict(line.split("  ", 1) for line in output.splitlines())
    assert lines["rows"].strip() == "7"
    assert lines["tokens"].strip() == str(sum(map(len, TEXTS)))
    assert {"partitions", "workers", "memory a worker", "time"} <= {name.strip() for name in lines}
    assert not (tmp_path / "out").exists()


@pytest.mark.minilm
def test_bits_depend_neither_on_the_batch_nor_on_the_partition(minilm):
    texts = sentences(50, longest=60)
    whole = minilm.embed(texts)
    for size in (1, 7, 32):
        np.testing.assert_array_equal(minilm.embed(texts[10:44], batch_size=size), whole[10:44])


def test_another_run_that_begins_in_the_folder_is_refused(embed, tmp_path, monkeypatch):
    """Both find an empty folder; the later one to write its manifest does not mix its partitions with the other's."""
    from regard.dask import run as runs

    file, real = write(tmp_path / "corpus.txt", TEXTS), runs.partition_corpus

    def late(*arguments):
        partitioning = real(*arguments)
        monkeypatch.setattr(runs, "partition_corpus", real)
        assert embed(file, "--pooling", "cls")[0] == 0  # begins and ends while this one reads the texts
        return partitioning

    monkeypatch.setattr(runs, "partition_corpus", late)
    status, _, err = embed(file)
    assert (status, err.count("\n")) == (2, 1)
    assert "is of a run with other pooling" in err
    assert embed(file, "--pooling", "cls")[0] == 0


def test_texts_that_change_during_a_run_are_an_error(embed, tmp_path, monkeypatch):
    from regard.dask import run as runs

    file, real = write(tmp_path / "corpus.txt", TEXTS), runs.partition_corpus

    def changed(*arguments):
        partitioning = real(*arguments)
        write(file, [text.upper()[:1] for text in TEXTS])
        return partitioning

    monkeypatch.setattr(runs, "partition_corpus", changed)
    status, _, err = embed(file)
    assert (status, err.count("\n")) == (2, 1)
    assert "corpus.txt has changed since the run began: give a new folder" in err
    assert not list((tmp_path / "out").glob("part-*"))


def test_a_run_continues_where_the_same_texts_were_written_again_or_elsewhere(embed, tmp_path):
    file = write(tmp_path / "corpus.jsonl", TEXTS)
    assert embed(file, "--partition-tokens", 8)[0] == 0
    expected = parts(tmp_path / "out")
    first, second = sorted(expected)[1:3]
    (tmp_path / "out" / first).unlink()
    file.write_text("".join(json.dumps({"n": 1, "other": "x" * 50, "text": text}) + "\n" for text in TEXTS))
    assert embed(file, "--partition-tokens", 8)[0] == 0
    assert parts(tmp_path / "out") == expected
    (tmp_path / "out" / second).unlink()
    moved = file.rename(tmp_path / "moved.jsonl")
    assert embed(moved, "--partition-tokens", 8)[0] == 0
    np.testing.assert_array_equal(
        np.stack(table(tmp_path / "out")["vector"].to_pylist()).astype(np.float32), vectors(TEXTS)
    )


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.txt.gz", "c.csv.gz"])
def test_what_expands_to_more_than_real_files_is_one_sentence(embed, tmp_path, monkeypatch, name):
    monkeypatch.setattr("regard.dask.source._LARGEST_UNPACKED", 100_000)
    (tmp_path / name).write_bytes(gzip.compress(b"text\n" + b"a" * 200_000))
    status, _, errors = embed(tmp_path / name)
    assert (status, errors.count("\n")) == (2, 1)
    assert f"{name} expands to more than" in errors


def test_a_lone_surrogate_is_the_error_of_its_row(embed, tmp_path):
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"text": "abc"}\n{"text": "a\\ud800b"}\n{"text": "qzk"}\n')
    assert embed(file)[0] == 0
    found = table(tmp_path / "out")
    assert [error is None for error in found["error"].to_pylist()] == [True, False, True]
    assert "lone surrogate" in found["error"][1].as_py()


MARK = b"\xef\xbb\xbf"  # of the byte order, which is no character
LETTERS = {f"{letter}.txt": letter.encode() for letter in "abc"}
READ = [  # files, what is opened, and its texts
    ({"c.txt": MARK + b"ab\ncd\n"}, "c.txt", ["ab", "cd"]),
    ({"c.csv": MARK + b"text\nab\ncd\n"}, "c.csv", ["ab", "cd"]),
    ({"c.jsonl": MARK + b'{"text":"ab"}\n{"text":"cd"}\n'}, "c.jsonl", ["ab", "cd"]),
    ({"c.jsonl": b'{"id": 1}\n' * 500 + b'{"id": 2, "text": "abc"}\n'}, "c.jsonl", [None] * 500 + ["abc"]),
    (LETTERS, "?.txt", ["a", "b", "c"]),
    (LETTERS, "[ab].txt", ["a", "b"]),
    (LETTERS, "*.txt", ["a", "b", "c"]),
    (dict.fromkeys(("b.txt", "a/c.txt", ".hidden.txt", "_meta.txt", ".git/d.txt"), b"x"), "", ["x", "x"]),
]


@pytest.mark.parametrize(("files", "opened", "texts"), READ)
def test_the_texts_of_files(tmp_path, files, opened, texts):
    for name, content in files.items():
        put(tmp_path / name, content)
    assert texts_in(f"{tmp_path}/{opened}") == texts
    with pytest.raises(RegardError, match=r"no file matches .+x\*\.txt$"):
        open_corpus(f"{tmp_path}/x*.txt")


def test_lines_of_utf_16_are_no_text(tmp_path):
    put(tmp_path / "corpus.txt", "ab\ncd\nef\n".encode("utf-16"))
    assert not any(isinstance(value, str) and value for value in texts_in(tmp_path / "corpus.txt"))


@pytest.mark.parametrize(
    ("package", "suffix"),
    [*((package, ".txt") for package in ("dask", "distributed", "fsspec", "pyarrow")), ("pyarrow", ".parquet")],
)
def test_a_package_that_is_not_installed_is_named(tmp_path, package, suffix):
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from regard.cli import main
sys.exit(main(sys.argv[1:]))
"""
    file, out = write(tmp_path / f"c{suffix}", TEXTS), tmp_path / "out"
    command = [sys.executable, "-c", code, "embed", str(file), "--out", str(out), *MODEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"regard: regard.dask needs {package}: pip install 'regard[dask]'\n")


def test_a_process_that_only_plans_packs_no_weights(tmp_path):
    from regard.dask import model_spec
    from regard.dask.cluster import ThisProcess
    from regard.dask.jobs import EmbedJob
    from regard.dask.output import OutputFolder
    from regard.dask.run import partition_corpus
    from regard.nn.fast_paths import CACHES

    def packs():
        return CACHES[0] in vars(model_spec.load_model(spec).blocks[0].attn)

    model_spec._checked.cache_clear()
    model_spec._load.cache_clear()  # another test may have run it
    spec, corpus = model_spec.describe_model("induction"), open_corpus(str(write(tmp_path / "corpus.txt", TEXTS)))
    job, folder = EmbedJob(pooling="mean"), OutputFolder(str(tmp_path / "out"))
    assert partition_corpus(job, spec, corpus, folder, ThisProcess(), 100).rows == len(TEXTS)
    assert not packs()
    model_spec.load_model(spec).embed(TEXTS[:1], pooling="mean")
    assert packs()


def test_workers_that_write_elsewhere_are_an_error(tmp_path, monkeypatch):
    from regard.dask import run as runs
    from regard.dask.cluster import ThisProcess
    from regard.dask.jobs import EmbedJob
    from regard.dask.model_spec import describe_model

    file = write(tmp_path / "corpus.txt", TEXTS)
    real = runs.OutputFolder.everywhere
    job, spec, corpus = EmbedJob(pooling="mean"), describe_model("induction"), open_corpus(str(file))
    monkeypatch.chdir(tmp_path)
    runs.run(job, spec, corpus, "out", ThisProcess())  # relative, and the same for a worker in another folder
    assert real.fget(runs.OutputFolder("out")) == str(tmp_path / "out")
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(runs.OutputFolder, "everywhere", property(lambda _: str(tmp_path / "other")))
    with pytest.raises(RegardError, match="give one that all machines share"):
        runs.run(job, spec, corpus, "new", ThisProcess())


def test_a_scheduler_that_was_never_there_is_not_waited_for_long(embed, tmp_path, monkeypatch):
    import distributed

    client = distributed.Client
    monkeypatch.setattr(distributed, "Client", lambda address, timeout: client(address, timeout=timeout / 20))
    monkeypatch.setattr("regard.dask.cluster._FIRST_WAIT", 0.5)
    status, _, err = embed(write(tmp_path / "corpus.txt", TEXTS), "--scheduler", "tcp://127.0.0.1:1")
    assert (status, err.count("\n")) == (2, 1)
    assert "no worker of Dask answers within 0.5 s" in err


def test_a_row_that_cannot_be_run_counts_where_it_stands():
    pieces = [Piece("file", "text", "text", i, 1) for i in range(3)]
    counted = [Scan(np.array([3, 0, 2]), ((1, "null"),), 1, "").counted] * 3
    assert first_rows(pieces, counted) == [1, 4, 7]


def test_a_column_that_no_line_has_is_named(tmp_path, capsys):
    file = put(tmp_path / "c.jsonl", b'{"id": 1}\n{"id": 2, "text": "abc"}\n')
    with pytest.raises(RegardError, match="has no column 'words': give --column, one of id, text"):
        open_corpus(str(file), "words")
    assert main(["embed", str(file), "--column", "words", "-o", str(tmp_path / "v.npy"), *MODEL]) == 2
    assert "has no column 'words'" in capsys.readouterr().err
