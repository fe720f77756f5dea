"""Contract 2: recording, selecting, editing, keeping."""

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

import golden
import regard
from fake_traces import recorded
from regard import Encoding, RegardError, Trace, attention, edits, nn
from regard.formats.safetensors import write_safetensors
from regard.trace.step_names import matches
from regard.trace.steps import formula


@pytest.fixture
def block(rng):
    return nn.EncoderBlock.init(rng, 12, 3)


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, 5, 12)).astype(np.float32)


def traced(block, x, **options):
    trace = Trace(**options)
    with trace.scope("blocks.0"):
        block(x, trace=trace)
    return trace


def test_names_follow_the_computation_and_nest(block, x):
    names = [name.removeprefix("blocks.0.") for name in traced(block, x).names()]
    attn = ("q", "k", "v", "scores", "weights", "context", "output")
    assert names == [*(f"attn.{name}" for name in attn), "attn_residual", "mlp.hidden", "mlp.output", "output"]


def test_only_selects_by_name_and_by_star(block, x):
    assert traced(block, x, only="blocks.0.attn.q").names() == ("blocks.0.attn.q",)
    assert traced(block, x, only=["*.weights", "*.hidden"]).names() == ("blocks.0.attn.weights", "blocks.0.mlp.hidden")


def test_what_is_recorded_is_a_copy(rng):
    trace = Trace()
    value = np.zeros(3)
    assert trace("a", value, "E") is value
    value += 1
    assert (trace["a"] == 0).all()


def test_an_edit_of_one_head_changes_what_follows_and_nothing_before(block, x):
    def without_head_1(weights):
        weights[:, 1] = 0
        return weights

    plain, edited = traced(block, x), traced(block, x, edit={"blocks.0.attn.weights": without_head_1})
    # An edit of the map takes the formula, where looking may have taken the kernel: equal up to rounding.
    np.testing.assert_allclose(plain["blocks.0.attn.scores"], edited["blocks.0.attn.scores"], rtol=1e-5, atol=1e-6)
    assert (edited["blocks.0.attn.weights"][:, 1] == 0).all()
    assert (edited["blocks.0.attn.context"][:, 1] == 0).all()
    kept = (slice(None), [0, 2])
    np.testing.assert_allclose(
        plain["blocks.0.attn.context"][kept], edited["blocks.0.attn.context"][kept], rtol=1e-5, atol=1e-6
    )
    assert not np.array_equal(plain["blocks.0.output"], edited["blocks.0.output"])


def test_every_edit_that_fits_a_name_is_made_in_turn(block, x):
    edits = {"*.attn.weights": lambda w: w * 0 + 2, "blocks.0.attn.*s": lambda w: w * 3}
    assert (traced(block, x, edit=edits)["blocks.0.attn.weights"] == 6).all()


def test_an_edit_gets_a_copy_and_its_result_goes_on_in_the_dtype_that_was():
    value = np.zeros(3, np.float32)

    def write_into(values):
        values += 1
        return values.astype(np.float64)

    trace = Trace(edit={"a": write_into})
    went_on = trace("a", value, "E")
    assert (went_on.dtype, trace["a"].dtype) == (np.float32, np.float32)
    assert (value.tolist(), went_on.tolist(), trace["a"].tolist()) == ([0, 0, 0], [1, 1, 1], [1, 1, 1])


def test_what_an_edit_returned_can_change_afterwards():
    mine = np.ones(3)
    went_on = Trace(edit={"a": lambda value: mine})("a", np.zeros(3), "E")
    mine += 1
    assert (went_on == 1).all()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda value: None, r"the edit of a returned nothing; return the array"),
        (lambda value: value.sum(), r"edit of a returned shape \(\) instead of"),
        (lambda value: value + 1j, r"the edit of a returned complex128 instead of float64"),
        (lambda value: ["x", "y", "z"], r"the result of the edit of a must be an array of numbers"),
        (lambda value: np.array(["x", "y", "z"]), r"the result of the edit of a must be an array of numbers, got <U1"),
        (lambda value: [[1], [1, 2]], r"the result of the edit of a is not a rectangular array"),
        (7, r"the edit of a must be a function of its array, got 7"),
    ],
)
def test_errors_of_an_edit_say_what_is_wrong(function, message):
    with pytest.raises(RegardError, match=message):
        Trace(edit={"a": function})("a", np.zeros(3), "E")


def test_names_that_no_step_has_are_known_afterwards(block, x):
    trace = traced(
        block, x, only=["*.weights", "*.wieghts"], edit={"blocks.0.attn.qq": np.negative, "*.q": np.negative}
    )
    assert trace.unmatched() == ("*.wieghts", "blocks.0.attn.qq")
    assert repr(trace).endswith("; no step is called *.wieghts, blocks.0.attn.qq>")
    with pytest.raises(RegardError, match=r"'blocks\.0\.attn\.qq' \(did you mean blocks\.0\.attn\.q or"):
        trace.check_matched()
    assert traced(block, x, only="*.weights", edit={"*.q": np.negative}).unmatched() == ()


def test_a_run_inside_a_scope_may_be_only_a_part(block, x):
    trace = Trace(edit={"second.q": np.negative})
    with trace.scope("first"):
        block(x, trace=trace)
        trace.check_matched()
    with pytest.raises(RegardError, match="edit= matched no step"):
        trace.check_matched()


def test_bfloat16_is_kept_as_float32(tmp_path):
    import ml_dtypes

    trace = Trace(edit={"a": lambda value: value * 2})
    value = np.ones(3, ml_dtypes.bfloat16)
    assert trace("a", value, "E").dtype == value.dtype
    trace.save(tmp_path / "run.safetensors")
    assert Trace.load(tmp_path / "run.safetensors")["a"].tolist() == [2, 2, 2]


def test_arrays_of_other_libraries_are_kept_and_go_back():
    import array_api_strict

    trace = Trace(edit={"a": lambda value: value * 2})
    went_on = trace("a", array_api_strict.asarray([1.0, 2.0], dtype=array_api_strict.float32), "E")
    assert isinstance(went_on, type(array_api_strict.asarray(0)))
    assert went_on.dtype == array_api_strict.float32
    np.testing.assert_array_equal(trace["a"], np.float32([2, 4]))


def test_a_second_run_needs_a_new_trace(block, x):
    trace = traced(block, x)
    with pytest.raises(RegardError, match=r"blocks\.0\.attn\.q is recorded already"), trace.scope("blocks.0"):
        block(x, trace=trace)


def test_a_scope_ends_also_when_the_inside_fails():
    trace = Trace()
    with pytest.raises(ZeroDivisionError), trace.scope("inside"):
        raise ZeroDivisionError
    trace("a", np.zeros(1), "E")
    assert trace.names() == ("a",)


def test_a_missing_name_tells_the_near_ones(block, x):
    with pytest.raises(RegardError, match=r"no 'blocks\.0\.attn\.weight'; did you mean blocks\.0\.attn\.weights"):
        traced(block, x)["blocks.0.attn.weight"]
    with pytest.raises(RegardError, match=r"with only=\*\.q"):
        traced(block, x, only="*.q")["blocks.0.attn.weights"]


def test_axes_leave_out_what_is_not_there(rng):
    trace = recorded(nn.SelfAttention.init(rng, 12, 3), np.ones((5, 12), np.float32))
    assert trace.axes("weights") == "H T S"
    assert trace.axes("output") == "T E"


def encoding(**fields):
    found = Encoding("a \x1b[31m\u202eb", (1, 2), ("a", "\x1b[31m\u202eb"), (False, True), (0, None), ((0, 1), (0, 0)))
    return found if not fields else json.dumps([found.to_dict() | fields])


def test_saving_and_loading_gives_everything_back(block, x, tmp_path):
    trace = traced(block, x)
    trace.set_metadata("a model", [encoding()] * 2)
    trace.save(tmp_path / "run.safetensors")
    back, plain = Trace.load(tmp_path / "run.safetensors"), load_file(tmp_path / "run.safetensors")
    assert back.names() == trace.names()
    assert (back.model, back.encodings) == ("a model", trace.encodings)
    assert plain.keys() == set(trace.names())
    for name in trace:
        for array in (back[name], plain[name]):
            np.testing.assert_array_equal(array, trace[name], strict=True)
        assert back.axes(name) == trace.axes(name)


SOUND = {"format": "regard.trace/1", "model": "", "encodings": "[]", "axes": '{"a": "T"}'}
NO_ENCODING = [
    *(("ids", ids) for ids in (["7", 2], [1.7, 2], [-5, 2], [1e999, 2], [True, 2])),
    *(("word_ids", words) for words in (["0", None], [-1, None])),
    *(("offsets", spans) for spans in ([[0, 1], [0, 99]], [[1, 0], [0, 0]], [[0, 1], [0]])),
    *(("text", 7), ("tokens", ["a", 7]), ("special_tokens_mask", [0, 1])),
]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, r"not a trace of regard: its format is 'none'"),
        ({"format": "regard.trace/99"}, r"its format is 'regard\.trace/99'"),
        ({"format": "regard.trace/1"}, r"damaged trace"),
        (SOUND | {"encodings": "[{}]"}, r"encoding"),
        (SOUND | {"encodings": "{"}, r"damaged trace"),
        *((SOUND | {"encodings": encoding(**{field: value})}, "not an encoding") for field, value in NO_ENCODING),
        (SOUND | {"axes": '{"b": "E"}'}, r"damaged trace"),
        (SOUND | {"axes": "7"}, r"damaged trace"),
        (SOUND | {"axes": '{"a": "T E"}'}, r"dimensions"),
        (SOUND | {"axes": "{}"}, r"axes are given for 0 names"),
        (SOUND | {"axes": "[" * 200_000}, r"RecursionError"),
        (SOUND | {"axes": json.dumps({"a": "\x1b[31m"})}, r"a has the axes '\\x1b\[31m'"),
    ],
)
def test_what_is_not_a_trace_is_refused(tmp_path, metadata, message):
    write_safetensors(tmp_path / "other", {"a": np.zeros(3)}, metadata)
    with pytest.raises(RegardError, match=rf"other is (a damaged trace: )?.*{message}"):
        Trace.load(tmp_path / "other")


def test_the_texts_of_a_trace_are_as_many_as_its_batch(tmp_path):
    trace = Trace()
    trace("a", np.zeros((3, 2)), "B T")
    trace.set_metadata("", [encoding()])
    with pytest.raises(RegardError, match=r"but there are 1 encodings"):
        trace.save(tmp_path / "a")
    metadata = SOUND | {"axes": '{"a": "B T"}', "encodings": encoding(text=encoding().text)}
    write_safetensors(tmp_path / "a", {"a": np.zeros((3, 2))}, metadata)
    with pytest.raises(RegardError, match=r"a is a damaged trace: a has a batch of 3, but there are 1 encodings"):
        Trace.load(tmp_path / "a")


def test_the_steps_are_a_table_of_formulas(block, x):
    steps = {step.name: step for step in traced(block, x).steps()}
    weights = steps["blocks.0.attn.weights"]
    assert (weights.formula, weights.axes) == ("softmax(scores), each row sums to 1", "B H T S")
    assert weights.shape == weights.values.shape == (2, 3, 5, 5)
    assert all(step.formula for step in steps.values())
    assert steps["blocks.0.attn.output"].formula != steps["blocks.0.mlp.output"].formula


def test_the_formulas_are_true_of_every_layer():
    """Also of one with another scale, with biases, or without an output projection."""
    assert formula("attn.scores") == "q · kᵀ × scale"
    assert formula("attn.capped") == "softcap · tanh(scores / softcap)"
    assert formula("attn.q") == "x · W_q (+ b_q), split into heads"
    assert formula("decoder.blocks.1.cross_attn.k") == "(encoder output) · W_k (+ b_k), split into heads"
    assert formula("decoder.blocks.1.cross_attn.q") == formula("attn.q")
    assert formula("attn.output") == "concatenated heads (· W_o (+ b_o))"


@pytest.mark.parametrize("only", [3, [3], [["weights"]]])
def test_names_are_text(only):
    with pytest.raises(RegardError, match="only is a name or several"):
        Trace(only=only)
    for edit, got in (({3: abs}, "got 3 for a name"), (abs, r".*: function}, got <built-in function abs>")):
        with pytest.raises(RegardError, match=f"edit maps names to functions, {got}"):
            Trace(edit=edit)
    with pytest.raises(RegardError, match="read by its name"):
        Trace()[3]


@pytest.mark.parametrize("maps", [False, True])
def test_a_part_is_a_trace_of_its_own(rng, maps):
    q, k, v = rng.standard_normal((3, 2, 5, 4))
    trace, alone = Trace(maps=maps, only="*"), Trace(maps=maps, only="*")
    with trace.scope("encoder.blocks.0.attn"):
        attention(q, k, v, trace=trace)
    with trace.scope("decoder.blocks.0.attn"):
        attention(k, q, v, trace=trace)
    with alone.scope("blocks.0.attn"):
        attention(q, k, v, trace=alone)
    part = trace.subtrace("encoder")
    assert part.names() == alone.names()
    assert part.axes("blocks.0.attn.weights") == "H T S"
    np.testing.assert_array_equal(part["blocks.0.attn.weights"], alone["blocks.0.attn.weights"])
    with pytest.raises(RegardError, match=r"nothing under 'encode\.'"):
        trace.subtrace("encode")


ALIASES = {
    "blocks.0.attn.hook_pattern": "blocks.0.attn.weights",
    "blocks.0.attn.pattern": "blocks.0.attn.weights",
    "blocks.1.attn.hook_z": "blocks.1.attn.context",
    "blocks.1.attn.hook_rot_q": "blocks.1.attn.q",
    "blocks.0.hook_attn_out": "blocks.0.attn.output",
    "blocks.0.hook_resid_mid": "blocks.0.attn_residual",
    "blocks.0.mlp.hook_post": "blocks.0.mlp.hidden",
    "blocks.1.hook_mlp_out": "blocks.1.mlp.output",
    "blocks.1.hook_resid_post": "blocks.1.output",
    "blocks.1.hook_resid_pre": "blocks.0.output",
    "blocks.0.hook_resid_pre": "normed_embeddings",
    "hook_embed": "token_embeddings",
    "hook_pos_embed": "position_embeddings",
}


def test_names_of_transformer_lens_are_understood(write_bert):
    model, trace = regard.load(write_bert()), Trace()
    model("the cat sat", trace=trace)
    for alias, name in ALIASES.items():
        assert alias in trace
        assert trace[alias] is trace[name], alias
        assert trace.axes(alias) == trace.axes(name)
    assert "blocks.0.attn.hook_result" not in trace
    kept = recorded(model, "the cat sat", only=["blocks.*.attn.hook_pattern", "*.hook_z", "blocks.1.hook_resid_pre"])
    assert {name.split(".", 2)[-1] for name in kept} == {"attn.weights", "attn.context", "output"}
    assert (len(kept), kept.unmatched()) == (5, ())
    edited = recorded(model, "the cat sat", edit={"blocks.0.attn.hook_z": np.zeros_like})
    assert not edited["blocks.0.attn.context"].any()
    with pytest.raises(RegardError, match="is not one step"):
        Trace(only="blocks.*.hook_resid_pre")
    kept = recorded(model, "the cat sat", only="blocks.0.hook_resid_pre")
    assert kept["blocks.0.hook_resid_pre"] is kept["normed_embeddings"]
    for options in ({"edit": {"blocks.0.hook_resid_pre": np.negative}}, {"stop": "blocks.0.hook_resid_pre"}):
        with pytest.raises(RegardError, match=r"is one of projected_embeddings, .*: name that of this model"):
            Trace(**options)


@pytest.fixture
def gemma():
    return regard.load(golden.FOLDER / "gemma2/plain")


IDS = np.array([5, 9, 4])


def test_an_alias_is_the_step_that_the_model_has(gemma):
    """With a norm after attention that norm is what attention adds; without one, its output is."""
    model, trace = gemma, Trace()
    model(IDS, trace=trace)
    assert trace["blocks.0.hook_attn_out"] is trace["blocks.0.attn_post_norm"]
    assert trace["blocks.1.hook_mlp_out"] is trace["blocks.1.mlp_post_norm"]
    assert trace["blocks.0.attn.hook_out"] is trace["blocks.0.attn.output"]
    assert trace["blocks.0.mlp.hook_pre"] is trace["blocks.0.mlp.gate"]
    only = recorded(model, IDS, only=("*.hook_attn_out", "*.hook_pre", "*.hook_q"))
    assert {name.split(".", 2)[2] for name in only} == {"attn_post_norm", "mlp.gate", "attn.projected_q"}
    np.testing.assert_array_equal(only["blocks.*.hook_attn_out"], trace["blocks.*.attn_post_norm"])
    for name, step in (
        ("hook_attn_out", "attn_post_norm"),
        ("hook_mlp_out", "mlp_post_norm"),
        ("mlp.hook_pre", "mlp.gate"),
    ):
        by_alias = model(IDS, edit=edits.scale(2, f"blocks.1.{name}")).hidden
        np.testing.assert_array_equal(by_alias, model(IDS, edit={f"blocks.1.{step}": lambda x: 2 * x}).hidden)
    stopped = recorded(model, IDS, stop="blocks.0.hook_attn_out")
    assert stopped.names()[-1] == "blocks.0.attn_post_norm"


def test_an_edit_of_queries_before_rotation_is_made_once(gemma):
    model = gemma
    found = model(IDS, edit=edits.scale(2, "blocks.0.attn.hook_q", heads=1)).hidden
    np.testing.assert_allclose(found, model(IDS, edit=edits.scale(2, "blocks.0.attn.q", heads=1)).hidden, atol=1e-5)
    plain = regard.load(golden.FOLDER / "gpt2/plain")  # it does not rotate
    trace = recorded(plain, IDS, only="*.hook_q", edit=edits.scale(2, "blocks.0.attn.hook_q"))
    assert trace.names() == ("blocks.0.attn.q", "blocks.1.attn.q")
    clean = recorded(plain, IDS)
    np.testing.assert_allclose(trace["blocks.0.attn.hook_q"], 2 * clean["blocks.0.attn.hook_q"], rtol=1e-6)


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (
            "blocks.0.attn.wieghts",
            r"only= matched no step .*'blocks\.0\.attn\.wieghts' \(did you mean blocks\.0\.attn\.weights",
        ),
        (["*.weights", "*.mlp.hiden"], r"only= matched no step of this run: '\*\.mlp\.hiden'"),
        ("blocks.7.output", r"did you mean blocks\.\d\.output"),
        ("*.head_output", r"only= matched no step"),
        ("blocks.0.attn.head_output", r"did you mean .*head_outputs"),
    ],
)
@pytest.mark.parametrize("maps", [False, True])
def test_a_name_to_record_that_is_no_step_is_an_error(write_bert, only, message, maps):
    model = regard.load(write_bert())
    with pytest.raises(RegardError, match=message):
        model("the cat sat", trace=Trace(only=only, maps=maps))
    keep = "maps" if maps else "arrays"
    with pytest.raises(RegardError, match=message):
        list(model.iter_traces(["the cat", "sat"], only=only, keep=keep))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": "blocks.*.attn.wieghts"}, r"did you mean blocks\.\*\.attn\.weights"),  # though none was computed
        ({"only": ("*.q", "final"), "stop": "blocks.0.attn.q"}, r"which ended after blocks\.0\.attn\.q: 'final'"),
    ],
)
def test_a_name_that_is_no_step_of_what_was_run_is_an_error(gemma, options, message):
    with pytest.raises(RegardError, match=message):
        recorded(gemma, IDS, **options)


def test_an_optional_name_may_be_no_step(write_bert):
    model = regard.load(write_bert())
    for options in ({"optional": ("*.mlp.gate", "*.weights")}, {"only": "*.weights", "optional": "*.mlp.gate"}):
        trace = recorded(model, "the cat", **options)
        assert trace.names() == ("blocks.0.attn.weights", "blocks.1.attn.weights")


def test_of_an_encoder_decoder_too():
    model = regard.load(golden.FOLDER / "t5/relu")
    texts = [model.tokenizer.from_ids([5, 9])]
    model(texts, target=texts, trace=Trace(only=("encoder*.weights", "decoder.blocks.*.cross_attn.weights")))
    with pytest.raises(RegardError, match=r"did you mean decoder\.blocks\.\*\.cross_attn\."):
        model(texts, target=texts, trace=Trace(only="decoder.*.cross_attn.weights"))
    with pytest.raises(RegardError, match=r"only= matched no step of this run: 'blocks\.\*\.attn\.weights'"):
        model(texts, target=texts, trace=Trace(only="blocks.*.attn.weights"))


@pytest.mark.parametrize("stage", ["scores", "biased"])
def test_a_step_that_a_map_gives_is_recorded_as_a_map(stage):
    model = regard.load(golden.FOLDER / "gpt2/plain")
    trace, expected = Trace(only=f"*.{stage}", maps=True), Trace()
    model(IDS, trace=trace)
    model(IDS, trace=expected)
    name = f"blocks.1.attn.{stage}"
    np.testing.assert_allclose(trace[name], expected[name], rtol=1e-5, atol=1e-6)


def test_a_trace_reads_as_a_mapping(write_bert):
    trace = recorded(regard.load(write_bert()), "the cat")
    assert list(trace.keys()) == list(trace) == [name for name, _ in trace.items()]
    assert len(trace.keys()) == len(trace)
    assert trace.keys() >= {"blocks.0.output"}
    for value, (name, item) in zip(trace.values(), trace.items(), strict=True):
        assert value is item is trace[name]
    assert trace.get("blocks.0.attn.hook_z") is trace["blocks.0.attn.context"]
    assert trace.get("blocks.9.output") is None
    assert trace.get("blocks.9.output", 7) == 7
    assert dict(trace).keys() == trace.keys()
    maps = recorded(regard.load(write_bert()), "the cat", maps=True, only="*")
    assert maps.get("blocks.0.attn.scores").shape == (1, 3, 4, 4)
    assert sum(value.nbytes for value in maps.values()) > 0


def test_names_of_the_user_are_not_aliases():
    trace = Trace(only=["z", "resid_pre"])
    for name in ("z", "resid_pre"):
        trace(name, np.zeros(3), "E")
    assert trace.names() == ("z", "resid_pre")
    assert trace["z"].shape == (3,)


@pytest.mark.parametrize("maps", [False, True])
def test_a_pattern_reads_all_layers_as_one_array(write_bert, maps):
    trace = recorded(regard.load(write_bert()), ["the cat sat", "a cat sat"], maps=maps, only="*")
    for pattern in ("blocks.*.attn.weights", "*.hook_pattern", "blocks.?.attn.weights"):
        weights = trace[pattern]
        assert weights.shape == (2, 2, 3, 5, 5)
        for i in range(2):
            np.testing.assert_array_equal(weights[i], trace[f"blocks.{i}.attn.weights"])
    np.testing.assert_array_equal(trace["blocks.*.attn.scores"][1], trace["blocks.1.attn.scores"])


def test_a_pattern_of_several_shapes_or_of_none_is_an_error(write_bert):
    trace = recorded(regard.load(write_bert()), "the cat sat")
    with pytest.raises(RegardError, match=r"'blocks.0.*' matches blocks.0.attn.q of shape .* which make no one array"):
        trace["blocks.0.*"]
    with pytest.raises(RegardError, match=r"the trace has no 'blokcs.\*.output'"):
        trace["blokcs.*.output"]


@pytest.mark.parametrize("maps", [False, True])
def test_one_text_of_a_batch_is_selected(write_bert, maps):
    trace = recorded(regard.load(write_bert()), ["the cat sat", "a cat"], maps=maps, only="*")
    one = trace.select(1)
    assert one.names() == trace.names()
    assert one.encodings == trace.encodings[1:]
    for name, value in trace.items():
        expected = value[1:2] if trace.axes(name).startswith("B") else value
        np.testing.assert_allclose(one[name], expected, rtol=1e-6, atol=1e-7)
    with pytest.raises(RegardError, match="there is no text 2 in a batch of 2"):
        trace.select(2)


@pytest.mark.parametrize("maps", [False, True])
def test_a_step_becomes_a_data_array(write_bert, maps):
    pytest.importorskip("xarray")
    trace = recorded(regard.load(write_bert()), "the cat sat", maps=maps, only="*")
    weights = trace.to_xarray("blocks.1.attn.weights")
    assert weights.dims == ("B", "H", "T", "S")
    assert weights.name == "blocks.1.attn.weights"
    assert tuple(weights.token.values) == tuple(weights.key_token.values) == trace.encodings[0].tokens
    np.testing.assert_array_equal(weights.values, trace["blocks.1.attn.weights"])
    np.testing.assert_allclose(weights.sum("S"), 1, rtol=1e-6)
    assert "token" in trace.to_xarray("blocks.1.output").coords


def test_without_xarray_it_says_so(write_bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    trace = recorded(regard.load(write_bert()), "the cat sat")
    with pytest.raises(RegardError, match="pip install xarray"):
        trace.to_xarray("blocks.1.output")


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("blocks.*.output", ("blocks.3.output", "blocks.12.output"), ("blocks.3.attn.output", "x.blocks.3.output")),
        ("blocks.*.hook_resid_post", ("blocks.3.output",), ("blocks.3.mlp.output",)),
        ("*blocks.*.output", ("encoder.blocks.0.output", "blocks.0.output"), ("blocks.0.attn.output",)),
        ("*.output", ("blocks.3.output", "blocks.3.attn.output"), ("output",)),
        ("blocks.3.*", ("blocks.3.output", "blocks.3.attn.q"), ("blocks.2.output",)),
        ("*.attn.*", ("blocks.0.attn.q",), ("blocks.0.mlp.output",)),
        ("*weights", ("weights", "blocks.0.attn.weights"), ("blocks.0.attn.v",)),
    ],
)
def test_a_star_between_dots_is_one_part(pattern, yes, no):
    assert all(matches(name, pattern) for name in yes)
    assert not any(matches(name, pattern) for name in no)


def test_a_run_imports_no_masked_arrays():
    """NumPy imports them when they are named, which took most of the calls of the first recorded run."""
    code = """
import sys, numpy
is_eager = "numpy.ma" in sys.modules
import regard
regard.load("induction")("qzkfq", trace=regard.Trace())
print(is_eager or "numpy.ma" not in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "True"
