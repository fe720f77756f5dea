"""Every family can be trained: decoders on the next token, encoders on masked words, encoder-decoders on pairs."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import regard
from fake_traces import recorded
from regard import RegardError, training
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.models import FAMILIES, load
from regard.models.task_heads import Classifier
from regard.nn import parameters
from regard.training.objectives import MaskedWords, NextToken, SequenceToSequence

GOLDEN = Path(__file__).parent.parent / "models" / "golden"
UNTRAINED = ("clip", "clip_text_model", "clip_vision_model", "dinov2", "vit")  # refused in a sentence
FOLDERS = {
    family: GOLDEN / family / sorted(path.name for path in (GOLDEN / family).iterdir())[0]
    for family in FAMILIES
    if family not in UNTRAINED
}
COMPUTED = ("gemma2", "gemma3", "gemma3_text", "gpt_neox")


IDS = np.ones((2, 4), int)


def batches_for(trainable):
    """Return a function from a number to a batch of the kind that the model is trained on."""
    size = trainable.model.config.vocab_size

    def batch(number):
        rng = np.random.default_rng([7, number])
        ids = rng.integers(5, size, (2, 6))
        if isinstance(trainable.objective, SequenceToSequence):
            return ids, rng.integers(5, size, (2, 4))
        return training.mask_words(ids, rng, mask_id=4, vocab_size=size) if is_encoder(trainable) else ids

    return batch


def is_encoder(trainable):
    return isinstance(trainable.objective, MaskedWords)


def train(trainable, steps=3, **options):
    return regard.train(trainable, batches_for(trainable), steps=steps, learning_rate=1e-2, **options)


@pytest.mark.parametrize("family", FOLDERS)
def test_a_loaded_model_is_trained_and_loads_again(tmp_path, family):
    trainable = training.Trainable.from_model(FOLDERS[family])
    before = {name: np.array(x) for name, x in parameters(load(FOLDERS[family])).items()}
    new = {name: np.array(x) for name, x in parameters(trainable.model).items() if name.startswith("task_head.")}
    before = new | before
    for name, x in parameters(trainable.model).items():
        np.testing.assert_array_equal(x, before[name])
    objective, tap = trainable.objective, trainable.objective.embeddings_tap
    batch = objective.as_batch(batches_for(trainable)(0))
    dropped = recorded(objective, batch, only=[tap, f"*.{tap}"])  # of which dropout drops some
    assert len(dropped) == 1 + isinstance(objective, SequenceToSequence)
    run = train(trainable, folder=tmp_path)
    after = parameters(load(run.checkpoint))
    ours = parameters(run.model)
    assert ours.keys() == after.keys()
    for name, x in ours.items():
        np.testing.assert_array_equal(x, np.asarray(after[name]), err_msg=name)
    # A key's bias moves all scores of a query alike, and T5 has positions that no short text has: nothing else stays.
    same = {name for name, x in ours.items() if np.array_equal(x, before[name])}
    assert len(same) <= 0.1 * len(ours), same


@pytest.mark.parametrize("family", FOLDERS)
def test_a_new_model_learns(tmp_path, family):
    config = json.loads((FOLDERS[family] / "config.json").read_text())
    config |= {"logit_scale": 1.0} if "logit_scale" in config else {}  # 1/16 in Command R: slow
    tokenizer = load(FOLDERS[family]).tokenizer
    new = training.new_model(config, tokenizer, seed=3)
    for name, x in parameters(new.model).items():
        if name.endswith("norm.weight"):
            assert (x == 1).all(), name  # also where 0 is stored
    batch = batches_for(new)(0)
    run = regard.train(new, lambda _: batch, steps=15, learning_rate=1e-2, folder=tmp_path)
    assert run.steps[-1].loss < 0.8 * run.steps[0].loss
    assert type(training.Trainable.from_model(run.checkpoint).objective) is type(new.objective)


@pytest.mark.parametrize("family", [*COMPUTED, "bart", "modernbert"])
def test_a_resumed_run_has_the_same_bits(tmp_path, family):
    def run(folder, **options):
        return train(training.Trainable.from_model(FOLDERS[family]), folder=tmp_path / folder, dropout=0.1, **options)

    whole = run("whole", steps=4)
    with pytest.raises(ZeroDivisionError):
        run("cut", steps=4, save_every=2, progress=lambda step, _: 1 // (3 - step.step))
    resumed = run("cut", steps=4, save_every=2, resume=True)
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (whole.checkpoint / name).read_bytes() == (resumed.checkpoint / name).read_bytes()


@pytest.mark.parametrize("family", COMPUTED)
def test_a_changed_model_is_trained_as_it_is(tmp_path, family):
    shutil.copytree(FOLDERS[family], tmp_path / "model")
    model = load(tmp_path / "model")
    arrays = parameters(model)
    for name in ("blocks.0.attn.q_proj.weight", "blocks.1.attn_norm.weight"):
        changed = 1.5 * arrays[name]
        *path, last = name.split(".")
        layer = model
        for part in path:
            layer = layer[int(part)] if part.isdigit() else getattr(layer, part)
        object.__setattr__(layer, last, changed)
    trainable = training.Trainable.from_model(model)
    trainable.update_computed()
    ours = parameters(trainable.model)
    for name, x in parameters(model).items():
        np.testing.assert_allclose(ours[name], np.asarray(x), rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("family", ["bert", "gpt_neox", "t5"])
def test_checkpointed_blocks_give_the_same_losses(family):
    losses = [
        [step.loss for step in train(training.Trainable.from_model(FOLDERS[family]), checkpoint=checkpoint).steps]
        for checkpoint in (False, True)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_an_encoder_without_a_head_gets_one(tmp_path):
    first, same, other = (training.Trainable.from_model(FOLDERS["bert"], seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.values, same.values)
    assert not np.array_equal(first.values, other.values)
    run = train(first, steps=1, folder=tmp_path)
    assert json.loads((run.checkpoint / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    saved = training.Trainable.from_model(run.checkpoint, seed=9)
    assert np.array_equal(saved.values, first.values)  # its head is the one that was saved


def test_texts_are_pairs_for_an_encoder_decoder():
    trainable = training.Trainable.from_model(FOLDERS["t5"])
    batch = trainable.objective.as_batch((["w5 w6 w7", "w8"], ["w9", "w10 w11"]))
    assert batch.ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.mask.tolist() == [[True, True, True], [True, False, False]]
    assert batch.targets.tolist() == [[9, -100], [10, 11]]
    assert batch.num_targets == 3
    text = " ".join(f"w{i % 15 + 5}" for i in range(400))
    task = training.text_task(text, pairs=True, tokenizer=trainable.tokenizer, context=9, batch_size=3)
    batch = task.batches()(0)
    assert (batch.ids.shape, batch.targets.shape) == ((3, 4), (3, 5))
    np.testing.assert_array_equal((batch.ids[:, -1] - 4) % 15, (batch.targets[:, 0] - 5) % 15)


@pytest.mark.parametrize(
    ("family", "batch", "message"),
    [
        ("bert", ["w5 w6"], "predicts masked words"),
        ("bert", ("w5 w6", "w7 w8"), "predicts masked words"),
        ("bert", np.ones((2, 3), int), "predicts masked words"),
        ("t5", ["w5 w6"], r"is a Batch or \(sources, targets\), got list"),
        ("t5", (np.ones((2, 3), int), np.ones((1, 3), int)), "sources are B S and targets B T"),
        ("bart", (np.ones((1, 3), int), np.ones((1, 999), int)), "sequences of 999 tokens"),
        ("gpt2", training.Batch(IDS, IDS, np.arange(4) >= [[0], [1]]), "begins after padding"),
        ("gpt2", training.Batch(IDS, IDS, np.ones((1, 4), bool)), "booleans in the shape of ids"),
    ],
)
def test_a_batch_of_another_kind_is_refused(family, batch, message):
    with pytest.raises(RegardError, match=message):
        regard.train(training.Trainable.from_model(FOLDERS[family]), [batch], steps=1)


@pytest.fixture
def with_head(tmp_path):
    """Return a folder of a BERT with its head, and its tensors."""
    new = training.Trainable.from_model(FOLDERS["bert"], seed=4)
    new.save(tmp_path / "model")
    return tmp_path / "model", dict(new.tensors)


def rewritten(folder, tensors):
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    return training.Trainable.from_model(folder, seed=5)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("LayerNorm.weight", "LayerNorm.gamma"),
        ("LayerNorm.bias", "LayerNorm.beta"),
        ("predictions.bias", "predictions.decoder.bias"),
    ],
)
def test_a_head_with_old_names_is_read(with_head, new, old):
    folder, tensors = with_head
    renamed = {name.replace(new, old): x for name, x in tensors.items()}
    assert renamed.keys() != tensors.keys()
    assert {name: x.tolist() for name, x in rewritten(folder, renamed).tensors.items()} == {
        name: x.tolist() for name, x in tensors.items()
    }


DENSE = "cls.predictions.transform.dense.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(DENSE), f"missing {DENSE}"),
        (lambda tensors: tensors.update({DENSE: np.full_like(tensors[DENSE], np.nan)}), "not finite"),
        (lambda tensors: tensors.update({DENSE: tensors[DENSE][:1]}), f"{DENSE} has shape"),
        (lambda tensors: tensors.update({DENSE: tensors[DENSE].astype(np.int32)}), "int32"),
    ],
)
def test_a_broken_head_is_an_error(with_head, change, message):
    folder, tensors = with_head
    change(tensors)
    with pytest.raises(RegardError, match=message):
        rewritten(folder, tensors)


def test_the_trained_head_goes_on(tmp_path):
    first = train(training.Trainable.from_model(FOLDERS["bert"]), steps=20)
    again = train(first.trainable, steps=1)
    assert again.steps[0].loss < 0.9 * first.steps[0].loss
    from_model = regard.train(first.model, batches_for(first.trainable), steps=1)
    assert from_model.steps[0].loss < 0.9 * first.steps[0].loss


@pytest.mark.parametrize("bias", [True, False])
def test_a_classifier_whose_layers_have_the_names_of_those_of_words_gets_a_new_head(tmp_path, bias):
    folder, rng = GOLDEN / "modernbert" / "plain", np.random.default_rng(0)
    config, stored = json.loads((folder / "config.json").read_text()), SafetensorsFile(folder / "model.safetensors")
    tensors = {f"model.{name.removeprefix('model.')}": stored[name] for name in stored.shapes if "head." not in name}
    E = config["hidden_size"]
    own = {"head.dense.weight": (E, E), "head.norm.weight": (E,), "classifier.weight": (2, E), "classifier.bias": (2,)}
    tensors |= {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in own.items()}
    kind = {"architectures": ["ModernBertForSequenceClassification"], "decoder_bias": bias}
    (tmp_path / "config.json").write_text(json.dumps({**config, **kind}))
    write_safetensors(tmp_path / "model.safetensors", tensors)
    shutil.copy(folder / "tokenizer.json", tmp_path)
    loaded = load(tmp_path)
    assert isinstance(loaded.task_head, Classifier)
    for each in (tmp_path, loaded):
        trainable = training.Trainable.from_model(each)
        assert isinstance(trainable.objective, MaskedWords)
        assert not np.array_equal(trainable.tensors["head.dense.weight"], tensors["head.dense.weight"])
        assert (trainable.tensors["head.norm.weight"] == 1).all()
        name = "model.embeddings.tok_embeddings.weight"
        np.testing.assert_array_equal(trainable.tensors[name], tensors[name])


@pytest.mark.parametrize("other", ["mistral", "t5", "gpt2"])
def test_another_model_under_the_name_of_a_stored_one_is_refused(other):
    model = replace(load(FOLDERS[other]), name=str(FOLDERS["llama"]))
    with pytest.raises(RegardError, match="is another model than the one stored under its name"):
        training.Trainable.from_model(model)
    cut = load(FOLDERS["llama"])
    with pytest.raises(RegardError, match="is another model"):
        training.Trainable.from_model(replace(cut, blocks=cut.blocks[:1]))


def test_a_sentence_encoder_embeds_after_its_training(tmp_path, minilm):
    batch = training.mask_words(
        np.arange(40).reshape(4, 10) + 1000, np.random.default_rng(0), mask_id=103, vocab_size=30522
    )
    run = regard.train(minilm, [batch], steps=1, learning_rate=1e-9, folder=tmp_path)
    ours, before = (model.embed(["a cat sat"]) for model in (load(run.checkpoint), minilm))
    np.testing.assert_allclose(ours, before, atol=1e-5)


class TestMasks:
    rng = np.random.default_rng(1)

    def test_ids_of_every_integer_type(self):
        ids = self.rng.integers(0, 200, (50, 8)).astype(np.uint8)
        batch = training.mask_words(ids, self.rng, mask_id=201, vocab_size=200)
        assert batch.targets.min() == -100
        assert (batch.targets[batch.targets >= 0] == ids[batch.targets >= 0]).all()

    def test_every_place_is_as_likely(self):
        batch = training.mask_words(np.ones((20_000, 6), int), self.rng, mask_id=9, vocab_size=8)
        shares = (batch.targets >= 0).mean(0)
        assert shares.max() - shares.min() < 0.02
        assert (batch.targets >= 0).any(1).all()

    def test_special_tokens_and_padding_are_not_words(self):
        ids = np.tile([1, 5, 6, 7, 2, 0, 0], (200, 1))
        mask = np.tile([True] * 5 + [False] * 2, (200, 1))
        batch = training.mask_words(ids, self.rng, mask_id=9, vocab_size=8, special_ids=[1, 2], mask=mask)
        assert (batch.targets[:, [0, 4, 5, 6]] == -100).all()
        assert (batch.targets >= 0).any(1).all()
        assert batch.mask is mask
        nothing = training.mask_words(np.ones((2, 3), int), self.rng, mask_id=9, vocab_size=8, special_ids=[1])
        assert nothing.num_targets == 0

    @pytest.mark.parametrize(
        ("ids", "options", "message"),
        [
            (np.ones(3, int), {}, "ids must be integers, B T"),
            (np.ones((0, 3), int), {}, "ids must be integers, B T"),
            ([[0.5]], {}, "ids must be integers, B T"),
            (np.ones((1, 3), int), {"rate": 0}, "rate must be"),
            (np.ones((1, 3), int), {"mask": np.ones((1, 2), bool)}, "mask must be booleans"),
        ],
    )
    def test_errors(self, ids, options, message):
        with pytest.raises(RegardError, match=message):
            training.mask_words(ids, self.rng, mask_id=9, vocab_size=8, **options)


def test_a_sequence_of_an_encoder_has_its_ends(minilm):
    task = training.text_task("the cat sat on the mat. " * 200, masked=True, tokenizer=minilm.tokenizer, context=12)
    batch = task.batches()(0)
    assert (batch.ids[:, 0] == 101).all()
    assert (batch.ids[:, -1] == 102).all()
    assert (batch.targets[:, [0, -1]] == -100).all()
    assert batch.ids.shape[1] == 12


def test_what_each_kind_is_trained_for():
    kinds = {family: type(training.Trainable.from_model(folder).objective) for family, folder in FOLDERS.items()}
    assert {family for family, kind in kinds.items() if kind is SequenceToSequence} == {"bart", "mt5", "t5"}
    assert sum(kind is MaskedWords for kind in kinds.values()) == 11
    assert kinds["gemma2"] is NextToken


def test_pairs_need_an_encoder_decoder():
    with pytest.raises(RegardError, match="pairs are for a loaded encoder-decoder"):
        training.text_task("a cat " * 300, pairs=True)
    task = training.text_task("w5 " * 700, pairs=True, tokenizer=load(FOLDERS["t5"]).tokenizer)
    with pytest.raises(RegardError, match="is for a loaded model"):
        task.new_model()


@pytest.mark.parametrize("family", UNTRAINED)
def test_models_of_pictures_are_not_trained(family):
    message = "a model of type 'clip_text_model' cannot be trained" if "text" in family else "reads pictures"
    with pytest.raises(RegardError, match=message):
        training.Trainable.from_model(GOLDEN / family / "plain")
