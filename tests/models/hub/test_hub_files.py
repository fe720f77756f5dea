"""Which files of a repository are downloaded, and what is said where there are no weights."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hub_helpers import GOLDEN, LLAMA, UNNEEDED, error_of, names_in, sentence, snapshot
from hub_server import COMMIT

import regard
from regard.models.hub import resolve

pytestmark = pytest.mark.usefixtures("home")


def test_a_model_is_what_its_folder_is(hub):
    ids, folder = [5, 3, 8], regard.load(str(GOLDEN / "llama" / "llama3"))
    model = regard.load("org/tiny")
    assert model.name == "org/tiny"
    np.testing.assert_array_equal(model(ids).logits, folder(ids).logits)
    assert model.tokenizer("w5 w6").ids == folder.tokenizer("w5 w6").ids


def test_the_files_that_are_read_are_fetched_once_weights_last_and_the_library_finds_them(hub, home):
    from huggingface_hub import try_to_load_from_cache

    assert resolve.find("org/tiny") == snapshot(home)
    assert hub.downloaded == ["config.json", "tokenizer.json", "model.safetensors"]
    assert names_in(snapshot(home)) == sorted(LLAMA)
    hub.requests.clear()
    assert resolve.find("org/tiny") == resolve.find("org/tiny", revision=COMMIT) == snapshot(home)
    assert hub.requests == []
    path = try_to_load_from_cache("org/tiny", "model.safetensors", cache_dir=home / "hf" / "hub")
    assert path == str(snapshot(home) / "model.safetensors")


def modules(*paths):
    return json.dumps([{"idx": i, "path": path, "type": f"x.{path}"} for i, path in enumerate(paths)]).encode()


SHARDS = {f"model-0000{i}-of-00002.safetensors": b"x" for i in (1, 2)}
INDEX = json.dumps({"weight_map": dict(zip("ab", SHARDS, strict=True))}).encode()
OF_LLAMA = {name: LLAMA[name] for name in ("config.json", "tokenizer.json")}
IN_A_FOLDER = {f"0_Transformer/{name}": content for name, content in LLAMA.items()}
FETCHED = {  # what a repository has: what is fetched, and what is not
    "shards of the index": (
        OF_LLAMA | {"model.safetensors.index.json": INDEX, **SHARDS}, {"other-00001.safetensors": b"y"}
    ),
    "modules with their folders": (
        {
            **LLAMA, "modules.json": modules("", "1_Pooling", "2_Dense", "../3"), "1_Pooling/config.json": b"{}",
            "2_Dense/config.json": b"{}", "2_Dense/model.safetensors": b"w", "sentence_bert_config.json": b"{}",
            "config_sentence_transformers.json": b"{}",
        },
        {"2_Dense/pytorch_model.bin": b"p", "4_Other/config.json": b"{}"},
    ),
    "the transformer in a folder of its own": ({"modules.json": modules("0_Transformer"), **IN_A_FOLDER}, {}),
    "a damaged list of modules": ({**LLAMA, "modules.json": b'[{"path": "../0"}, {"path": "1_Pooling"}]'}, {}),
    "how images and chats are read": (
        {
            **LLAMA, "preprocessor_config.json": b"{}", "generation_config.json": b"{}", "chat_template.jinja": b"x",
            "additional_chat_templates/tool.jinja": b"y", "special_tokens_map.json": b"{}", "vocab.txt": b"z",
        },
        {"additional_chat_templates/deep/er.jinja": b"", "training_args.bin": b""},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fetched", "others"), FETCHED.values(), ids=FETCHED)
def test_of_a_repository_what_is_read_is_fetched(hub, home, fetched, others):
    hub.revisions["main"] = fetched | others | UNNEEDED
    resolve.find("org/tiny")
    assert names_in(snapshot(home)) == sorted(fetched)


def test_large_files_come_from_another_address(hub, home):
    hub.far = True
    resolve.find("org/tiny")
    assert (snapshot(home) / "model.safetensors").read_bytes() == LLAMA["model.safetensors"]
    assert "GET /far/model.safetensors" in hub.requests


def test_progress_counts_the_bytes_that_are_missing(hub):
    told = []
    resolve.find("org/tiny", progress=lambda done, total: told.append((done, total)))
    total = len(LLAMA["tokenizer.json"]) + len(LLAMA["model.safetensors"])
    assert {each for _, each in told} == {total}
    assert told[-1] == (total, total)
    assert all(0 <= done <= total for done, _ in told)
    told.clear()
    resolve.pull("org/tiny", progress=lambda done, total: told.append((done, total)))
    assert told == []  # nothing is missing


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        (
            b'{"weight_map": {"a": "../../secret.safetensors", "b": "model.safetensors"}}',
            r"names '../../secret\.safetensors'",
        ),
        (b'{"weight_map": {"a": "pytorch_model.bin"}}', r"names 'pytorch_model\.bin': not a safetensors file in its"),
        (b'{"weight_map": {}}', "must have a weight_map from each tensor to its file"),
        (b'{"weight_map": {"a": 1}}', "must have a weight_map"),
        (b"{}", "must have a weight_map"),
    ],
)
def test_an_index_of_other_files_is_an_error(hub, home, index, problem):
    """Of `pull` too, which would leave a model without weights."""
    hub.revisions["main"] = {"config.json": LLAMA["config.json"], "model.safetensors.index.json": index}
    for call in (resolve.pull, resolve.find):
        assert re.search(problem, str(error_of(call, "org/tiny")))
    assert names_in(snapshot(home)) == ["model.safetensors.index.json"]


def test_every_file_that_a_loader_names_is_fetched():
    """A file that a loader begins to read is one that the hub is asked for."""
    from regard.models.hub.hub_files import NAMES

    package = Path(regard.__file__).parent
    sources = [path for part in ("models", "text") for path in (package / part).rglob("*.py")]
    literal = re.compile(r'"((?!pytorch_model)[a-z_]+(?:\.safetensors\.index)?\.(?:json|txt|jinja))"')
    read = {name for path in sources if "shipped" not in path.parts for name in literal.findall(path.read_text())}
    read -= {"verified.json", "plan.json", "result.json", "model.safetensors.index.json", "adapter_config.json"}
    assert {"config.json", "vocab.txt", "merges.txt", "chat_template.jinja"} <= read <= set(NAMES)


def test_a_repository_cannot_write_elsewhere(hub, home):
    hub.revisions["main"] = {"config.json": b"{}", "../../../../evil.gguf": b"GGUF", "C:\\x.gguf": b"GGUF"}
    assert str(error_of(resolve.find, "org/tiny")) == NONE
    assert not list(home.rglob("*evil*"))


PICKLES = (
    "the weights of org/tiny are pickles (FILES), which can run any code when they are read: where you trust them, "
    "load the model and its tokenizer with transformers, save both with save_pretrained(NEW_FOLDER), and give that "
    "folder"
)
ADAPTER = "org/tiny is an adapter, not a whole model: load its base model, then model.with_adapter(its folder)"
VARIANT = (
    "org/tiny has a variant of its weights alone (FILES): load the model and its tokenizer with transformers, as "
    "variant='fp16', save both with save_pretrained(NEW_FOLDER), and give that folder"
)
AUTHORS = (
    "org/tiny has its weights in the layout of their authors (FILES), not in that of transformers: choose a model with "
    "model.safetensors"
)
OTHER = (
    "org/tiny has its weights in FILES, and regard reads model.safetensors, or the shards that "
    "model.safetensors.index.json lists: choose a model that has these"
)
NONE = "org/tiny has no weights that regard reads, safetensors or GGUF: choose another model"
ADAPTED = {"adapter_model.safetensors": b""}
OF_BASE = b'{"base_model_name_or_path": "org/base", "peft_type": "LORA"}'


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["pytorch_model.bin"], PICKLES),
        (["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"], PICKLES),
        (["model.ckpt"], PICKLES),
        (["adapter_model.safetensors"], ADAPTER),
        (["adapter_config.json", "adapter_model.bin"], ADAPTER),
        (["model.fp16.safetensors"], VARIANT),
        (["model-00001-of-00002.fp16.safetensors", "model-00002-of-00002.fp16.safetensors"], VARIANT),
        (["model.fp16-00001-of-00002.safetensors", "model.fp16-00002-of-00002.safetensors"], VARIANT),
        (["consolidated.safetensors"], AUTHORS),
        (["consolidated.00.pth"], AUTHORS),
        (["unet/diffusion_pytorch_model.safetensors"], OTHER),
        (["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"], OTHER),  # without their index
        (["flax_model.msgpack"], NONE),
        (["openvino/openvino_model.bin"], NONE),
        (["ggml-model-q4_0.bin"], NONE),
        *(
            ([name], NONE)
            for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "random_states_0.pt")
        ),
        (["checkpoint-5/optimizer.pt", "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt"], NONE),
        ({**ADAPTED, "adapter_config.json": OF_BASE}, ADAPTER.replace("adapter,", "adapter of org/base,")),
        *(({**ADAPTED, "adapter_config.json": x}, ADAPTER) for x in (b"[]", b"{", b'{"base_model_name_or_path": 3}')),
        (
            {"modules.json": modules("", "2_Dense"), "2_Dense/model.safetensors": b"w", "pytorch_model.bin": b""},
            PICKLES.replace("FILES", "pytorch_model.bin"),  # weights of a module are not those of the model
        ),
        (
            {"model.safetensors.index.json": INDEX, "model-00002-of-00002.safetensors": b"x"},
            "org/tiny lacks files that its index names (model-00001-of-00002.safetensors): choose another revision or "
            "model",
        ),
    ],
)
def test_without_weights_it_is_said_what_there_is(hub, files, message):
    """Of files by name, whose content does not matter, or with what they hold."""
    plain = ("config.json", "tokenizer.json", "training_args.bin")
    hub.revisions["main"] = dict.fromkeys((*plain, *files), b"{}") | (files if isinstance(files, dict) else {})
    assert sentence(hub) == message.replace("FILES", ", ".join(files))
    assert set(hub.downloaded) <= {"adapter_config.json", "modules.json", "model.safetensors.index.json"}


def test_names_of_files_are_shortened(hub):
    hub.revisions["main"] = {f"{'x' * 500}{number}.bin": b"" for number in range(50)}
    assert len(sentence(hub)) < 500
