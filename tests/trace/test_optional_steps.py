"""Steps that are recorded if asked for by name: what each head adds, the steps of norms, queries before rotation."""

import functools
from contextlib import nullcontext

import numpy as np
import pytest

import golden
import golden_runs
import regard
from fake_traces import recorded
from golden import load
from regard import RegardError, Trace, edits, nn
from regard.functional.recorder import RunStopped
from regard.models.encoder_decoder import EncoderDecoder
from sweeps import sweep_except

IDS = [5, 9, 4, 6]
CASES = [case for case in golden.KEPT if not case.startswith("clip/")]  # its halves are cases of their own
NORMS = tuple(f"*.{name}_norm" for name in ("attn", "cross", "mlp", "attn_post", "mlp_post"))


@functools.cache  # for two tests
def run(case, **options):
    model, arguments = next(golden_runs.calls(case, np.float64))
    one_text = [x if isinstance(x, dict) else x[:1] for x in arguments]  # without padding
    return model, recorded(model, *one_text, **options)


def stacks(model):
    """Yield the scope of the names of each stack of blocks, and what holds it."""
    if isinstance(model, EncoderDecoder):
        yield from (("encoder.", model.encoder), ("decoder.", model.decoder))
    else:
        yield "", model


def assert_close(ours, expected, name):
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10 * max(1, np.abs(expected).max()), err_msg=name)


WITH_MAPS = [case for case in CASES if not case.startswith(golden.WITHOUT_MAPS)]


@pytest.mark.parametrize("case", sweep_except(golden.one_of_each(WITH_MAPS), WITH_MAPS))
def test_what_each_head_adds_is_its_context_times_its_rows_of_the_projection(case):
    model, trace = run(case, only=("*.head_outputs", "*attn.context", "*attn.output"))
    count = 0
    for scope, stack in stacks(model):
        for i, block in enumerate(stack.blocks):
            for part in ("attn", "cross_attn") if hasattr(block, "cross_attn") else ("attn",):
                at, layer = f"{scope}blocks.{i}.{part}", getattr(block, part)
                heads = np.split(np.asarray(layer.o_proj.weight), layer.num_heads)  # Dv E of each
                found = trace[f"{at}.head_outputs"]
                assert trace.axes(f"{at}.head_outputs") == "B H T E"
                for head, weight in enumerate(heads):
                    assert_close(found[:, head], trace[f"{at}.context"][:, head] @ weight, at)
                bias = 0 if layer.o_proj.bias is None else layer.o_proj.bias
                assert_close(found.sum(1) + bias, trace[f"{at}.output"], at)
                count += 1
    assert count >= 2


def norms_of(model, trace):
    """Yield each norm of a residual stream: its name, the layer, and the vectors that it gets."""
    for scope, stack in stacks(model):
        x = trace[f"{scope}blocks.0.hook_resid_pre"]
        for i, block in enumerate(stack.blocks):
            at = f"{scope}blocks.{i}"
            part = {name: trace.get(f"{at}.{name}.output") for name in ("attn", "cross_attn", "mlp")}
            middle = trace.get(f"{at}.attn_residual", x)  # a parallel block has none
            before_mlp = trace.get(f"{at}.cross_attn_residual", middle)
            is_post = getattr(block, "norm_first", None) is False or type(block).__name__ == "BartDecoderBlock"
            inputs = {
                "attn_norm": x + part["attn"] if is_post else x,
                "cross_norm": middle + part["cross_attn"] if is_post and "cross_norm" in vars(block) else middle,
                "mlp_norm": before_mlp + part["mlp"] if is_post else before_mlp,
                "attn_post_norm": part["attn"],
                "mlp_post_norm": part["mlp"],
            }
            for name, vectors in inputs.items():
                if getattr(block, name, None) is not None:
                    yield f"{at}.{name}", getattr(block, name), vectors
            x = trace[f"{at}.output"]
        if hasattr(stack, "final_norm"):
            yield f"{scope}final_norm", stack.final_norm, x
        embedding_norm = getattr(stack, "embedding_norm", None)
        if embedding_norm is not None:
            embeddings = trace.get("embeddings", trace["token_embeddings"])
            yield "embedding_norm", embedding_norm, embeddings


@pytest.mark.parametrize("case", sweep_except(golden.one_of_each(CASES), CASES))
def test_the_steps_of_each_norm(case):
    names = ("*.scale", "*.normalized", *NORMS, "*final_norm", "*output", "*_residual", "*embeddings")
    model, trace = run(case, optional=names)
    count = 0
    for name, norm, x in norms_of(model, trace):
        centered = x - x.mean(-1, keepdims=True) if isinstance(norm, nn.LayerNorm) else x
        scale = np.sqrt((centered**2).mean(-1) + norm.eps)
        assert trace.axes(f"{name}.scale") == "B T"
        assert_close(trace[f"{name}.scale"], scale, name)
        assert_close(trace[f"{name}.normalized"], centered / scale[..., None], name)
        if name != "embedding_norm":  # normed_embeddings
            bias = getattr(norm, "bias", None)
            expected = trace[f"{name}.normalized"] * norm.weight + (0 if bias is None else bias)
            assert_close(trace[name], expected, name)
        count += 1
    assert count >= 4


@pytest.mark.parametrize("case", ["llama/plain", "qwen3/plain", "gpt_neox/half", "olmo2/plain", "modernbert/plain"])
def test_queries_and_keys_before_norms_and_rotation(case):
    model, trace = run(case, optional=("*.projected_q", "*.projected_k", "*.attn_norm", "*embeddings"))
    block = model.blocks[0]
    x = trace["blocks.0.hook_resid_pre"] if block.attn_norm is None else trace["blocks.0.attn_norm"]
    for name, linear, heads in (
        ("projected_q", block.attn.q_proj, block.attn.num_heads),
        ("projected_k", block.attn.k_proj, block.attn.num_kv_heads),
    ):
        flat = x @ np.asarray(linear.weight) + (0 if linear.bias is None else linear.bias)
        expected = np.moveaxis(flat.reshape(*x.shape[:2], heads, -1), 2, 1)
        assert_close(trace[f"blocks.0.attn.{name}"], expected, name)


def test_what_enters_the_activation(write_bert):
    model, trace = (
        regard.load(write_bert(), dtype=np.float64),
        Trace(only=("*.mlp.up", "*.mlp.hidden", "*attn_residual")),
    )
    model("the cat sat", trace=trace)
    linear = model.blocks[0].mlp.up_proj
    assert_close(trace["blocks.0.mlp.hook_pre"], trace["blocks.0.attn_residual"] @ linear.weight + linear.bias, "up")


@pytest.fixture(scope="module")
def llama():
    return regard.load(golden.FOLDER / "llama/plain", dtype=np.float64)


TEXT = np.array(IDS)


@pytest.mark.parametrize("only", [None, "*", ("blocks.*", "final_norm*"), "*attn*"])
def test_they_are_not_recorded_by_default_or_by_a_star(llama, only):
    trace = recorded(llama, TEXT, only=only)
    found = {name.rpartition(".")[2] for name in trace}
    assert not found & {"head_outputs", "scale", "normalized", "projected_q", "projected_k", "attn_norm", "mlp_norm"}
    with pytest.raises(
        RegardError, match=r"has no blocks\.0\.attn\.head_outputs: it is recorded if asked for, Trace\("
    ):
        trace["blocks.0.attn.hook_result"]
    with pytest.raises(RegardError, match=r"has no blocks\.0\.attn\.projected_q: it is recorded if asked for"):
        trace["blocks.0.attn.hook_q"]  # and not q, which is rotated


def test_a_saved_trace_knows_what_it_has_not(llama, tmp_path):
    trace = recorded(llama, TEXT)
    trace.save(tmp_path / "run.safetensors")
    with pytest.raises(RegardError, match=r"projected_q: it is recorded if asked for"):
        Trace.load(tmp_path / "run.safetensors")["blocks.0.attn.hook_q"]


def test_looking_leaves_the_bits_as_they_are(minilm):
    for model in (regard.load(golden.FOLDER / "gpt2/plain"), regard.load(golden.FOLDER / "llama/plain"), minilm):
        text = TEXT if model is not minilm else "the cat sat"
        plain = Trace()
        expected = model(text, trace=plain).hidden
        np.testing.assert_array_equal(model(text).hidden, expected)
        trace = Trace(only=("*.head_outputs", "*.scale", "*.normalized", *NORMS[:3:2], "*.mlp.up", "*.output"))
        np.testing.assert_array_equal(model(text, trace=trace).hidden, expected)
        assert "blocks.0.attn.head_outputs" in trace


def test_an_edit_of_what_a_head_adds_is_as_one_of_its_context(llama):
    def without(value):
        value[:, 2] = 0
        return value

    found = llama(TEXT, edit={"blocks.1.attn.hook_result": without}).hidden
    np.testing.assert_allclose(found, llama(TEXT, edit=edits.ablate((1, 2))).hidden, rtol=1e-10)
    found = llama(TEXT, edit=edits.scale(0, "blocks.1.attn.head_outputs", heads=2)).hidden
    np.testing.assert_allclose(found, llama(TEXT, edit=edits.ablate((1, 2))).hidden, rtol=1e-10)


@pytest.mark.parametrize("case", ["llama/plain", "gpt2/plain"])
def test_an_edit_of_a_scale_changes_what_follows(case):
    model = regard.load(golden.FOLDER / case, dtype=np.float64)
    expected = model(TEXT).hidden
    for name in ("*ln1.hook_scale", "*.mlp_norm.normalized", "ln_final.hook_scale", "*.mlp.hook_pre", "*.attn.hook_q"):
        same = model(TEXT, edit={name: lambda x: x}).hidden
        np.testing.assert_allclose(same, expected, rtol=1e-9, err_msg=name)
    doubled = model(TEXT, edit={"final_norm.scale": lambda x: 2 * x}).hidden
    bias = getattr(model.final_norm, "bias", None)
    bias = 0 if bias is None else bias
    np.testing.assert_allclose(doubled, (expected - bias) / 2 + bias, rtol=1e-9)


@pytest.mark.parametrize("name", ["*.attn_norm", "*.attn_norm.scale", "*.head_outputs", "*.mlp.hook_pre"])
def test_a_pattern_that_does_not_name_an_optional_step_neither_edits_nor_records_it(name):
    model, edited = load("gpt2/plain"), []

    def note(x):
        edited.append(x)
        return x

    asked = recorded(model, TEXT, only=name, edit={"*": note})
    assert len(edited) == len(set(asked.tapped()) - set(asked.optional_steps()))
    with pytest.raises(RegardError, match="edit= matched no step of this run"):
        model(TEXT, trace=Trace(only=name, edit={f"*{asked.names()[0][:-1]}?": note}))
    changed = recorded(model, TEXT, only=("*.output", "blocks.*"), edit={name: np.copy})
    assert not set(changed) & set(asked)


def test_a_step_that_is_optional_in_one_model_is_edited_by_a_pattern_in_another():
    for case, is_edited in (("gpt2/plain", False), ("llama/plain", True)):  # the input of a gated layer is no option
        trace = recorded(load(case), TEXT, only="*.mlp.up", edit={"blocks.0.mlp.*": np.zeros_like})
        assert trace["blocks.1.mlp.up"].any()
        assert trace["blocks.0.mlp.up"].any() != is_edited


def test_gradients_of_optional_steps(llama):
    def metric(output):
        return output.logits[0, -1, 7]

    found = llama.gradients(TEXT, metric, at=("*.attn.output", "*.head_outputs", "*.attn_norm.scale")).gradients
    for layer in range(len(llama.blocks)):
        at = f"blocks.{layer}.attn"
        for head in range(llama.config.num_heads):
            np.testing.assert_allclose(found[f"{at}.head_outputs"][:, head], found[f"{at}.output"], rtol=1e-9)
    step = 1e-6

    def nudged(sign):
        def edit(x):
            x[0, 1] += sign * step
            return x

        return float(metric(llama(TEXT, edit={"blocks.0.attn_norm.scale": edit})))

    slope = (nudged(1) - nudged(-1)) / (2 * step)
    assert found["blocks.0.attn_norm.scale"][0, 1] == pytest.approx(slope, rel=1e-5)


def test_memory_counts_them_only_where_they_are_asked_for(llama):
    from regard.models.memory import estimate_memory

    every, asked = (estimate_memory(llama, 1, 80, trace).recorded for trace in (Trace(), Trace(only="*.head_outputs")))
    trace = recorded(llama, np.full(80, 5))
    assert every == sum(value.nbytes for value in trace.values())
    sizes = llama.config
    assert asked == sizes.num_layers * sizes.num_heads * 80 * sizes.embed_dim * 8


STEPS = ("token_embeddings", "embeddings", "attn.q", "attn.weights", "attn.output", "mlp.up", "norm.scale", "output")
ASKED = ("*", "*.output", "blocks.0.attn.weights", "*.scale", "hook_embed", "blocks.0.hook_resid_pre", "*.hook_q")


@pytest.mark.parametrize("prefix", ["", "blocks.0.", "blocks.1.attn."])
@pytest.mark.parametrize("asked", [None, (), *[(name,) for name in ASKED], ("*.q", "*.scale"), ("mlp.up", "output")])
@pytest.mark.parametrize("options", [{}, {"maps": True}, {"stop": "blocks.0.output"}, {"edit": {"*.q": np.copy}}])
def test_the_plan_of_many_steps_is_that_of_each(prefix, asked, options):
    def planned(*names, optional=()):
        trace = Trace(only=asked, **options)
        with trace.scope(prefix.removesuffix(".")) if prefix else nullcontext():
            plan = trace.plan(*names, optional=optional)
        assert trace.tapped() == ()
        assert trace.optional_steps() == tuple(prefix + name for name in optional)
        return plan

    for names in [STEPS[:3], STEPS[3:]]:
        for found, each in (
            (planned(*names), [planned(name) for name in names]),
            (planned(optional=names), [planned(optional=(name,)) for name in names]),
        ):
            assert found.asked == frozenset().union(*(plan.asked for plan in each))
            assert found.edited == frozenset().union(*(plan.edited for plan in each))
            assert (found.stops, found.keeps_map) == tuple(
                any(getattr(plan, field) for plan in each) for field in ("stops", "keeps_map")
            )


@pytest.mark.parametrize("runs", [(True, False), (False, True)])
def test_what_an_alias_means_is_decided_in_each_run(runs, rng):
    x = rng.standard_normal((2, 3))
    for has_rotation in runs:
        trace = Trace(only="attn.hook_q")
        if has_rotation:
            trace("attn.projected_q", x, "T D")
        assert trace.plan("attn.q").asked == (frozenset() if has_rotation else {"attn.q"})
        trace("attn.q", x, "T D")
        assert trace.names() == (("attn.projected_q",) if has_rotation else ("attn.q",))


@pytest.mark.parametrize("options", [{}, {"maps": True}, {"stop": "attn.weights"}, {"edit": {"*.q": np.copy}}])
@pytest.mark.parametrize("asked", [None, (), ("*",), ("*.output",), ("attn.weights",), ("attn.hook_q", "attn.v")])
def test_a_run_does_what_its_plan_says(asked, options, rng):
    """The plan of a step, read before the run, is what the tap does with the value."""
    x = rng.standard_normal((1, 3))
    for name in ("attn.q", "attn.v", "attn.weights", "attn.output", "output"):
        trace = Trace(only=asked, **options)
        plan = trace.plan(name)
        try:
            changed = trace(name, x, "T S") is not x
        except RunStopped:
            assert plan.stops
            continue
        assert not plan.stops or plan.keeps_map
        assert changed == (name in plan.edited)
        assert (name in plan.asked) == (name in trace or changed)
