"""Attribution over a corpus: the bits of one call for each text, however it is divided."""

import dask.dataframe as dd
import numpy as np
import pandas
import pyarrow
import pytest
from pyarrow import parquet

import regard
import regard.dask
from regard import RegardError
from regard.cli import main
from regard.metrics import attribute

TEXTS = ["abcabc", "qzkfbdqzk", None, "kqxkqxab", "", "b", "bcd", "zzzz"]
NAMES = ["position", "token", "score", "attended", "value"]


def expected(model, options):
    """Return the columns of one call for each text, with the index of the text."""
    found = {name: [] for name in ("index", *NAMES)}
    for index, text in enumerate(TEXTS):
        if text:
            one = attribute(model, text, **options)
            count = len(one.scores)
            rows = {"index": [index] * count, **one.to_columns(), "value": [one.value] * count}
            for name, column in rows.items():
                found[name] += list(column)
    return found


@pytest.fixture
def run(tmp_path, capsys):
    """Return a function that runs the command over the texts, and gives the exit status, the table and the errors."""
    file = tmp_path / "c.parquet"
    pandas.DataFrame({"text": TEXTS}).to_parquet(file, row_group_size=3)

    def command(*options):
        status = main(["attribute", "--corpus", str(file), "--out", str(tmp_path / "out"), *map(str, options)])
        parts = sorted((tmp_path / "out").glob("part-*.parquet"))
        table = pyarrow.concat_tables([parquet.read_table(path) for path in parts]) if parts else None
        return status, table, capsys.readouterr().err

    return command


@pytest.mark.parametrize("tokens", [1, 12, 10_000])
@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--to", "f"], {"to": "f"}),
        (
            ["--to", "f", "--versus", "a", "--method", "integrated", "--steps", "3", "--score", "log_probability"],
            {"to": "f", "versus": "a", "method": "integrated", "steps": 3, "score": "log_probability"},
        ),
    ],
)
def test_the_command_writes_the_contributions_of_each_text(run, words, options, tokens):
    status, table, errors = run("--model", "induction", *words, "--partition-tokens", tokens)
    assert status == 0, errors
    assert "2 rows could not be run" in errors
    one = expected(regard.load("induction"), options)
    good = table.filter(pyarrow.compute.is_null(table["error"]))
    assert [row - 1 for row in good["row"].to_pylist()] == one["index"]
    for name in NAMES:
        np.testing.assert_array_equal(good[name].to_pylist(), one[name])
    assert (good["baseline_value"].null_count == 0) is ("steps" in options)
    bad = table.filter(pyarrow.compute.is_valid(table["error"])).to_pylist()
    assert [(row["row"], row["error"], row["token"], row["score"]) for row in bad] == [
        (3, "null", None, None),
        (5, "empty", None, None),
    ]


def test_a_frame_of_any_partitions_has_the_contributions_of_each_text():
    frame = dd.from_pandas(pandas.DataFrame({"text": TEXTS}), npartitions=3)
    found = regard.dask.attribute(frame, "text", "f", model="induction")
    computed = found.compute(scheduler="sync")
    assert list(computed.columns) == list(found.columns)
    assert (computed.dtypes == found.dtypes).all()
    assert found.divisions == frame.divisions
    assert computed["error"].dropna().to_dict() == {2: "null", 4: "empty"}
    good, one = computed[computed["error"].isna()], expected(regard.load("induction"), {"to": "f"})
    assert list(good.index) == one["index"]
    for name in NAMES:
        np.testing.assert_array_equal(good[name].to_numpy(), one[name])


@pytest.mark.minilm
def test_the_text_itself_is_a_row_with_its_reason(run, tmp_path):
    texts = ["A cat sat.", "A dog ran.", "The cat sat."]
    pandas.DataFrame({"text": texts}).to_parquet(tmp_path / "c.parquet")
    status, table, _ = run("--model", "minilm", "--to", texts[1], "--method", "gradient")
    assert status == 0
    reasons = {row["row"]: row["error"] for row in table.to_pylist()}
    assert (reasons[1], reasons[3]) == (None, None)
    assert "a text is as similar to itself as can be" in reasons[2]
    assert table["row"].to_pylist().count(2) == 1


def test_a_dry_run_measures_a_sample_and_writes_nothing(run, tmp_path):
    status, table, _ = run("--model", "induction", "--to", "f", "--dry-run")
    assert (status, table) == (0, None)
    assert not (tmp_path / "out").exists()


def test_a_wrong_target_is_refused_before_anything_is_computed():
    frame = dd.from_pandas(pandas.DataFrame({"text": TEXTS}), npartitions=1)
    with pytest.raises(RegardError, match="'fg' is 2 tokens"):
        regard.dask.attribute(frame, "text", "fg", model="induction")
