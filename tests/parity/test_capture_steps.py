"""Steps of running PyTorch models, against those that regard's own models have for the same weights."""

import numpy as np
import pytest
import torch
from capture_models import TEXT_FAMILIES, FamilyPair, captured, inputs, run
from transformers_models import make_model

import make_golden
import regard
from regard import RegardError, Trace, edits

CASES = [(family, case) for family in TEXT_FAMILIES for case in make_golden.CASES[family].cases if case != "long"]
FIRST = dict(reversed(CASES))
STAGES = ("scores", "capped", "biased")  # of an attention in a model's own code there are none
NOT_CAPTURED = (*STAGES, "attn_post_norm", "mlp_post_norm", "kv_latent")
ONLY_CAPTURED = {"logits", "encoder.embeddings", "decoder.embeddings"}  # T5's are its token embeddings


def assert_same(ours, theirs, name):
    ours = np.broadcast_to(ours, theirs.shape)  # positions of all texts are one array in regard
    seen = np.isfinite(ours) & np.isfinite(theirs)  # a masked score is −∞ here and the least number there
    largest = max(1.0, np.abs(ours, where=seen, out=np.zeros(ours.shape)).max())
    np.testing.assert_allclose(theirs[seen], ours[seen], rtol=0, atol=1e-5 * largest, err_msg=name)


@pytest.mark.parametrize(("family", "case"), CASES)
def test_the_steps_of_every_family_are_those_of_regard(transformers, tmp_path, family, case):
    pair = FamilyPair(transformers, family, case, tmp_path)
    with torch.no_grad():
        theirs, _ = pair.run_theirs(trace=Trace())
    ours, logits = pair.run_ours()
    not_captured = (*NOT_CAPTURED, *(["experts"] if family == "llama4_text" else []))  # whose router returns a pair
    missing = {name for name in set(ours) - set(theirs) if name.rpartition(".")[2] not in not_captured}
    assert not missing
    assert set(theirs) - set(ours) <= ONLY_CAPTURED
    for name in set(ours) & set(theirs):
        assert_same(ours[name], theirs[name], name)
    if "logits" in theirs:
        assert_same(logits, theirs["logits"], "logits")


@pytest.mark.parametrize("tensors", [False, True], ids=["arrays", "tensors"])
@pytest.mark.parametrize("family", FIRST)
def test_an_edit_of_any_step_does_what_it_does_in_regard(transformers, tmp_path, family, tensors):
    pair = FamilyPair(transformers, family, FIRST[family], tmp_path)
    _, plain = pair.run_ours()
    taken, _ = pair.run_theirs(trace=Trace())
    names = [name for name in taken if name.rpartition(".")[2] not in STAGES and name not in ONLY_CAPTURED]
    names = [name for name in names if "blocks." not in name or "blocks.0." in name]
    assert len(names) > 8
    for name in names:

        def changed(x):  # the last feature more than the first, so that no norm undoes it
            factors = np.linspace(0.5, 1.5, x.shape[-1], dtype=np.float32)
            return x * (factors if isinstance(x, np.ndarray) else torch.tensor(factors))

        edit = {name: (lambda x: x * 0.7) if name.endswith("experts") else changed}
        _, found = pair.run_theirs(record=name if tensors else (), tensors=tensors, edit=edit)
        _, expected = pair.run_ours(only=(), edit=edit)
        assert np.abs(expected - plain).max() > 1e-4, name
        assert_same(expected, found.detach().numpy(), name)


@pytest.mark.parametrize("family", ["vit", "clip_vision_model", "dinov2"])
def test_the_steps_of_pictures_are_those_of_regard(transformers, tmp_path, family):
    kind = make_golden.CASES[family]
    config = getattr(transformers, kind.config)(**kind.sizes | next(iter(kind.cases.values())))
    model = make_golden.drawn(getattr(transformers, kind.model)(config).eval(), 0)
    model.save_pretrained(tmp_path)
    make_golden.write_processor(tmp_path, config)
    pixels = make_golden.pixel_values(config, 2).astype(np.float32)
    ours, theirs = Trace(), Trace()
    regard.load(tmp_path)({"pixel_values": pixels}, trace=ours)
    with torch.no_grad(), regard.capture(model, trace=theirs):
        model(pixel_values=torch.tensor(pixels))
    missing = {name for name in set(ours) - set(theirs) if not name.endswith("_scaled")}
    assert missing <= {"pixel_values", "token_embeddings", "position_embeddings"}  # of no table
    assert set(theirs) <= set(ours)
    for name in theirs:
        assert_same(ours[name], theirs[name], name)


@pytest.mark.parametrize(
    "name", ["biogpt", "deepseek_v3", "ernie4_5", "granite", "phi", "qwen2_moe", "stablelm", "starcoder2"]
)
def test_the_stream_of_other_models_adds_up(transformers, name):
    """What stands in no family of regard: block by block, the stream is the sum of what was added to it."""
    model = make_model(transformers, name, "sdpa")
    trace = captured(model, record="residual, attn, mlp, embeddings")
    x, scale = trace["embeddings"], getattr(model.config, "residual_multiplier", 1.0)
    for i in range(2):
        attended, mlp = trace[f"blocks.{i}.attn.output"] * scale, trace[f"blocks.{i}.mlp.output"] * scale
        if f"blocks.{i}.attn_residual" in trace:
            np.testing.assert_allclose(trace[f"blocks.{i}.attn_residual"], x + attended, rtol=1e-5, atol=1e-5)
        else:
            assert name == "phi"  # attention and feed-forward side by side
        x = x + attended + mlp
        np.testing.assert_allclose(trace[f"blocks.{i}.output"], x, rtol=1e-5, atol=1e-5)
        x = trace[f"blocks.{i}.output"]


@pytest.mark.parametrize("name", ["bloom", "mpnet", "deberta-v2", "roformer"])
def test_weights_of_an_attention_in_the_model_s_own_code(transformers, name):
    model = make_model(transformers, name)
    given = {"input_ids": inputs()["input_ids"]}
    with regard.capture(model) as trace:
        theirs = run(model, given, output_attentions=True).attentions
    assert trace.names() == ("blocks.0.attn.weights", "blocks.1.attn.weights")
    for i, weights in enumerate(theirs):
        np.testing.assert_array_equal(trace[f"blocks.{i}.attn.weights"], weights.numpy())


@pytest.mark.parametrize(("name", "step"), [("roformer", "q"), ("xglm", "weights")])
def test_what_no_module_computes_is_refused(transformers, name, step):
    """Queries that are rotated after their projection, weights without a dropout module."""
    model = make_model(transformers, name)
    found = r"steps found in it are .*blocks\.\*\.attn\.v.*blocks\.\*\.mlp\.output"
    with pytest.raises(RegardError, match=found), regard.capture(model, record=f"blocks.*.attn.{step}"):
        run(model, {"input_ids": inputs()["input_ids"]})


def plain_decoder():
    """Return a decoder as it is written by hand, of no library."""
    from torch import nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.n_head, self.c_attn, self.c_proj = 3, nn.Linear(12, 36), nn.Linear(12, 12)
            self.attn_dropout = nn.Dropout(0.1)

        def forward(self, x):
            q, k, v = (y.unflatten(-1, (3, 4)).transpose(1, 2) for y in self.c_attn(x).split(12, -1))
            scores = (q @ k.mT / 2).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1) > 0, -torch.inf)
            weights = self.attn_dropout(scores.softmax(-1))
            return self.c_proj((weights @ v).transpose(1, 2).flatten(-2))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(12), Attention(), nn.LayerNorm(12)
            self.mlp = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 12))

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(50, 12), nn.Embedding(30, 12)
            self.h, self.ln_f = nn.ModuleList(Block() for _ in range(2)), nn.LayerNorm(12)

        def forward(self, ids):
            x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
            for block in self.h:
                x = block(x)
            return self.ln_f(x)

    torch.manual_seed(0)
    return Decoder().eval()


def test_a_model_of_no_library():
    model, ids = plain_decoder(), torch.arange(14).reshape(2, 7)
    with torch.no_grad(), regard.capture(model, record="weights, residual, mlp, embeddings, norms") as trace:
        output = model(ids)
    block = {"attn.weights", "attn_residual", "mlp.output", "output"}
    expected = {f"blocks.{i}.{name}" for i in range(2) for name in block}
    assert set(trace) == expected | {"token_embeddings", "position_embeddings", "embeddings", "final_norm"}
    np.testing.assert_array_equal(trace["final_norm"], output.numpy())
    x = torch.tensor(trace["blocks.0.output"])
    with torch.no_grad():
        np.testing.assert_allclose(trace["blocks.1.output"], model.h[1](x).numpy(), atol=1e-6)
    assert not np.triu(trace["blocks.1.attn.weights"], 1).any()
    with pytest.raises(RegardError, match=r"record= matched no step of this run: 'qkv'.*blocks\.\*\.attn\.weights"):  # noqa: SIM117
        with regard.capture(model, record="mlp, qkv"):
            model(ids)


def test_blocks_of_plain_pytorch():
    torch.manual_seed(3)
    for norm_first in (False, True):
        layer = torch.nn.TransformerEncoderLayer(12, 2, 20, batch_first=True, norm_first=norm_first)
        model, x = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(2, 5, 12)
        with torch.no_grad(), regard.capture(model, record="residual, attn, mlp, weights") as trace:
            output = model(x)
        np.testing.assert_array_equal(trace["blocks.1.output"], output.numpy())
        first = model.layers[0]
        with torch.no_grad():
            attended = torch.tensor(trace["blocks.0.attn.output"])
            stream = x + attended if norm_first else first.norm1(x + attended)
            np.testing.assert_allclose(trace["blocks.0.attn_residual"], stream.numpy(), atol=1e-6)
            mlp = first.linear2(first.linear1(first.norm2(stream) if norm_first else stream).relu())
            np.testing.assert_allclose(trace["blocks.0.mlp.output"], mlp.numpy(), atol=1e-6)


def test_only_what_is_asked_for_is_kept(pair):
    model, _ = pair("llama")
    trace = captured(model, record="mlp")
    assert set(trace) == {f"blocks.{i}.mlp.output" for i in range(3)}
    trace = captured(model, record=["blocks.1.output", "weights"])
    assert set(trace) == {"blocks.1.output", *(f"blocks.{i}.attn.weights" for i in range(3))}
    assert trace.has_map("blocks.2.attn")
    trace = captured(model, record="*.scores")
    assert set(trace) == {f"blocks.{i}.attn.scores" for i in range(3)}


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_precisions(pair, dtype):
    model = pair("llama")[0].to(getattr(torch, dtype))
    seen = []
    handle = model.model.layers[1].register_forward_hook(lambda *args: seen.append(args[2]))
    trace = captured(model, record="residual", edit=edits.scale(0.5, "blocks.0.mlp.output"))
    handle.remove()
    assert trace["blocks.1.output"].dtype == {"bfloat16": "float32"}.get(dtype, dtype)
    np.testing.assert_array_equal(trace["blocks.1.output"].astype(np.float64), seen[0].double().numpy())


def test_steering_while_a_text_is_generated(pair):
    model, _ = pair("llama")
    ids = inputs()["input_ids"][:1]
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "use_cache": True}
    vector = np.linspace(-3, 3, 24, dtype=np.float32)
    handle = model.model.layers[1].register_forward_hook(lambda _, __, x: x + torch.tensor(vector))
    expected = model.generate(ids, **options)
    handle.remove()
    with regard.capture(model, record=(), edit=edits.add(vector, "blocks.1.output")):
        found = model.generate(ids, **options)
    assert torch.equal(found, expected)
    assert not torch.equal(found, model.generate(ids, **options))
    with pytest.raises(RegardError, match="a trace holds one run"), regard.capture(model, record="residual"):
        model.generate(ids, **options)


def test_experts_that_were_not_chosen_have_no_weight(transformers, tmp_path):
    pair = FamilyPair(transformers, "mixtral", "plain", tmp_path)
    with pytest.raises(RegardError, match="gives weight to experts that were not chosen"):
        pair.run_theirs(record=(), edit={"blocks.0.mlp.experts": lambda x: x + 1})
