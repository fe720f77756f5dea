"""Task heads of encoders: which place they predict, and what they say where they cannot."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import regard
from regard import RegardError, training
from regard.formats.safetensors import SafetensorsFile, write_safetensors
from regard.functional import softmax
from regard.models.task_heads import MaskedWordHead

FOLDER = Path(__file__).parent / "golden" / "bert" / "gelu"
TEXT = [5, 4, 7, 8]


@pytest.fixture(scope="module")
def with_head(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    training.Trainable.from_model(FOLDER).save(folder)
    return folder


def classifier(folder, task, **fields):
    """Write the model of `FOLDER` with a classifier of three classes, whose bias alone is not 0."""
    config = json.loads((FOLDER / "config.json").read_text())
    E = config["hidden_size"]
    tensors = {f"bert.{name.removeprefix('bert.')}": x for name, x in tensors_of(FOLDER).items()}
    tensors["classifier.weight"] = np.zeros((3, E), np.float32)
    tensors["classifier.bias"] = np.array([0.0, 2.0, 1.0], np.float32)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**config, "architectures": [f"BertFor{task}"], **fields}))
    write_safetensors(folder / "model.safetensors", tensors)
    return regard.load(folder)


def tensors_of(folder):
    stored = SafetensorsFile(folder / "model.safetensors")
    return {name: stored[name] for name in stored.shapes}


def test_the_mask_is_what_is_predicted(with_head, monkeypatch):
    model = regard.load(with_head)
    mask = model.tokenizer.backend.get_vocab_size()
    model.tokenizer.backend.add_special_tokens(["[MASK]"])
    assert model.tokenizer.mask_id == mask
    output = model(TEXT)
    assert output.logits.shape == (1, 4, model.config.vocab_size)
    seen, call = [], MaskedWordHead.__call__
    monkeypatch.setattr(MaskedWordHead, "__call__", lambda self, x, **of: seen.append(x.shape) or call(self, x, **of))
    (found,) = model.predictions(TEXT, k=1, position=-2)
    assert seen == [(1, 1, model.config.embed_dim)]  # of other tokens there are no logits
    assert found.id == output.logits[0, 2].argmax()
    assert found.probability == pytest.approx(softmax(output.logits[0, 2]).max(), rel=1e-5)
    with pytest.raises(RegardError, match="the text has 0 masks: give position=, the number of a token, from 0 to 3"):
        model.predictions(TEXT)


def test_a_sequence_has_the_names_of_its_classes(tmp_path):
    model = classifier(tmp_path / "model", "SequenceClassification", id2label={0: "no", 1: "yes", 2: "perhaps"})
    output = model([TEXT, TEXT[:2]])
    np.testing.assert_array_equal(output.logits, [[0, 2, 1]] * 2)
    assert output.labels == ("no", "yes", "perhaps")
    assert [each.text for each in model.predictions(TEXT)] == ["yes", "perhaps", "no"]
    with pytest.raises(RegardError, match="leave out position="):
        model.predictions(TEXT, position=1)


def test_each_token_has_classes(tmp_path):
    model = classifier(tmp_path / "model", "TokenClassification", id2label={0: "LABEL_0", 1: "LABEL_1"})
    np.testing.assert_array_equal(model(TEXT).logits, [[[0, 2, 1]] * 4])
    assert model.predictions(TEXT, k=1, position=3)[0].text == "LABEL_1"
    with pytest.raises(RegardError, match="each token has classes: give position="):
        model.predictions(TEXT)
    with pytest.raises(RegardError, match="less than the 4 tokens"):
        model.predictions(TEXT, position=4)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({0: "O"}, "names 1, but the head has 3 classes: name each by its number from 0"),
        ({1: "a", 2: "b", 3: "c"}, "names 3, but the head has 3 classes: name each by its number from 0"),
        (["a", "b", "c"], "is ['a', 'b', 'c'], but the head has 3 classes"),
        ({0: "a", 1: "b", 2: None}, "must have a text for each class"),
    ],
)
def test_names_of_other_classes_are_refused(tmp_path, labels, message):
    with pytest.raises(RegardError, match=re.escape(message)):
        classifier(tmp_path / "model", "TokenClassification", id2label=labels)


def test_a_head_of_another_size_that_was_left_in_the_files_is_none(with_head, tmp_path):
    config, tensors = json.loads((with_head / "config.json").read_text()), tensors_of(with_head)
    tensors["cls.predictions.bias"] = np.zeros(config["vocab_size"] + 3, np.float32)
    write_safetensors(tmp_path / "model.safetensors", tensors)
    for architecture in ("BertModel", "BertForMaskedLM"):
        (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}))
        if architecture == "BertModel":
            hidden = regard.load(with_head)(TEXT).hidden
            np.testing.assert_array_equal(regard.load(tmp_path)(TEXT).hidden, hidden)
        else:
            with pytest.raises(RegardError, match=r"cls\.predictions\.bias"):
                regard.load(tmp_path)


def test_a_head_that_is_not_there_or_not_whole(with_head, tmp_path):
    tensors = tensors_of(with_head)
    del tensors["cls.predictions.bias"]
    (tmp_path / "config.json").write_text((with_head / "config.json").read_text())
    write_safetensors(tmp_path / "model.safetensors", tensors)
    for folder in (FOLDER, tmp_path):
        model = regard.load(folder)
        with pytest.raises(RegardError, match="was saved without a head"):
            model.predictions(TEXT)
        with pytest.raises(RegardError, match="no head, or not the whole"):
            _ = model(TEXT).logits


def test_what_a_head_cannot_do(with_head):
    model = regard.load(with_head)
    for call in (model(TEXT).loss, model(TEXT).token_losses):
        with pytest.raises(RegardError, match="an encoder has no next token"):
            call()
    with pytest.raises(RegardError, match="predictions takes one text"):
        model.predictions([TEXT, TEXT])
