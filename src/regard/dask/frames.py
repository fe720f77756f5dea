"""Dask dataframes of texts in, dataframes of results out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pandas

from regard._utils.errors import RegardError
from regard.dask.jobs import AttributeJob, EmbedJob, HeadsJob
from regard.dask.model_spec import ModelSpec, describe_model, load_model, one_at_a_time
from regard.dask.rows import encode_rows
from regard.metrics import CorpusHeadMetrics
from regard.metrics.attribution_target import Score
from regard.metrics.running_sums import Sums
from regard.trace import Trace


def embed(
    frame: Any,
    column: str,
    *,
    model: str = "minilm",
    pooling: str | None = None,
    max_length: int | None = None,
    truncate: bool = False,
    prompt: str | None = None,
    prompt_name: str | None = None,
    batch_size: int = 32,
    ignore: Sequence[str] = (),
) -> Any:
    """Return a dask dataframe with the columns of `frame`, ``vector`` and ``error``; nothing is computed.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    column : str
        The texts.
    model : str
        A name or the path of a folder, which each worker loads once.
    pooling, max_length, truncate, prompt, prompt_name, batch_size
        As `TextModel.embed` takes them.
    ignore : sequence of str
        As `regard.load` takes it.

    Returns
    -------
    dask.dataframe.DataFrame
        ``vector`` is a list of E numbers, null where a row has none; ``error`` then says why. Index and partitions are
        those of `frame`.

    Raises
    ------
    RegardError
        There is no such column, the frame has one of the new ones, or the model cannot be loaded.
    """
    spec = describe_model(model, ignore)
    job = EmbedJob(truncate, pooling, max_length, prompt, prompt_name, batch_size)
    meta = _embedded(_checked(frame, column, ("vector", "error")), column, job, spec)
    return frame.map_partitions(_embedded, column, job, spec, meta=meta, enforce_metadata=False)


def attribute(
    frame: Any,
    column: str,
    to: str | int,
    *,
    model: str = "smollm2",
    versus: str | int | None = None,
    method: str | None = None,
    score: Score | None = None,
    baseline: Literal["zero", "pad", "mask"] | None = None,
    steps: int | None = None,
    truncate: bool = False,
    ignore: Sequence[str] = (),
) -> Any:
    """Return a dask dataframe with a row for each token of each text, and what it contributed; nothing is computed.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    column, model, truncate, ignore
        As for `embed`.
    to, versus, method, score, baseline, steps
        As `regard.metrics.attribute` takes them, the same for every text.

    Returns
    -------
    dask.dataframe.DataFrame
        With the index of the text: ``position``, ``token``, ``score`` and ``attended`` of the token; ``value`` and
        ``baseline_value`` of the text. A text that cannot be run has one row, and ``error`` says why.

    Raises
    ------
    RegardError
        As for `embed`; or the model has no such number or method.
    """
    spec = describe_model(model, ignore)
    job = AttributeJob(to, versus, method, score, baseline, steps, truncate)
    job.check(spec)
    meta = _attributed(_checked(frame, column, ()), column, job, spec)
    return frame.map_partitions(_attributed, column, job, spec, meta=meta, enforce_metadata=False)


def head_metrics(
    frame: Any,
    column: str,
    *,
    model: str = "minilm",
    truncate: bool = False,
    batch_size: int = 32,
    ignore: Sequence[str] = (),
) -> Any:
    """Return a dask dataframe with a row for each head; nothing is computed.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    column, model, truncate, batch_size, ignore
        As for `embed`.

    Returns
    -------
    dask.dataframe.DataFrame
        The columns of `regard.metrics.CorpusHeadMetrics.to_columns`, with its bits: they do not depend on the
        partitions. ``left_out`` is the number of rows that could not be run.

    Raises
    ------
    RegardError
        As for `embed`; when it is computed, there is no text.
    """
    from dask.dataframe import from_delayed

    from dask import delayed

    spec, job = describe_model(model, ignore), HeadsJob(truncate, batch_size)
    _checked(frame, column, ())
    parts = [delayed(_sums)(part, column, job, spec) for part in frame[[column]].to_delayed()]
    short = pandas.DataFrame({column: ["a"]})
    meta = _head_table([_sums(short, column, job, spec)])
    return from_delayed([delayed(_head_table)(parts)], meta=meta.iloc[:0])


def map_texts(
    frame: Any,
    function: Callable[[Trace], Any],
    column: str = "text",
    *,
    name: str = "result",
    meta: Any = None,
    model: str = "minilm",
    only: Any = None,
    truncate: bool = False,
    batch_size: int = 32,
    ignore: Sequence[str] = (),
) -> Any:
    """Return a dask dataframe with the result of a function of the trace of each text; nothing is computed.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    function : function
        From the `Trace` of a text to a number, a text, or an array, which becomes a list.
    column, name : str
        The columns of the texts and of the results.
    meta : dtype, optional
        Of the results. By default that of the function on the trace of a short text.
    only
        The steps that are recorded, as `Trace` takes them.
    model, truncate, batch_size, ignore
        As for `embed`.

    Raises
    ------
    RegardError
        As for `embed`; or the function fails on a short text and no `meta` is given.
    """
    if not isinstance(name, str) or name == "error":
        raise RegardError(f"name is that of the column of results, which is not 'error', got {name!r}")
    spec = describe_model(model, ignore)
    options = {"only": only, "truncate": truncate, "batch_size": batch_size}
    empty = _checked(frame, column, (name, "error"))
    dtype = _result_dtype(spec, function, options) if meta is None else pandas.api.types.pandas_dtype(meta)
    described = _with_columns(empty, {name: pandas.Series([], dtype=dtype), "error": pandas.Series([], dtype="str")})
    return frame.map_partitions(_mapped, column, function, name, dtype, spec, options, meta=described)


def _checked(frame: Any, column: str, new: Sequence[str]) -> pandas.DataFrame:
    """Return the meta of a frame."""
    empty = getattr(frame, "_meta", None)
    if not isinstance(empty, pandas.DataFrame):
        raise RegardError("frame is a dask dataframe: dask.dataframe.from_pandas, read_parquet, …")
    if not isinstance(column, str):
        raise RegardError(f"column is the name of one, got {column!r}")
    if list(empty.columns).count(column) > 1:
        raise RegardError(f"the frame has several columns {column!r}: rename them")
    if column not in empty.columns:
        raise RegardError(f"the frame has no column {column!r}, but {', '.join(map(str, empty.columns)) or 'none'}")
    if taken := [name for name in new if name in empty.columns]:
        raise RegardError(f"the frame has a column {taken[0]!r} already: rename it")
    return empty


def _with_columns(part: pandas.DataFrame, columns: dict[str, pandas.Series]) -> pandas.DataFrame:
    return part.assign(**{name: series.set_axis(part.index) for name, series in columns.items()})


def _values(part: pandas.DataFrame, column: str) -> list[Any]:
    return list(part[column].astype(object))


def _embedded(part: pandas.DataFrame, column: str, job: EmbedJob, spec: ModelSpec) -> pandas.DataFrame:
    import pyarrow

    model = load_model(spec)
    encodings, errors = encode_rows(job.reader(model), _values(part, column), truncate=job.truncate)
    with one_at_a_time():
        arrow = job.vectors(model, encodings, len(part), lambda i: f"row {part.index[i]!r}")
    dtype = pandas.ArrowDtype(arrow.type)
    vector = pandas.Series(pandas.arrays.ArrowExtensionArray(pyarrow.chunked_array([arrow])), dtype=dtype)
    return _with_columns(part, {"vector": vector, "error": pandas.Series(errors, dtype="str")})


def _attributed(part: pandas.DataFrame, column: str, job: AttributeJob, spec: ModelSpec) -> pandas.DataFrame:
    model = load_model(spec)
    encodings, errors = encode_rows(job.reader(model), _values(part, column), truncate=job.truncate)
    with one_at_a_time():
        places, columns = job.contributions(model, encodings, errors)
    dtypes = {"position": "Int64", "token": "str", "error": "str"}
    series = {name: pandas.Series(each.to_pandas(), dtype=dtypes.get(name, "f8")) for name, each in columns.items()}
    return pandas.DataFrame(series).set_axis(part.index[places.to_numpy()], axis=0)


def _sums(part: pandas.DataFrame, column: str, job: HeadsJob, spec: ModelSpec) -> tuple[Sums, int]:
    """Return the sums of a partition, and how many rows it leaves out."""
    model = load_model(spec)
    encodings, _ = encode_rows(job.reader(model), _values(part, column), truncate=job.truncate)
    with one_at_a_time():
        return job.sums(model, encodings), len(part) - len(encodings)


def _head_table(parts: Sequence[tuple[Sums, int]]) -> pandas.DataFrame:
    sums = functools.reduce(Sums.merge, (each for each, _ in parts), Sums())
    if not sums.done:
        raise RegardError("there is no text in the frame")
    left_out = sum(count for _, count in parts)
    return pandas.DataFrame({**CorpusHeadMetrics.of_sums(sums).to_columns(), "left_out": left_out})


def _mapped(
    part: pandas.DataFrame,
    column: str,
    function: Callable[[Trace], Any],
    name: str,
    dtype: Any,
    spec: ModelSpec,
    options: dict[str, Any],
) -> pandas.DataFrame:
    model = load_model(spec)
    encodings, errors = encode_rows(model, _values(part, column), truncate=options["truncate"])
    indices, results = list(encodings), [None] * len(part)
    with one_at_a_time():
        traces = model.iter_traces(list(encodings.values()), only=options["only"], batch_size=options["batch_size"])
        for i, trace in traces:
            results[indices[i]] = _plain(function(trace))
    return _with_columns(part, {name: _series(results, dtype), "error": pandas.Series(errors, dtype="str")})


def _series(results: list[Any], dtype: Any) -> pandas.Series:
    if dtype != pandas.Float64Dtype():
        return pandas.Series(results, dtype=dtype)
    missing = np.array([result is None for result in results], bool)
    values = np.array([0.0 if result is None else result for result in results], np.float64)
    return pandas.Series(pandas.arrays.FloatingArray(values, missing))  # NaN is a result, and not a missing one


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _result_dtype(spec: ModelSpec, function: Callable[[Trace], Any], options: dict[str, Any]) -> Any:
    import pyarrow

    model = load_model(spec)
    try:
        with one_at_a_time():
            ((_, trace),) = model.iter_traces(["a"], only=options["only"])
            value = function(trace)
    except Exception as error:
        raise RegardError(f"the function fails on the trace of a short text, {error!r}: give meta=") from error
    plain = _plain(value)
    if plain is None:
        raise RegardError("the function returns None for a short text: give meta=")
    if isinstance(plain, int) and not isinstance(plain, bool):
        return pandas.Int64Dtype()
    if isinstance(plain, float):
        return pandas.Float64Dtype()  # of which a row without a text has none
    return pandas.ArrowDtype(pyarrow.scalar(plain).type)
