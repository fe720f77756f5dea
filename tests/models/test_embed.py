"""One vector for each text: pooling as configured, in the order given, whatever runs together."""

import json

import numpy as np
import pandas
import pytest

import regard
from regard import RegardError
from regard.models import Pooling
from regard.models.pooling import DenseLayer

TEXTS = ["the cat sat", "a", "the mats", "a b c d e", "the cat sat"]
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken")


@pytest.fixture
def sentence_model(write_bert):
    """Return a function that writes a tiny sentence model and returns its folder."""

    def write(pooling=None, modules=None):
        folder = write_bert()
        (folder / "1_Pooling").mkdir(exist_ok=True)
        config = {"word_embedding_dimension": 12, "pooling_mode_mean_tokens": True} if pooling is None else pooling
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
        if modules is not None:
            listed = [
                {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                for i, (kind, path) in enumerate(modules)
            ]
            (folder / "modules.json").write_text(json.dumps(listed))
        return folder

    return write


PLAIN = [("Transformer", ""), ("Pooling", "1_Pooling")]


@pytest.mark.parametrize("mode", POOLINGS)
def test_a_pooling_is_named_as_the_files_name_it(sentence_model, mode):
    """And configured; the vectors themselves, and those of several: tests/parity/test_sentence_transformers.py."""
    model = regard.load(sentence_model({"pooling_mode": mode}, PLAIN))
    vectors = model.embed(TEXTS, batch_size=2)
    assert vectors.dtype == np.float32
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed(TEXTS, pooling=mode), vectors / lengths, rtol=1e-5, atol=1e-6)
    alone = np.concatenate([model.embed([text]) for text in TEXTS])
    np.testing.assert_allclose(vectors, alone, rtol=1e-4, atol=1e-5)


def test_texts_of_a_length_run_together(sentence_model, monkeypatch):
    model = regard.load(sentence_model())
    sizes, told = [], []
    run = type(model).forward
    monkeypatch.setattr(
        type(model), "forward", lambda self, ids, **options: sizes.append(ids.shape) or run(self, ids, **options)
    )
    model.embed(["a", "the cat sat", "b", "the cat sat on"], batch_size=2, progress=lambda *count: told.append(count))
    assert sizes == [(2, 6), (2, 3)]
    assert told == [(2, 4), (4, 4)]


def test_a_long_text_is_told_or_cut(sentence_model):
    model = regard.load(sentence_model())
    texts = ["a", "a b c d e f g", "the cat sat on the mats"]
    with pytest.raises(
        RegardError, match=r"text 1 has 9 tokens, but .* accepts at most 7 \(and 1 more too long\); shorten it"
    ):
        model.embed(texts)
    cut = model.embed(texts, truncate=True)
    np.testing.assert_allclose(cut[1], model.embed(["a b c d e"])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.embed([]), "no text to embed"),
        (lambda m: m.embed("the cat"), "embed takes a sequence of str"),
        (lambda m: m.embed([1]), "embed takes a sequence of str"),
        (lambda m: m.embed(b"abc"), "embed takes a sequence of str, got bytes"),
        (lambda m: m.embed(7), "embed takes a sequence of str, got int"),
        (lambda m: m.embed(np.array("a")), "embed takes a sequence of str, got array"),
        *((lambda m, x=x: m(x), "a text is a str, got .*: decode it first") for x in (b"abc", bytearray(b"abc"))),
        (lambda m: m(memoryview(b"abc")), "a text is a str, got .*: decode it first"),
        (lambda m: m.embed(["a", None]), "but text 1 is None"),
        (lambda m: m.embed(["a", b"b"]), "but text 1 is b'b'"),
        (lambda m: m.embed("a"), r"got one text: give \[text\]"),
        (lambda m: m.embed(pandas.DataFrame({"text": ["a"]})), "a table is not a text; give its column of texts"),
        (lambda m: m.embed(["a"], pooling=3), "pooling must be a Pooling or one of cls, .*, got 3"),
        (lambda m: m.embed(["a"], pooling=["mean"]), r"pooling must be a Pooling or one of cls, .*, got \['mean'\]"),
        (lambda m: m.embed(["a"], prompt_name=[1]), r"the model has no prompt \[1\]"),
        (lambda m: m.embed(["a"], truncate="no"), "truncate must be True or False, got 'no'"),
        (lambda m: m.embed(["a"], truncate=1), "truncate must be True or False, got 1"),
        (lambda m: m.embed(["a"], batch_size=0), "batch_size must be a whole number of at least 1"),
        (lambda m: m.embed(["a"], pooling="middle"), "one or more of cls, max, .* got middle"),
        (lambda m: Pooling(()), "got none"),
        (
            lambda m: m.embed(["a"], pooling=Pooling(("cls",), dense=(DenseLayer(np.ones((9, 2))),))),
            "the pooled vector has 12 features, and a Dense layer of the sentence model takes 9",
        ),
    ],
)
def test_mistakes(sentence_model, call, message):
    with pytest.raises(RegardError, match=message):
        call(regard.load(sentence_model()))


def test_a_model_that_says_nothing_of_pooling(write_bert):
    model = regard.load(write_bert())
    with pytest.raises(RegardError, match=r"no modules\.json and no 1_Pooling; give pooling, one of cls, max"):
        model.embed(["a"])
    assert model.embed(["a"], pooling="cls").shape == (1, 12)


def test_a_model_that_returns_the_vectors_of_another_text(sentence_model, monkeypatch):
    model = regard.load(sentence_model())
    monkeypatch.setattr(type(model), "forward", lambda self, ids, **options: np.zeros((len(ids), 1, 12)))
    with pytest.raises(RegardError, match="its contextual vectors are not those of the input text"):
        model.embed(["a"])


@pytest.mark.parametrize(
    ("pooling", "modules", "message"),
    [
        ({"pooling_mode_mean_tokens": 1}, None, "pooling_mode_mean_tokens=1 is not supported"),
        ({"pooling_mode_middle": True}, None, "unknown field pooling_mode_middle"),
        ({"pooling_mode": "middle"}, None, "pooling_mode='middle' is not supported"),
        (None, [*PLAIN, ("DenseMask", "2_Dense")], "lists the modules Transformer, Pooling, DenseMask"),
        (None, [("WordEmbeddings", ""), ("Pooling", "1_Pooling")], "lists the modules WordEmbeddings, Pooling"),
        (None, [*PLAIN, ("Normalize", ""), ("Dense", "2_Dense")], "lists the modules"),
        (None, [*PLAIN, ("Dense", "2_Dense")], r"there is no config\.json"),
        (None, [("Transformer", "0_Transformer"), ("Pooling", "1_Pooling")], "0_Transformer .*has no config"),
        (None, [("Transformer", ""), ("Pooling", "../other")], "it must be a folder next to it"),
        (None, [("Transformer", ""), ("Pooling", "..")], "it must be a folder next to it"),
        (None, [("Transformer", ""), ("Pooling", "2_Pooling")], r"there is no config\.json"),
    ],
)
def test_what_is_not_known_has_no_vectors_but_runs(sentence_model, pooling, modules, message):
    model = regard.load(sentence_model(pooling, modules))
    assert model("the cat").hidden.shape == (1, 4, 12)
    with pytest.raises(RegardError, match=message):
        model.embed(["the cat"])
    assert model.embed(["the cat"], pooling="mean").shape == (1, 12)


@pytest.mark.parametrize("content", [b"[", b"{}", b"[1]", b'[{"type": "Pooling"}]', b"\xff", b"[" * 100_000, b"null"])
@pytest.mark.parametrize("name", ["modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"])
def test_a_damaged_file_is_told(sentence_model, name, content):
    folder = sentence_model()
    (folder / name).write_bytes(content)
    model = regard.load(folder)
    if name == "modules.json" or content != b"{}":
        with pytest.raises(RegardError, match=name.replace(".", r"\.")):
            model.embed(["a"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(({"similarity_fn_name": x}, r"supported: None, 'cosine', 'dot'") for x in ("maxsim", "", 3, ["dot"])),
        ({"similarity_fn_name": "Cosine"}, r"similarity_fn_name='Cosine' is not supported \(supported: None, 'cosine'"),
        ({"max_seq_length": 0}, "max_seq_length must be a whole number"),
        ({"do_lower_case": 1}, "do_lower_case must be true or false"),
        ({"transformer_task": "text-generation"}, "transformer_task='text-generation' is not supported"),
        ({"processing_kwargs": {"text": {}}}, "processing_kwargs with text is not supported"),
        ({"something_new": True}, "unknown field something_new"),
        ({"similarity_fn_name": None, "something_new": 1}, "unknown field something_new"),
        ({"config_kwargs": {"num_hidden_layers": 1}}, "config_kwargs with num_hidden_layers"),
        ({"model_args": {"output_attentions": True}}, "model_args with output_attentions"),
    ],
)
def test_settings_that_are_not_known(sentence_model, fields, message):
    folder = sentence_model()
    file = "config_sentence_transformers.json" if "similarity_fn_name" in fields else "sentence_bert_config.json"
    (folder / file).write_text(json.dumps(fields))
    with pytest.raises(RegardError, match=message):
        regard.load(folder).embed(["a"])


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan", None])
def test_the_similarity_of_a_model(sentence_model, name):
    folder = sentence_model()
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"similarity_fn_name": name}))
    assert regard.load(folder).sentence.similarity == (name or "cosine")


def test_texts_may_come_from_anywhere(sentence_model):
    model = regard.load(sentence_model())
    wanted = model.embed(TEXTS)
    for texts in (iter(TEXTS), tuple(TEXTS), np.array(TEXTS), pandas.Series(TEXTS), (text for text in TEXTS)):
        np.testing.assert_array_equal(model.embed(texts), wanted)


@pytest.mark.minilm
def test_minilm_knows_what_is_alike(minilm):
    one, like, other = minilm.embed(["A man is eating food.", "A man eats a meal.", "The stock market fell."])
    assert one @ like > 0.7 > 0.2 > one @ other
