"""ViT and the halves of CLIP on tiny checkpoints: from a picture to vectors, classes, traces and gradients."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_images import picture, write

import golden
import regard
from regard import RegardError, Trace
from regard.cli import main
from regard.explorer.queries.cell import projected_output
from regard.explorer.run import Run
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.metrics import corpus_head_metrics, head_metrics, patch_grid, path_patching, rollout, value_norms
from regard.metrics.layer_maps import layers_of
from regard.models.memory import estimate_memory
from regard.trace import edits
from regard.training import train


@pytest.fixture
def vit(tmp_path):
    return regard.load(write(tmp_path / "vit"))


@pytest.fixture
def clip(tmp_path):
    return regard.load(write(tmp_path / "clip", "clip/plain"))


@pytest.fixture
def classifier(tmp_path, rng):
    """A ViT with a classifier of three classes in place of its pooler."""
    folder = write(tmp_path / "classes", config={"id2label": {"0": "cat", "1": "dog", "2": "mat"}})
    file = SafetensorsFile(folder / "model.safetensors")
    tensors = {f"vit.{name}": file[name] for name in file if not name.startswith("pooler.")}
    tensors |= {"classifier.weight": rng.standard_normal((3, 12)), "classifier.bias": rng.standard_normal(3)}
    write_safetensors(folder / "model.safetensors", {name: np.array(x, np.float32) for name, x in tensors.items()})
    return regard.load(folder)


def test_a_file_an_image_an_array_and_their_numbers_are_one_picture(vit, tmp_path):
    array = picture()
    Image.fromarray(array).save(tmp_path / "x.png")
    pixels = vit.processor.normalize(vit.see(array))
    given = [tmp_path / "x.png", str(tmp_path / "x.png"), Image.fromarray(array), array, {"pixel_values": pixels}]
    hidden = [vit(x).hidden for x in given]
    assert hidden[0].shape == (1, 10, 12)
    for other in hidden[1:]:
        np.testing.assert_array_equal(other, hidden[0])


def test_a_batch_is_each_picture_alone(vit):
    pictures = [picture(20, 31), picture(40, 13, seed=1)]
    together = vit(pictures).hidden
    for row, one in zip(together, pictures, strict=True):
        np.testing.assert_allclose(row, vit(one).hidden[0], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(vit(np.stack([pictures[0]] * 2)).hidden[0], vit([pictures[0]] * 2).hidden[1])


def test_tokens_are_patches_named_by_row_and_column(vit, tmp_path):
    trace = Trace()
    vit(picture(), trace=trace)
    (encoding,) = trace.encodings
    assert encoding.tokens == ("[CLS]", *(f"r{row}c{column}" for row in range(3) for column in range(3)))
    assert encoding.grid == (3, 3)
    assert encoding.special_tokens_mask == (True, *[False] * 9)
    assert trace["blocks.1.attn.weights"].shape == (1, 3, 10, 10)
    assert trace["picture"].shape == (1, 12, 12, 3)
    assert trace["picture"].dtype == np.uint8
    trace.save(tmp_path / "x.safetensors")
    again = Trace.load(tmp_path / "x.safetensors")
    assert again.encodings == trace.encodings
    np.testing.assert_array_equal(again["picture"], trace["picture"])


def test_a_patch_is_the_part_of_the_picture_that_its_name_says(vit):
    """Of two pictures that differ in one patch, one embedding differs."""
    one = vit.see(picture())
    other = one.copy()
    other[:, 4:8, 8:] = 0  # row 1, column 2
    found = []
    for seen in (one, other):
        trace = Trace(only="token_embeddings")
        vit({"pixel_values": vit.processor.normalize(seen)}, trace=trace)
        found.append(trace["token_embeddings"][0])
    differs = np.flatnonzero((found[0] != found[1]).any(-1))
    assert [trace.encodings[0].tokens[i] for i in differs] == ["r1c2"]


def test_the_classes_have_names(classifier):
    output = classifier(picture())
    assert output.labels == ("cat", "dog", "mat")
    assert output.logits.shape == (1, 3)
    found = classifier.predictions(picture(), k=2)
    assert [one.id for one in found] == np.argsort(-output.logits[0])[:2].tolist()
    assert found[0].text == output.labels[found[0].id]
    exponentials = np.exp(output.logits[0].astype(np.float64))
    assert found[0].probability == pytest.approx((exponentials / exponentials.sum())[found[0].id])


def test_classes_without_names_are_numbered(classifier):
    path = Path(classifier.name, "config.json")
    config = json.loads(path.read_text())
    del config["id2label"]
    path.write_text(json.dumps(config))
    assert regard.load(classifier.name).labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    path.write_text(json.dumps({**config, "id2label": {"0": "cat", "1": "dog"}}))
    with pytest.raises(RegardError, match="names 2, but the head has 3 classes"):
        regard.load(classifier.name)


def test_what_a_model_does_not_have_is_said(vit, classifier, clip):
    with pytest.raises(RegardError, match="has no logits"):
        _ = vit(picture()).logits
    with pytest.raises(RegardError, match="was saved without a classifier"):
        vit.predictions(picture())
    with pytest.raises(RegardError, match="predictions takes one picture"):
        classifier.predictions([picture(), picture()])
    with pytest.raises(RegardError, match="the model was saved without its pooler"):
        _ = classifier(picture()).pooled
    with pytest.raises(RegardError, match="has no projection to a space of texts and pictures"):
        _ = vit(picture()).embedding
    for compute in (lambda o: o.loss(), lambda o: o.token_losses()):
        with pytest.raises(RegardError, match="a picture has no next token"):
            compute(classifier(picture()))
    with pytest.raises(RegardError, match=r"has two halves: call model\.text\(text\) or model\.vision\(picture\)"):
        clip("a cat")
    with pytest.raises(RegardError, match="training is of models of texts; a ViT reads pictures"):
        train(vit.name, ["w5 w6"] * 20, steps=1)


def test_the_halves_of_clip_are_models_of_their_own(clip):
    of_text, of_picture = Trace(), Trace()
    text, looked = clip.text("w5 w9 w7", trace=of_text), clip.vision(picture(), trace=of_picture)
    assert of_text["blocks.1.attn.weights"].shape == (1, 3, 3, 3)
    assert of_picture["blocks.1.attn.weights"].shape == (1, 3, 10, 10)
    np.testing.assert_array_equal(np.triu(of_text["blocks.0.attn.weights"][0, 0], 1), 0)
    np.testing.assert_array_equal(text.pooled, text.hidden[:, 2])  # w7 is its end token
    assert text.embedding.shape == looked.embedding.shape == (1, 8)


def test_the_end_of_a_text(tmp_path):
    """It is the first end token; of an older configuration the largest id; the first token where there is none."""
    newer = regard.load(golden.FOLDER / "clip_text_model/plain")
    older = regard.load(golden.FOLDER / "clip_text_model/older")
    ids = [5, 7, 21, 7, 3]
    for model, end in ((newer, 1), (older, 2)):
        output = model([ids])
        np.testing.assert_array_equal(output.pooled, output.hidden[:, end])
    output = newer([[5, 6, 8]])
    np.testing.assert_array_equal(output.pooled, output.hidden[:, 0])


def test_gradients_reach_the_numbers_of_a_picture(classifier):
    """Beside finite differences, in float64."""
    model = regard.load(classifier.name, dtype=np.float64)
    found = model.gradients(picture(), lambda o: o.logits[0, 2], at=("pixel_values", "*.weights"))
    pixels, gradient = found.values["pixel_values"], found.gradients["pixel_values"]
    assert found.gradients["blocks.0.attn.weights"].shape == (1, 3, 10, 10)
    for at in ((0, 0, 0, 0), (0, 1, 5, 9), (0, 2, 11, 11)):
        step = np.zeros_like(pixels)
        step[at] = 1e-5
        up, down = (model({"pixel_values": pixels + sign * step}).logits[0, 2] for sign in (1, -1))
        assert gradient[at] == pytest.approx((up - down) / 2e-5, rel=1e-6)
    with pytest.raises(RegardError, match="there is no gradient at picture, of whole numbers: take it at pixel_values"):
        model.gradients(picture(), lambda o: o.logits[0, 2], at="picture")
    with pytest.raises(RegardError, match="metric must be a function of the output"):
        model.gradients(picture(), "loss")


def test_edits_ablations_and_metrics_work_on_patches(vit):
    plain, ablated = Trace(), Trace(edit=edits.ablate((0, 1)))
    hidden = vit(picture(), trace=plain).hidden
    assert not np.array_equal(vit(picture(), trace=ablated).hidden, hidden)
    black = vit(picture(), edit={"picture": np.zeros_like})
    np.testing.assert_array_equal(black.hidden, vit(np.zeros((20, 31, 3), np.uint8)).hidden)
    assert head_metrics(plain).entropy.shape == (1, 2, 3)
    assert rollout(plain, rows=0).sum() == pytest.approx(1)
    maps = Trace(maps=True, only="*")
    vit(picture(), trace=maps)
    np.testing.assert_allclose(maps["blocks.1.attn.weights"], plain["blocks.1.attn.weights"], atol=1e-6)


def test_a_run_may_end_after_a_step(vit):
    output = vit(picture(), trace=Trace(stop="blocks.0.attn.weights"))
    with pytest.raises(RegardError, match=r"blocks\.0\.attn\.weights"):
        _ = output.hidden


def test_the_estimate_of_memory_is_what_a_trace_holds(vit):
    trace = Trace(only=("blocks.*", "final_norm"))
    estimate = estimate_memory(vit, 3, vit.config.num_tokens, trace)
    vit([picture()] * 3, trace=trace)
    assert estimate.recorded == pytest.approx(sum(x.nbytes for x in trace._values.values()), rel=0.02)


def test_what_does_not_fit_into_memory_is_refused(vit, monkeypatch):
    monkeypatch.setattr("regard.models.memory.available_memory", lambda: 100_000)
    monkeypatch.setattr("regard.models.memory._NEGLIGIBLE", 0)
    with pytest.raises(RegardError, match="a run of 50 × 10 tokens takes about"):
        vit([picture()] * 50, trace=Trace())


def test_a_model_is_copied_and_pickled(vit):
    copied = pickle.loads(pickle.dumps(vit))  # its arrays can be written to, so they are not packed
    np.testing.assert_allclose(copied(picture()).hidden, vit(picture()).hidden, rtol=0, atol=5e-6)


@pytest.mark.parametrize(
    ("config", "processor", "message"),
    [
        ({"image_size": 16}, {}, "preprocessing .* makes pictures of 12 × 12 pixels, but its model takes 16 × 16"),
        ({"image_size": 13}, {"size": 13}, None),  # 3 × 3 patches too
        ({"image_size": 16}, {"size": 16}, r"position_embeddings has shape \(1, 10, 12\), .* requires \(1, 17, 12\)"),
        ({"patch_size": 5}, {}, r"projection\.weight has shape \(12, 3, 4, 4\), the configuration requires"),
        ({"patch_size": 13}, {}, "patch_size must be from 1 to image_size"),
        ({"patch_size": 0}, {}, "patch_size must be a whole number of at least 1"),
        ({"patch_size": [4, 4, 4]}, {}, "patch_size must be a whole number of at least 1, or two of them"),
        ({"num_channels": 1}, {}, "num_channels=1 is not supported"),
        ({"pooler_act": "relu"}, {}, "pooler_act='relu' is not supported"),
        ({"num_attention_heads": 5}, {}, "hidden_size 12 does not split into 5 attention heads"),
        ({"id2label": {"0": "a", "2": "b"}}, {}, "id2label must name classes 0, 1, 2"),
        ({"use_swiglu": True, "transformers_version": "99.0"}, {}, "unknown field use_swiglu=True"),
        ({"image_size": 10**12}, {"size": 10**12}, "requires"),
    ],
    ids=str,
)
def test_a_configuration_that_does_not_fit_is_refused(tmp_path, config, processor, message):
    folder = write(tmp_path / "vit", config=config, processor=processor)
    if message is None:
        assert regard.load(folder)(picture()).hidden.shape == (1, 10, 12)
        return
    with pytest.raises(RegardError, match=message):
        regard.load(folder)


def test_what_the_model_cannot_look_at_is_refused(vit, tmp_path):
    with pytest.raises(RegardError, match="there is no picture; give at least one"):
        vit([])
    with pytest.raises(RegardError, match=r"pixel_values must be .* shape \(B, 3, 12, 12\), got float64 of shape"):
        vit({"pixel_values": np.zeros((1, 3, 4, 4))})
    with pytest.raises(RegardError, match="has pixel_values alone, got pixel_mask too"):
        vit({"pixel_values": np.zeros((1, 3, 12, 12)), "pixel_mask": 0})
    with pytest.raises(RegardError, match="needs pixel_values"):
        vit({})
    Path(vit.name, "preprocessor_config.json").unlink()
    unprepared = regard.load(vit.name)
    with pytest.raises(RegardError, match=r"has no preprocessor_config\.json, which says how a picture is prepared"):
        unprepared(picture())
    edge = regard.load(write(tmp_path / "edge", processor={"size": {"shortest_edge": 12}}))
    assert edge(picture(30, 30)).hidden.shape == (1, 10, 12)
    with pytest.raises(RegardError, match=r"takes pictures of 12 × 12 pixels .* makes 12 × 18 of this one"):
        edge(picture(20, 31))


def test_older_configurations_of_clip_are_read(tmp_path):
    """Whose halves are in ``text_config_dict``, too, which decides; and have fields of every configuration."""
    folder = write(tmp_path / "clip", "clip/plain")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for half in ("text", "vision"):
        config[f"{half}_config_dict"] = config[f"{half}_config"]
        config[f"{half}_config"] = {"hidden_size": 7, "add_cross_attention": False, "pruned_heads": {}}
    path.write_text(json.dumps(config))
    assert regard.load(folder).config == regard.load(golden.FOLDER / "clip/plain").config
    config["text_config_dict"] |= {"mystery": 1}
    config["transformers_version"] = "99.0"  # which may know what it is
    path.write_text(json.dumps(config))
    with pytest.raises(RegardError, match=r"text_config of .*unknown field mystery=1; pass load"):
        regard.load(folder)
    assert regard.load(folder, ignore=["mystery"]).text("w5 w7").hidden.shape == (1, 2, 12)


@pytest.mark.parametrize("command", [["explain", "a cat"], ["attribute", "a cat", "--to", " b"]])
def test_a_command_that_takes_a_text_says_so(command, capsys):
    assert main([*command, "--model", str(golden.FOLDER / "vit/plain")]) == 2
    assert "looks at pictures, and this takes a text: choose a model of texts" in capsys.readouterr().err


def test_a_command_that_takes_a_text_takes_the_half_of_clip_that_reads(capsys):
    assert main(["heads", "w5 w6", "--model", str(golden.FOLDER / "clip/plain")]) == 0
    assert "6 heads on this text" in capsys.readouterr().out


def test_the_explorer_refuses_a_model_of_pictures(vit):
    for model in (vit, vit.name):
        with pytest.raises(RegardError, match="looks at pictures, and this takes a text"):
            regard.explore("a cat", model=model)


def test_a_grid_of_two_pictures_is_patched_site_by_site(classifier):
    clean, corrupted = picture(), picture(seed=1)
    for over, step in ((("layer", "position"), "output"), ("mlp", "mlp.output"), ("head", "attn.context")):
        trace = Trace(only=f"blocks.*.{step}")
        classifier(clean, trace=trace)
        grid = patch_grid(classifier, clean, corrupted, ("cat", "mat"), over=over, batch_size=4)
        assert grid.metric == "logit of 'cat' minus that of 'mat'"
        logits = classifier(corrupted).logits[0]
        assert grid.corrupted == pytest.approx(logits[0] - logits[2], abs=1e-5)
        for layer, site in ((0, 0), (1, 2)):
            part = {"heads": site} if over == "head" else {"positions": site}
            logits = classifier(corrupted, edit=edits.patch(trace, f"blocks.{layer}.{step}", **part)).logits[0]
            assert grid.values[layer, site] == pytest.approx(logits[0] - logits[2], abs=1e-4)
    same = patch_grid(classifier, clean, corrupted, lambda o: o.logits[0, 0] - o.logits[0, 2], over="head")
    np.testing.assert_allclose(same.values, grid.values, atol=1e-5)
    one = patch_grid(classifier, {"pixel_values": classifier.pixel_values(clean)}, corrupted, 0, over="head")
    assert one.metric == "logit of 'cat'"


def test_grids_of_pictures_say_what_they_need(classifier, vit, clip):
    one, other = picture(), picture(seed=1)
    for model, given, metric, message in (
        (classifier, (one, other), "bird", "there is no class 'bird': .* has 3, "),
        (classifier, (one, other), 3, "there is no class 3"),
        (classifier, ([one, other], other), "cat", "give one picture, and one other, got 2"),
        (classifier, ("no file.png", other), "cat", "there is no picture no file.png"),
        (vit, (one, other), "cat", "has no classes: give a function of the output"),
        (clip, (one, other), "cat", r"has two halves: give model\.text or model\.vision"),
    ):
        with pytest.raises(RegardError, match=message):
            patch_grid(model, *given, metric)
    with pytest.raises(RegardError, match="path patching is for decoders"):
        path_patching(vit, one, other, "cat", sender=(0, 0), receiver=(1, 0))
    grid = patch_grid(clip.vision, one, other, lambda o: o.embedding[0, 0])
    assert grid.corrupted == pytest.approx(clip.vision(other).embedding[0, 0], abs=1e-6)
    assert grid.values.shape == (clip.vision.config.num_layers, clip.vision.config.num_tokens)


def test_many_pictures_are_traced_in_their_order(vit, tmp_path):
    arrays = [picture(20 + i, 31, seed=i) for i in range(5)]
    files = [tmp_path / f"{i}.png" for i in range(5)]
    for array, file in zip(arrays, files, strict=True):
        Image.fromarray(array).save(file)
    done = []
    found = list(vit.iter_traces(files, batch_size=2, only="*.output", progress=lambda *at: done.append(at)))
    assert [i for i, _ in found] == [0, 1, 2, 3, 4]
    assert done == [(2, 5), (4, 5), (5, 5)]
    for (_, trace), array in zip(found, arrays, strict=True):
        alone = Trace(only="*.output")
        vit(array, trace=alone)
        np.testing.assert_allclose(trace["blocks.1.output"], alone["blocks.1.output"], atol=1e-5)
    rest = list(vit.iter_traces(iter(arrays), batch_size=2, only="*.output", skip=3))
    assert [i for i, _ in rest] == [3, 4]
    np.testing.assert_array_equal(rest[0][1]["blocks.1.output"], found[3][1]["blocks.1.output"])
    edit = edits.mean_ablate(vit.iter_traces(arrays, only="*.output"), "blocks.0.output", positions=[0, -1])
    changed = Trace(edit=edit)
    vit(arrays[0], trace=changed)
    mean = np.concatenate([trace["blocks.0.output"][0] for _, trace in found]).mean(0)
    np.testing.assert_allclose(changed["blocks.0.output"][0, [0, -1]], [mean, mean], rtol=1e-4, atol=1e-5)
    for wrong in ("x.png", 3, {files[0]}, {"pixel_values": 0}):
        with pytest.raises(RegardError, match="iterable of pictures"):
            vit.iter_traces(wrong)


def test_head_metrics_of_many_pictures_are_means_of_each(vit, clip):
    arrays = [picture(seed=i) for i in range(3)]
    found = corpus_head_metrics(vit, arrays, batch_size=2)
    each = []
    for array in arrays:
        trace = Trace(maps=True, only="*")
        vit(array, trace=trace)
        each.append(head_metrics(trace).entropy[0])
    np.testing.assert_allclose(found.means["entropy"], np.mean(each, 0), rtol=1e-4)
    for options in ({"truncate": True}, {"resume": "x"}):
        with pytest.raises(RegardError, match="is for texts: leave it out for pictures"):
            corpus_head_metrics(vit, arrays, **options)
    with pytest.raises(RegardError, match=r"by model\.text or model\.vision"):
        corpus_head_metrics(clip, arrays)
    with pytest.raises(RegardError, match="there is no picture; give at least one"):
        corpus_head_metrics(vit, [])


def test_a_clip_says_which_half_has_what_it_lacks(clip):
    for name, use in (("iter_traces", "model.text.iter_traces or model.vision.iter_traces"), ("embed", "text.embed")):
        with pytest.raises(AttributeError, match=f"it has two halves, use .*{use}"):
            getattr(clip, name)
    assert not hasattr(clip, "generate")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(clip)).logit_scale, clip.logit_scale)


def test_layer_scale_is_part_of_what_heads_write():
    model, trace = regard.load(golden.FOLDER / "dinov2/plain", dtype=np.float64), Trace()
    model({"pixel_values": np.random.default_rng(0).standard_normal((1, 3, *model.config.image_size))}, trace=trace)
    block, weights, v = model.blocks[1], trace["blocks.1.attn.weights"][0], trace["blocks.1.attn.v"][0]
    rows = block.attn.o_proj.weight.reshape(3, 4, 12) * block.attn_scale  # H Dv E
    written = np.einsum("hts,hsd,hde->tse", weights, v, rows)
    np.testing.assert_allclose(value_norms(model, trace, 1, heads="together"), np.linalg.norm(written, axis=-1))
    total = written.sum(1) + block.attn.o_proj.bias * block.attn_scale
    np.testing.assert_allclose(trace["blocks.1.attn_residual"] - trace["blocks.0.output"], total[None], atol=1e-12)
    shown = projected_output(Run(trace, layers_of(trace, 0), 0, trace.encodings[0], model), 1, 2, 4)
    np.testing.assert_allclose(shown["attention"], total[4], atol=1e-12)


@pytest.mark.parametrize("side", [3, 2**14])
def test_a_crop_below_a_patch_or_beyond_the_largest_picture_is_refused(tmp_path, side):
    folder = tmp_path / "model"
    shutil.copytree(golden.FOLDER / "dinov2/plain", folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"crop_size": {"height": side, "width": side}}))
    with pytest.raises(RegardError, match=f"makes pictures of {side} × {side} pixels, but its model takes 16 × 16"):
        regard.load(folder)
