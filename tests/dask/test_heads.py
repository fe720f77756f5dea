"""Metrics of heads over a corpus: the bits of one process, however it is divided."""

import dask.dataframe as dd
import numpy as np
import pandas
import pytest
from corpora import sentences

import regard
import regard.dask
from regard.cli import main
from regard.metrics import corpus_head_metrics

TEXTS = [text.replace(".", "").replace(" ", "") for text in sentences(40, longest=12)]


@pytest.fixture(scope="module")
def whole():
    return corpus_head_metrics(regard.load("induction"), TEXTS).to_columns()


@pytest.mark.parametrize("tokens", [1, 100, 10_000])
def test_the_command_writes_the_table_of_one_process(tmp_path, capsys, whole, tokens):
    file, out, table = tmp_path / "c.parquet", tmp_path / "heads", tmp_path / "heads.parquet"
    pandas.DataFrame({"text": [*TEXTS, None]}).to_parquet(file, row_group_size=9)
    command = ["heads", "--corpus", str(file), "--out", str(out), "--model", "induction", "-o", str(table)]
    assert main([*command, "--partition-tokens", str(tokens)]) == 0
    captured = capsys.readouterr()
    assert f"averaged over {len(TEXTS)} texts" in captured.out
    assert "c.parquet row 41: null" in captured.err
    found = pandas.read_parquet(table)
    for name, column in whole.items():
        np.testing.assert_array_equal(found[name].to_numpy(), column)


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_a_frame_of_any_partitions_gives_the_table_of_one_process(whole, partitions):
    frame = dd.from_pandas(pandas.DataFrame({"text": [*TEXTS, None]}), npartitions=partitions)
    found = regard.dask.head_metrics(frame, "text", model="induction")
    computed = found.compute(scheduler="sync")
    assert list(computed.columns) == list(found.columns) == [*whole, "left_out"]
    assert (computed.dtypes == found.dtypes).all()
    assert set(computed["left_out"]) == {1}
    for name, column in whole.items():
        np.testing.assert_array_equal(computed[name].to_numpy(), column)


def test_a_corpus_without_a_text_is_one_sentence(tmp_path, capsys):
    pandas.DataFrame({"text": [None, None]}).to_parquet(tmp_path / "c.parquet")
    command = ["heads", "--corpus", str(tmp_path / "c.parquet"), "--out", str(tmp_path / "out"), "--model", "induction"]
    assert main(command) == 2
    assert "can be run: null" in capsys.readouterr().err
