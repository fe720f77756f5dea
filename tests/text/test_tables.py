"""Columns of tables, which both readers of the command line take: against pandas, which writes and reads the files."""

import csv
import io

import hypothesis.strategies as st
import numpy as np
import pandas
import pytest
from hypothesis import given

from regard import RegardError
from regard.cli.tables import read_column
from regard.dask.source import open_corpus
from regard.text import lines, tables
from regard.text.tables import csv_column, json_row, parquet_column


def by_command(path, column="text"):
    return [text or None for text in read_column(str(path), column)]


def by_corpus(path, column="text"):
    return [value for piece in open_corpus(str(path), column).pieces for value in piece.read()]


READERS = pytest.mark.parametrize("read", [by_command, by_corpus])
CELLS = st.text(st.sampled_from("ab \",;\t\n'é=") | st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)


@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=6), delimiter=st.sampled_from(",\t"))
def test_what_pandas_writes_is_read_back(rows, delimiter):
    frame = pandas.DataFrame(rows, columns=["n", "text"])
    written = io.StringIO(frame.to_csv(index=False, sep=delimiter, lineterminator="\n"), newline="")
    found = list(tables.csv_column(written, "c", delimiter, "text"))
    assert found == [text or None for text in frame["text"]]


@READERS
@pytest.mark.parametrize(
    "content",
    [
        "n,text\n1,a\n\n2,b\n\n",
        "n,text\r\n1,a\r\n\r\n2,\r\n",
        '\ufefftext\nab\n\ncd\n""\nef',
        'n,text\n1,"two\nlines, and ""more"""\n2, "b"\n',
        'n,text\n1,a "b" c\n2\n3,\u2028\x0c\u0085\n',
        "text,n\nNA,1\nnull,\n",
    ],
)
def test_the_texts_that_pandas_reads(tmp_path, read, content):
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        path = tmp_path / f"c{suffix}"
        path.write_text(content.replace(",", delimiter), encoding="utf-8", newline="")
        column = pandas.read_csv(
            path, sep=delimiter, dtype=object, keep_default_na=False, na_values=[""], skip_blank_lines=False
        )["text"]
        assert read(path) == [value if isinstance(value, str) else None for value in column]


@READERS
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('id,text\n1,"the cat sat\n2,a dog\n3,the mat\n', r"row 1 of .*\(line 2\) has an unmatched double quote"),
        ('id,text\n1,"a\nb"\n2,"Hello there\n', r"row 2 of .*\(line 4\) has an unmatched double quote"),
        ('id,"text\n1,a\n', "the header of .* has an unmatched double quote"),
        (
            "id,text\n1,a\n2,the cat, sat on the mat\n",
            r"row 2 of .*\(line 3\) has 3 cells and the header 2: put",
        ),
        ("text\n\nthe cat, sat\n", r"row 2 of .*\(line 3\) has 2 cells and the header 1"),
    ],
)
def test_malformed_rows_are_errors_here_and_in_pandas(tmp_path, read, content, problem):
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t")):
        path = tmp_path / f"c{suffix}"
        path.write_text(content.replace(",", delimiter))
        with pytest.raises(RegardError, match=problem):
            read(path)
        if "text\n\n" not in content:  # of which pandas makes an index
            with pytest.raises(pandas.errors.ParserError):
                pandas.read_csv(path, sep=delimiter, skip_blank_lines=False)


@READERS
def test_letters_after_a_closing_quote_are_an_error(tmp_path, read):
    """Of which pandas makes one text."""
    path = tmp_path / "c.csv"
    path.write_text('id,text\n1,"the cat sat\n2,a "dog" ran\n3,b\n')
    with pytest.raises(RegardError, match=r"row 1 of .*\(line 2\) has an unmatched double quote"):
        read(path)


@READERS
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_two_columns_of_one_name_are_an_error(tmp_path, read, suffix):
    path = tmp_path / f"c{suffix}"
    if suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 3, ["text", "n", "text"]), path)
    else:
        path.write_text("text,n,text\na,b,c\n".replace(",", tables.DELIMITERS[suffix[1:]]))
    with pytest.raises(RegardError, match="has 2 columns 'text': rename all but one"):
        read(path)
    assert len(read(path, "n")) == 1


REPEATED = '{"text": "a"}\n{"text": "b", "text": "c"}\n{"text": "d", "more": {"x": 1, "x": 2}}\n'


def test_a_key_twice_in_a_line_of_json(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text(REPEATED)
    with pytest.raises(RegardError, match=r"line 2 of .* has the key 'text' twice"):
        by_command(path)
    assert by_corpus(path) == ["a", *(line.encode() for line in REPEATED.splitlines()[1:])]


@READERS
@pytest.mark.parametrize("content", ["text\ncafé\n".encode("latin-1"), "text\nab\n".encode("utf-16"), b"text\na\0b\n"])
def test_a_table_in_another_encoding_is_an_error(tmp_path, read, content):
    path = tmp_path / "c.csv"
    path.write_bytes(content)
    with pytest.raises(RegardError, match=r"is not UTF-8 text.*convert it first"):
        read(path)


def test_a_line_without_end_is_an_error(monkeypatch):
    monkeypatch.setattr(lines, "LONGEST_LINE", 99)
    assert list(lines.text_lines(io.BytesIO(b"text\n" + b"a" * 99), "c")) == ["text\n", "a" * 99]
    with pytest.raises(RegardError, match="c has a line of more than 99 characters"):
        list(lines.text_lines(io.BytesIO(b"text\n" + b"a" * 100), "c"))


def test_a_long_text_is_whole_and_one_without_end_is_an_error(monkeypatch):
    """The limit of the standard library is 131,072 characters, of its process."""
    before = csv.field_size_limit(131_072)
    try:
        monkeypatch.setattr(tables, "LONGEST_LINE", 200_000)
        rows = ["text\n", '"' + "a" * 99_999 + "\n", "a" * 99_999 + '"']
        assert list(tables.csv_column(rows, "c", ",", "text")) == ["a" * 99_999 + "\n" + "a" * 99_999]
        with pytest.raises(RegardError, match=r"row 1 of c .* has a text of more than 200,000 characters"):
            list(tables.csv_column([*rows[:2], "a" * 99_999 + "\n", "a" * 9], "c", ",", "text"))
    finally:
        csv.field_size_limit(before)


def test_one_line_of_json_is_read_alike_by_every_reader():
    for line in ('"a bare string"', "3", "[1]", "{"):
        with pytest.raises(ValueError, match=r"object|Expect"):
            json_row(line)
    assert json_row("  ") == {}


def test_the_limit_of_cells_is_that_of_the_process_again():
    before = csv.field_size_limit()
    assert [*csv_column(["text\n", "a\n"], "x.csv", ",", "text")] == ["a"]
    assert csv.field_size_limit() == before


def test_a_small_parquet_file_of_very_many_characters_is_refused(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = pyarrow.DictionaryArray.from_arrays(np.zeros(2000, np.int32), ["x" * 1000])
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "x.parquet")
    with parquet.ParquetFile(tmp_path / "x.parquet") as file:
        assert len(parquet_column(file, "x.parquet", "text", 2_000_000)) == 2000
        with pytest.raises(RegardError, match="more than 1,999,999 characters"):
            parquet_column(file, "x.parquet", "text", 1_999_999)


@pytest.mark.parametrize("line", [b'"a bare string"', b'{"text": "\xed\xa0\x80"}', '{"text": "a"}'.encode("utf-16-le")])
def test_a_line_that_the_command_refuses_is_an_error_row_of_a_corpus(tmp_path, line):
    (tmp_path / "x.jsonl").write_bytes(b'{"text": "a"}\n' + line + b"\n")
    with pytest.raises(RegardError):
        by_command(tmp_path / "x.jsonl")
    first, *others = by_corpus(tmp_path / "x.jsonl")
    assert first == "a"
    assert all(isinstance(value, bytes) for value in others)


def test_bytes_in_parquet_are_text_unless_they_have_zeros(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = pyarrow.array([b"caf\xc3\xa9", "a".encode("utf-16-le"), b"\xff"], pyarrow.binary())
    parquet.write_table(pyarrow.table({"text": column}), tmp_path / "x.parquet")
    assert by_corpus(tmp_path / "x.parquet") == ["café", b"a\0", b"\xff"]
    with pytest.raises(RegardError, match="row 2 of"):
        by_command(tmp_path / "x.parquet")
