"""Sentence models as they are published: `embed` against sentence-transformers, on the same folder."""

import json

import numpy as np
import pytest
import torch
from texts import TEXTS as MORE_TEXTS, varied_strings

import regard
from regard import RegardError
from regard.dask.jobs import AttributeJob
from regard.dask.rows import encode_rows
from regard.explorer.exploration import Exploration
from regard.explorer.run import recorded
from regard.metrics import attribute
from regard.models.sentence import sentence_reader
from regard.training.trainable import Trainable

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat The Cat a query : dog ran . search _ in hand".split()
TEXTS = ["The Cat sat on the mat.", "a dog ran", "the", "query : the cat sat on a mat in the hand . the dog ran on", ""]
WIDTH = 16
DENSE = {
    "in_features": WIDTH, "out_features": 6, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh",
}  # fmt: skip


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """Return the folder of a tiny BERT whose tokenizer keeps the case."""
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=24, **sizes)
    model = transformers.BertModel(config, add_pooling_layer=False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    folder = tmp_path_factory.mktemp("bert")
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "do_lower_case": false}')
    return folder


@pytest.fixture
def publish(bert, tmp_path):
    """Return a function that writes a sentence model around the BERT and returns its folder."""

    def write(pooling=None, dense=(), normalize=True, bert_config=None, texts_config=None, inner="", limit=None):
        from safetensors.torch import save_file

        folder = tmp_path / "model"
        (folder / inner).mkdir(parents=True)
        for file in bert.iterdir():
            (folder / inner / file.name).write_bytes(file.read_bytes())
        kinds = ["Transformer", "Pooling", *["Dense"] * len(dense), *["Normalize"] * normalize]
        modules = []
        for i, kind in enumerate(kinds):
            path = f"{i}_{kind}" if i else inner
            (folder / path).mkdir(exist_ok=True)
            modules.append({"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"})
        write_json(folder / "modules.json", modules)
        config = {"word_embedding_dimension": WIDTH, **(pooling or {"pooling_mode_mean_tokens": True})}
        write_json(folder / "1_Pooling" / "config.json", config)
        for i, fields in enumerate(dense):
            torch.manual_seed(i)
            at = folder / f"{2 + i}_Dense"
            write_json(at / "config.json", fields)
            tensors = {"linear.weight": torch.randn(fields["out_features"], fields["in_features"])}
            tensors |= {"linear.bias": torch.randn(fields["out_features"])} if fields["bias"] else {}
            save_file(tensors, at / "model.safetensors")
        for name, fields in (("sentence_bert", bert_config), ("config_sentence_transformers", texts_config)):
            if fields is not None:
                at = folder / inner if name == "sentence_bert" else folder
                write_json(at / f"{name}{'_config' * (name == 'sentence_bert')}.json", fields)
        if limit is not None:
            path = folder / inner / "tokenizer_config.json"
            write_json(path, {**json.loads(path.read_text()), "model_max_length": limit})
        return folder

    return write


def write_json(path, value):
    path.write_text(json.dumps(value))


def compare(folder, **options):
    """Compare the vectors, and those of texts that are cut, with what sentence-transformers computes."""
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(folder), device="cpu")
    model = regard.load(folder)
    theirs, ours = peer.encode(TEXTS, **options), model.embed(TEXTS, truncate=True, **options)
    assert theirs.shape == ours.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)
    return model, ours


MODES = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


@pytest.mark.parametrize(
    "pooling",
    [
        *({f"pooling_mode_{mode}": True} for mode in MODES),
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        {"pooling_mode": "mean_sqrt_len_tokens"},
        {"pooling_mode": ["max", "cls"]},
        {"pooling_mode": ["lasttoken", "mean", "lasttoken"]},
        {"pooling_mode": "cls", "pooling_mode_mean_tokens": True},
        {"pooling_mode_mean_tokens": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("normalize", [True, False])
def test_pooling(publish, pooling, normalize):
    compare(publish(pooling, normalize=normalize))


@pytest.mark.parametrize("activation", ["activation.Tanh", "activation.ReLU", "activation.GELU", "linear.Identity"])
@pytest.mark.parametrize("bias", [True, False])
def test_dense(publish, activation, bias):
    fields = {**DENSE, "bias": bias, "activation_function": f"torch.nn.modules.{activation}"}
    _, ours = compare(publish(dense=[fields]))
    assert ours.shape == (len(TEXTS), 6)


def test_several_dense_and_fewer_features(publish):
    several = [DENSE, {**DENSE, "in_features": 6, "out_features": 9}]
    _, ours = compare(publish(dense=several, normalize=False, texts_config={"truncate_dim": 4}))
    assert ours.shape == (len(TEXTS), 4)


@pytest.mark.parametrize("inner", ["", "0_Transformer"])
@pytest.mark.parametrize(
    ("fields", "limit", "most"),
    [
        ({"max_seq_length": 8, "do_lower_case": False}, None, 8),
        ({"max_seq_length": 8}, 12, 8),
        ({}, 12, 12),
        (None, 10, 10),
        (None, 10**30, 24),
        ({"max_seq_length": None}, None, 24),
    ],
)
def test_the_most_tokens(publish, inner, fields, limit, most):
    folder = publish(bert_config=fields, inner=inner, limit=limit)
    model, _ = compare(folder)
    long = " ".join(["the cat"] * 10)
    assert len(model.tokenizer(long)) == 22
    if most == 24:
        assert model.embed([long]).shape == (1, WIDTH)
    else:
        with pytest.raises(RegardError, match=f"embeds at most {most}; shorten it, or have it cut .*max_length="):
            model.embed([long])
    assert not np.allclose(model.embed([long], max_length=24), model.embed([long], truncate=True)) or most == 24
    with pytest.raises(RegardError, match=r"max_length is 25, but .* accepts at most 24"):
        model.embed([long], max_length=25)


def test_texts_are_lower_cased_where_the_tokenizer_does_not(publish):
    folder = publish(bert_config={"max_seq_length": 24, "do_lower_case": True})
    model, ours = compare(folder)
    assert not np.allclose(ours, regard.load(publish_again(folder)).embed(TEXTS))
    assert model.tokenizer("The Cat").tokens == ("[CLS]", "The", "Cat", "[SEP]")  # the model is that of transformers


def publish_again(folder):
    """Return the folder without its settings."""
    (folder / "sentence_bert_config.json").unlink()
    return folder


PROMPTS = {"prompts": {"query": "query : ", "passage": "the "}, "default_prompt_name": None}


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("default", "options"),
    [
        (None, {}),
        (None, {"prompt_name": "query"}),
        (None, {"prompt_name": "document"}),
        (None, {"prompt": "the cat "}),
        ("passage", {}),
        ("passage", {"prompt_name": "query"}),
        ("passage", {"prompt": ""}),
    ],
)
def test_prompts(publish, include, mode, default, options):
    pooling = {f"pooling_mode_{mode}": True, "include_prompt": include}
    compare(publish(pooling, texts_config={**PROMPTS, "default_prompt_name": default}), **options)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("most", [3, 4, 5, 8])
def test_a_prompt_as_long_as_the_limit(publish, mode, most):
    pooling = {f"pooling_mode_{mode}": True, "include_prompt": False}
    compare(publish(pooling, bert_config={"max_seq_length": most}), prompt="the cat sat on ")


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("default", [None, "passage"])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("place", ["text", "tokens", "corpus"])
def test_the_similarity_that_is_attributed(publish, include, default, lowercase, place):
    """Both texts are read as they are embedded: after the default prompt, lower-cased, cut nowhere."""
    from sentence_transformers import SentenceTransformer

    settings = {
        "texts_config": {**PROMPTS, "default_prompt_name": default},
        "bert_config": {"do_lower_case": lowercase},
    }
    folder = publish({"pooling_mode_mean_tokens": True, "include_prompt": include}, **settings)
    text, to, other = "The Cat sat on the mat", "the mat", "The Dog"
    model, peer = regard.load(folder), SentenceTransformer(str(folder), device="cpu")
    vector, first, second = peer.encode([text, to, other], normalize_embeddings=True)
    wanted = vector @ first - vector @ second
    if place == "corpus":
        job = AttributeJob(to=to, versus=other)
        encodings, errors = encode_rows(job.reader(model), [text], truncate=False)
        _, columns = job.contributions(model, encodings, errors)
        found = columns["value"][0].as_py()
    else:
        reader = sentence_reader(model)
        given = text if place == "text" else reader.tokenizer(text)
        attribution = attribute(model, given, to, versus=other)
        assert attribution.encoding.ids == reader.tokenizer(text).ids
        found = attribution.value
    assert found == pytest.approx(wanted, abs=1e-5)


def test_what_is_attributed_has_the_limit_of_what_is_embedded(publish):
    model = regard.load(publish(bert_config={"max_seq_length": 6}))
    with pytest.raises(RegardError, match=r"a text has 8 tokens, but .* embeds at most 6; shorten it"):
        attribute(model, "the cat sat on the mat", "the mat")
    with pytest.raises(RegardError, match="a text has 8 tokens"):
        attribute(model, "the mat", "the cat sat on the mat")
    assert attribute(model, "the cat sat on the mat", lambda output: output.hidden[0, 1].sum()).tokens[2] == "cat"


def test_a_run_has_the_tokens_of_the_tokenizer_alone(publish):
    texts_config = {**PROMPTS, "default_prompt_name": "passage"}
    model = regard.load(publish(texts_config=texts_config, bert_config={"do_lower_case": True, "max_seq_length": 6}))
    plain = model.tokenizer("the Cat sat on the mat")
    assert model("the Cat sat on the mat").encodings[0].ids == plain.ids
    assert next(model.iter_traces(["the Cat sat on the mat"]))[1].encodings[0].ids == plain.ids
    found = Exploration(recorded(model, "the Cat sat on the mat"), models=[model]).attribution(
        0, to="the Cat sat on the mat"
    )
    assert found["value"] == pytest.approx(1, abs=1e-6)  # both texts as the page shows them


def test_a_module_or_activation_of_another_package_is_not_taken_for_one_of_the_library(publish):
    folder = publish(dense=[{**DENSE, "activation_function": "my.module.ReLU"}])
    with pytest.raises(RegardError, match=r"activation_function='my\.module\.ReLU'"):
        regard.load(folder).embed(TEXTS)
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "my.own.Pooling"
    write_json(folder / "modules.json", modules)
    with pytest.raises(RegardError, match=r"lists the modules Transformer, my\.own\.Pooling"):
        regard.load(folder).embed(TEXTS)


def test_prompts_that_are_not_there(publish):
    model = regard.load(publish(texts_config=PROMPTS))
    with pytest.raises(RegardError, match="no prompt 'title'; known: query, document, passage; prompt= takes any text"):
        model.embed(TEXTS, prompt_name="title")
    with pytest.raises(RegardError, match="both given"):
        model.embed(TEXTS, prompt_name="query", prompt="x")


@pytest.mark.parametrize("inner", ["", "0_Transformer"])
def test_a_folder_that_was_trained_embeds_as_before(publish, tmp_path, inner):
    limits = {"max_seq_length": 8, "do_lower_case": True}
    folder = publish(dense=[DENSE], bert_config=limits, texts_config=PROMPTS, inner=inner)
    Trainable.from_model(regard.load(folder)).save(tmp_path / "saved")
    ours = regard.load(tmp_path / "saved").embed(TEXTS, truncate=True, prompt_name="query")
    theirs = regard.load(folder).embed(TEXTS, truncate=True, prompt_name="query")
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    compare(tmp_path / "saved")


@pytest.mark.minilm
def test_a_named_model_that_is_saved_embeds_as_before(minilm, tmp_path):
    """Its package has a part of the files; those that are missing are written too."""
    from sentence_transformers import SentenceTransformer

    Trainable.from_model(minilm).save(tmp_path)
    peer = SentenceTransformer(str(tmp_path), device="cpu")
    assert [type(module).__name__ for module in peer] == ["Transformer", "Pooling", "Normalize"]
    assert peer.max_seq_length == regard.load(tmp_path).sentence.max_length == 256
    texts = [*TEXTS, "The committee met on Tuesday. " * 60]
    np.testing.assert_allclose(peer.encode(texts), minilm.embed(texts, truncate=True), atol=2e-6)
    np.testing.assert_array_equal(regard.load(tmp_path).embed(TEXTS), minilm.embed(TEXTS))


@pytest.mark.minilm
def test_the_folder_of_a_named_model_loads_unchanged(minilm_dir, tmp_path, monkeypatch):
    import shutil

    from sentence_transformers import SentenceTransformer

    shutil.copytree(minilm_dir, tmp_path / "minilm", symlinks=False)
    monkeypatch.setenv("REGARD_MODELS", str(tmp_path))
    ours = regard.load("minilm", download=False)
    peer = SentenceTransformer(str(tmp_path / "minilm"), device="cpu")
    assert peer.max_seq_length == 256
    texts = [*TEXTS, *MORE_TEXTS[:15], *(text for text in varied_strings(200) if text.strip())][:105]
    texts.append("The committee met on Tuesday to discuss the budget of the school. " * 30)
    np.testing.assert_allclose(ours.embed(texts, truncate=True), peer.encode(texts), atol=2e-6)
    with pytest.raises(RegardError, match="embeds at most 256"):
        ours.embed(texts)
