"""Dask dataframes in and out."""

import dask.dataframe as dd
import numpy as np
import pandas
import pytest

import dask
import regard
import regard.dask
from fake_traces import recorded
from regard import RegardError

TEXTS = ["abcabc", "qzk", None, "kqxkqxab", "a", 3, "zzzz"]


@pytest.fixture
def frame():
    pandas_frame = pandas.DataFrame({"text": pandas.array(TEXTS, dtype=object), "id": range(7)}, index=range(10, 17))
    with dask.config.set({"dataframe.convert-string": False}):
        yield dd.from_pandas(pandas_frame, npartitions=3)


def test_embed_has_the_vectors_of_one_call_and_the_meta_of_its_result(frame):
    found = regard.dask.embed(frame, "text", model="induction", pooling="mean")
    computed = found.compute(scheduler="sync")
    assert list(computed.columns) == list(found.columns) == ["text", "id", "vector", "error"]
    assert computed["vector"].dtype == found.dtypes["vector"]
    assert found.divisions == frame.divisions
    assert list(computed.index) == list(range(10, 17))
    good = [i for i, text in enumerate(TEXTS) if isinstance(text, str)]
    expected = regard.load("induction").embed([TEXTS[i] for i in good], pooling="mean")
    np.testing.assert_array_equal(np.stack([computed["vector"].iloc[i] for i in good]), expected)
    assert computed["vector"].isna().tolist() == [i not in good for i in range(7)]
    assert computed["error"].dropna().tolist() == ["null", "no text but int"]


def test_map_texts_gives_a_function_of_each_trace(frame):
    def received(trace):
        return trace["blocks.0.attn.weights"][0, 0].sum(0)

    found = regard.dask.map_texts(frame, received, model="induction", name="received")
    computed = found.compute(scheduler="sync")
    assert computed.dtypes["received"] == found.dtypes["received"]
    trace = recorded(regard.load("induction"), "qzk")
    np.testing.assert_array_equal(np.array(computed["received"].iloc[1], np.float32), received(trace))
    assert computed["error"].dropna().tolist() == ["null", "no text but int"]


def test_map_texts_of_numbers_is_a_column_of_numbers(frame):
    found = regard.dask.map_texts(frame, lambda trace: trace["blocks.0.attn.weights"].shape[-1], model="induction")
    assert found.compute(scheduler="sync")["result"].fillna(-1).tolist() == [6, 3, -1, 8, 1, -1, 4]


def test_nothing_is_computed_before_it_is_asked_for(frame):
    def fail(trace):
        raise ValueError("computed")

    regard.dask.map_texts(frame, fail, meta="f8", model="induction")
    with pytest.raises(RegardError, match=r"fails on the trace of a short text.*give meta="):
        regard.dask.map_texts(frame, fail, model="induction")


def twice(_):
    return dd.from_pandas(pandas.DataFrame([["a", "b"]], columns=["text", "text"]), npartitions=1)


INDUCTION = {"model": "induction"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda frame: regard.dask.embed(frame, "txt"), "no column 'txt', but text, id"),
        (lambda frame: regard.dask.embed([1], "text"), "frame is a dask dataframe"),
        (lambda frame: regard.dask.embed(frame.assign(vector=1), "text"), "a column 'vector' already"),
        (lambda frame: regard.dask.embed(frame, "text", **INDUCTION), "no default pooling"),
        (lambda frame: regard.dask.embed(frame, "text", model=regard.load("induction")), "model is a name or the path"),
        (lambda frame: regard.dask.embed(frame, ["text"], **INDUCTION, pooling="mean"), "column is the name of one"),
        (lambda frame: regard.dask.embed(twice(frame), "text", **INDUCTION, pooling="mean"), "several columns 'text'"),
        *(
            (
                lambda frame, name=name: regard.dask.map_texts(frame, len, **INDUCTION, name=name),
                "name is that of the column of results",
            )
            for name in ("error", 5)
        ),
        (
            lambda frame: regard.dask.map_texts(frame, lambda trace: None, **INDUCTION),
            "returns None for a short text: give meta=",
        ),
    ],
)
def test_wrong_arguments(frame, call, message):
    with pytest.raises(RegardError, match=message):
        call(frame)


def test_without_dask_the_package_imports_and_its_names_say_what_is_missing(monkeypatch):
    import sys

    for name in ("regard.dask.frames", "regard.dask.attention"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.delitem(vars(regard.dask), "embed", raising=False)
    with pytest.raises(RegardError, match=r"regard\.dask needs pandas: pip install 'regard\[dask\]'"):
        regard.dask.embed  # noqa: B018


def test_results_keep_their_numbers(frame):
    whole = regard.dask.map_texts(frame, lambda trace: 2**60 + 1, model="induction").compute(scheduler="sync")
    assert whole["result"].dropna().unique().tolist() == [2**60 + 1]
    nan = regard.dask.map_texts(frame, lambda trace: float("nan"), model="induction").compute(scheduler="sync")
    assert nan["result"].isna().tolist() == [not isinstance(text, str) for text in TEXTS]  # NaN is a result


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # in Dask
def test_vectors_are_written_and_read_again(frame, tmp_path):
    found = regard.dask.embed(
        frame[["id"]].assign(text=frame["id"].astype(str) + "ab"), "text", model="induction", pooling="mean"
    )
    found.to_parquet(tmp_path / "vectors")
    again = dd.read_parquet(tmp_path / "vectors", dtype_backend="pyarrow").compute()
    expected = found.compute(scheduler="sync")
    assert again["vector"].tolist() == expected["vector"].tolist()
