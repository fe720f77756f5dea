"""Beginning and end of captures: what is put back, several at once, threads, and mistakes."""

import contextlib
import threading

import numpy as np
import pytest
import torch
from capture_models import LENGTH, captured, close, inputs, run
from transformers_models import make_model

import regard
from regard import RegardError, Trace, edits


def registered():
    from transformers import AttentionInterface, AttentionMaskInterface

    return {name for kind in (AttentionInterface, AttentionMaskInterface) for name in kind._global_mapping}


@pytest.mark.parametrize("kind", ["bert", "gemma2"])
@pytest.mark.parametrize("moments", ["run 0 1", "run 1 0", "0 run 1", "1 run 0"])
def test_two_at_once(pair, kind, moments):
    """Each has the run before its end, whether or not the other has ended."""
    model, eager = pair(kind)
    before, implementation = registered(), model.config._attn_implementation
    contexts = [regard.capture(model) for _ in range(2)]
    traces = [context.__enter__() for context in contexts]
    for moment in moments.split():
        if moment == "run":
            run(model, inputs())
        else:
            contexts[int(moment)].__exit__(None, None, None)
    assert (registered(), model.config._attn_implementation) == (before, implementation)
    run(model, inputs())
    theirs = run(eager, inputs(), output_attentions=True).attentions
    for number, trace in enumerate(traces):
        if moments.index(str(number)) < moments.index("run"):
            assert len(trace) == 0
        else:
            close(trace["blocks.1.attn.weights"], theirs[1])


def in_threads(*works):
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_the_user_sets_inside_stays(pair):
    model, _ = pair("bert")
    before = registered()
    with regard.capture(model):
        model.set_attn_implementation("eager")
    assert (registered(), model.config._attn_implementation) == (before, "eager")


@pytest.mark.parametrize(
    ("kind", "implementation", "message"),
    [
        ("bert", "flex_attention", "does not support: call model.set_attn"),
        ("t5", "eager", "may bypass the attention interface"),
    ],
)
def test_unsupported_implementations_are_errors(pair, kind, implementation, message):
    model, _ = pair(kind)
    model.config._attn_implementation = implementation
    before = registered()
    with pytest.raises(RegardError, match=message), regard.capture(model):
        pass
    assert (registered(), model.config._attn_implementation) == (before, implementation)


def test_only_what_a_model_can_use_is_advised(transformers, pair):
    model, _ = pair("gpt_oss")
    model.config._attn_implementation = "flex_attention"
    with (
        pytest.raises(RegardError, match=r"call model\.set_attn_implementation\('eager'\) first"),
        regard.capture(model),
    ):
        pass
    splinter = make_model(transformers, "splinter")
    for implementation in ("eager", "flex_attention"):
        splinter.config._attn_implementation = implementation
        with pytest.raises(RegardError, match=r"SplinterModel .* has no other that capture supports") as error:
            regard.capture(splinter).__enter__()
        assert "sdpa" not in str(error.value)


MISTAKES = {  # the capture of a model, and the error of it or of the run inside
    "no module": (lambda _: regard.capture(5), r"takes a torch\.nn\.Module, got int"),
    "no attention": (lambda _: regard.capture(torch.nn.Linear(2, 2)), "Linear has no attention"),
    "no trace": (lambda model: regard.capture(model, trace=[]), "records into a Trace"),
    "no tokenizer": (lambda model: regard.capture(model, object()), "one of transformers or of regard, got object"),
    "a trace and its options": (
        lambda model: regard.capture(model, record="mlp", tensors=True, trace=Trace()),
        "record and tensors say what a trace does",
    ),
    "one step of two": (
        lambda model: regard.capture(model, record="mlp, resid"),
        r"record= matched no step of this run: 'resid'; the steps found in it are .*blocks\.\*\.mlp\.output",
    ),
    "no step": (
        lambda model: regard.capture(model, record="resid"),
        r"record= matched no step of this run: 'resid'; the groups are weights, .*'blocks\.3\.output'",
    ),
    "no step to edit": (
        lambda model: regard.capture(model, record="mlp", edit=edits.scale(2, "blocks.9.output")),
        r"edit= matched no step.*blocks\.9\.output",
    ),
    "copies": (lambda model: regard.capture(torch.nn.DataParallel(model)), r"its \.module"),
    "compiled": (lambda model: regard.capture(torch.compile(model)), r"compiled BertModel .* its \._orig_mod"),
    "compiled in part": (lambda model: model.encoder.compile() or regard.capture(model), "compiled BertEncoder"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(pair, mistake):
    model, _ = pair("bert")
    capture, message = MISTAKES[mistake]
    with pytest.raises(RegardError, match=message), capture(model):
        run(model, inputs())


def test_mistakes_of_a_run(pair):
    with pytest.raises(RegardError, match="without input_ids"):
        captured(pair("bert")[0], {"inputs_embeds": torch.zeros(1, 3, 24)}, object())
    gemma = pair("gemma2")[0].train()
    gemma.config.attention_dropout = 0.5
    for layer in gemma.model.layers:
        layer.self_attn.attention_dropout = 0.5
    with pytest.raises(RegardError, match="without dropout"):
        captured(gemma)


def hooks_of(model):
    kinds = ("_forward_pre_hooks", "_forward_hooks", "_forward_hooks_always_called", "_backward_hooks")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


@pytest.mark.parametrize("tensors", [False, True])
def test_hooks_are_removed_however_a_run_ends(pair, tensors):
    model, _ = pair("llama")
    before = registered()

    def fail(x):
        raise ZeroDivisionError

    for edit, given, error in [
        (None, inputs(), None),
        (None, None, RegardError),  # a second run into one trace
        (None, {"input_ids": inputs()["input_ids"] + 50}, IndexError),
        ({"blocks.1.mlp.output": fail}, inputs(), ZeroDivisionError),
        ({"blocks.1.attn_residual": lambda x: x[:1]}, inputs(), RegardError),
    ]:
        with (
            pytest.raises(error) if error else contextlib.nullcontext(),
            regard.capture(model, record="residual, mlp, weights", tensors=tensors, edit=edit),
        ):
            assert hooks_of(model) > 20
            assert registered() > before
            run(model, given or inputs())
            if given is None:
                run(model, inputs())
        assert (hooks_of(model), registered(), model.config._attn_implementation) == (0, before, "sdpa")


def test_a_run_after_one_that_failed_inside_a_context(pair):
    model, _ = pair("llama")
    with regard.capture(model, record="residual") as trace:
        with pytest.raises(IndexError):
            run(model, {"input_ids": inputs()["input_ids"] + 50})
        assert len(trace) == 0
        output = run(model.model, inputs())[0]
    assert output.shape == (2, LENGTH, 24)
    assert "blocks.2.output" in trace


def test_captures_in_captures(pair):
    """Each has what the model computes, edits of the other included if they come before its hooks, or earlier."""
    model, _ = pair("llama")
    with regard.capture(model, record="residual") as outer:  # noqa: SIM117
        with regard.capture(
            model, record="mlp, residual", tensors=True, edit=edits.scale(2, "blocks.0.output")
        ) as inner:
            run(model, inputs())
    np.testing.assert_array_equal(2 * outer["blocks.0.output"], inner["blocks.0.output"].numpy())
    for name in ("blocks.1.attn_residual", "blocks.2.output"):
        np.testing.assert_array_equal(outer[name], inner[name].numpy())


def test_one_model_in_two_threads(pair):
    """Each capture has the run of its own thread."""
    model, _ = pair("llama")
    texts = [{"input_ids": inputs()["input_ids"][:, i : i + 8]} for i in range(2)]
    expected = [captured(model, text, record="weights, residual") for text in texts]
    traces, inside = [None, None], threading.Barrier(2, timeout=60)

    def look(i):
        with regard.capture(model, record="weights, residual") as traces[i]:
            inside.wait()
            run(model, texts[i])
            inside.wait()

    in_threads(lambda: look(0), lambda: look(1))
    for trace, wanted in zip(traces, expected, strict=True):
        assert set(trace) == set(wanted)
        for name in wanted:
            np.testing.assert_allclose(trace[name], wanted[name], rtol=0, atol=1e-6)
    assert (hooks_of(model), model.config._attn_implementation) == (0, "sdpa")


def test_a_run_in_another_thread_alone_is_an_error(pair):
    model, _ = pair("bert")
    context = regard.capture(model, record="mlp")
    context.__enter__()
    in_threads(lambda: run(model, inputs()))
    with pytest.raises(RegardError, match="ran in another thread"):
        context.__exit__(None, None, None)


def test_feed_forward_in_chunks_is_refused(transformers):
    model = make_model(transformers, "bert", chunk_size_feed_forward=1)
    with pytest.raises(RegardError, match="chunk_size_feed_forward=0"), regard.capture(model, record="residual"):
        pass
    assert hooks_of(model) == 0
    with regard.capture(model) as trace:  # attention is not in chunks
        run(model, inputs())
    assert len(trace) == 2
