"""Which files of a repository are downloaded, and what is said where there are no weights."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hub_helpers import GOLDEN, LLAMA, error_of, names_in, sentence, snapshot
from hub_server import COMMIT, Hub

import regard
from regard.models.hub import resolve

pytestmark = pytest.mark.usefixtures("home")


def test_a_model_is_what_its_folder_is(hub: Hub) -> None:
    ids, folder = [5, 3, 8], regard.load(str(GOLDEN / "llama" / "llama3"))
    model = regard.load("org/tiny")
    assert model.name == "org/tiny"
    np.testing.assert_array_equal(model(ids).logits, folder(ids).logits)
    assert model.tokenizer("w5 w6").ids == folder.tokenizer("w5 w6").ids


def test_the_files_that_are_read_are_fetched_weights_last(hub: Hub, home: Path) -> None:
    assert resolve.find("org/tiny") == snapshot(home)
    assert hub.downloaded == ["config.json", "tokenizer.json", "model.safetensors"]
    assert names_in(snapshot(home)) == sorted(LLAMA)


def test_what_was_fetched_is_loaded_without_a_request(hub: Hub, home: Path) -> None:
    resolve.find("org/tiny")
    hub.requests.clear()
    assert resolve.find("org/tiny") == resolve.find("org/tiny", revision=COMMIT) == snapshot(home)
    assert hub.requests == []


def test_the_library_finds_what_was_fetched(hub: Hub, home: Path) -> None:
    from huggingface_hub import try_to_load_from_cache

    resolve.find("org/tiny")
    path = try_to_load_from_cache("org/tiny", "model.safetensors", cache_dir=home / "hf" / "hub")
    assert path == str(snapshot(home) / "model.safetensors")


def test_large_files_come_from_another_address(hub: Hub, home: Path) -> None:
    hub.far = True
    resolve.find("org/tiny")
    assert (snapshot(home) / "model.safetensors").read_bytes() == LLAMA["model.safetensors"]
    assert "GET /far/model.safetensors" in hub.requests


def test_progress_counts_the_bytes_that_are_missing(hub: Hub) -> None:
    told: list[tuple[int, int]] = []
    resolve.find("org/tiny", progress=lambda done, total: told.append((done, total)))
    total = len(LLAMA["tokenizer.json"]) + len(LLAMA["model.safetensors"])
    assert {each for _, each in told} == {total}
    assert told[-1] == (total, total)
    assert all(0 <= done <= total for done, _ in told)
    told.clear()
    resolve.pull("org/tiny", progress=lambda done, total: told.append((done, total)))
    assert told == []  # nothing is missing


def test_shards_are_those_of_the_index(hub: Hub, home: Path) -> None:
    shards = {f"model-0000{i}-of-00002.safetensors": b"x" for i in (1, 2)}
    index = b'{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
    hub.revisions["main"] = {
        **{name: LLAMA[name] for name in ("config.json", "tokenizer.json")},
        **{"model.safetensors.index.json": index, "other-00001.safetensors": b"y"},
        **shards,
    }
    resolve.find("org/tiny")
    assert names_in(snapshot(home)) == sorted(
        ["config.json", "tokenizer.json", "model.safetensors.index.json", *shards]
    )


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
def test_an_index_of_other_files_is_an_error(hub: Hub, home: Path, index: bytes, problem: str) -> None:
    """Of `pull` too, which would leave a model without weights."""
    hub.revisions["main"] = {"config.json": LLAMA["config.json"], "model.safetensors.index.json": index}
    for call in (resolve.pull, resolve.find):
        assert re.search(problem, str(error_of(call, "org/tiny")))
    assert names_in(snapshot(home)) == ["model.safetensors.index.json"]


def test_an_index_that_names_what_is_not_there_is_an_error(hub: Hub) -> None:
    index = b'{"weight_map": {"a": "model-00001-of-00001.safetensors"}}'
    hub.revisions["main"] = {"config.json": b"{}", "model.safetensors.index.json": index}
    assert str(error_of(resolve.find, "org/tiny")) == (
        "org/tiny lacks files that its index names (model-00001-of-00001.safetensors): choose another revision or model"
    )


def test_the_modules_of_a_sentence_model_come_with_their_folders(hub: Hub, home: Path) -> None:
    modules = b"""[{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
        {"idx": 3, "path": "../3", "type": "sentence_transformers.models.Normalize"}]"""
    beside = {
        **{"modules.json": modules, "1_Pooling/config.json": b"{}", "sentence_bert_config.json": b"{}"},
        **{"2_Dense/config.json": b"{}", "2_Dense/model.safetensors": b"w", "config_sentence_transformers.json": b"{}"},
    }
    hub.revisions["main"] |= beside | {"2_Dense/pytorch_model.bin": b"p", "4_Other/config.json": b"{}"}
    resolve.find("org/tiny")
    assert names_in(snapshot(home)) == sorted([*LLAMA, *beside])


def test_what_says_how_images_and_chats_are_read_comes_too(hub: Hub, home: Path) -> None:
    beside = {
        **{"preprocessor_config.json": b"{}", "generation_config.json": b"{}", "chat_template.jinja": b"x"},
        **{"additional_chat_templates/tool.jinja": b"y", "special_tokens_map.json": b"{}", "vocab.txt": b"z"},
    }
    hub.revisions["main"] |= beside | {"additional_chat_templates/deep/er.jinja": b"", "training_args.bin": b""}
    resolve.find("org/tiny")
    assert names_in(snapshot(home)) == sorted([*LLAMA, *beside])


def test_every_file_that_a_loader_names_is_fetched() -> None:
    """A file that a loader begins to read is one that the hub is asked for."""
    from regard.models.hub.hub_files import NAMES

    package = Path(regard.__file__).parent
    sources = [path for part in ("models", "text") for path in (package / part).rglob("*.py")]
    literal = re.compile(r'"((?!pytorch_model)[a-z_]+(?:\.safetensors\.index)?\.(?:json|txt|jinja))"')
    read = {name for path in sources if "shipped" not in path.parts for name in literal.findall(path.read_text())}
    read -= {"verified.json", "plan.json", "result.json", "model.safetensors.index.json", "adapter_config.json"}
    assert {"config.json", "vocab.txt", "merges.txt", "chat_template.jinja"} <= read <= set(NAMES)


def test_a_repository_cannot_write_elsewhere(hub: Hub, home: Path) -> None:
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
    ],
)
def test_without_weights_it_is_said_what_there_is(hub: Hub, files: list[str], message: str) -> None:
    hub.revisions["main"] = dict.fromkeys(("config.json", "tokenizer.json", "training_args.bin", *files), b"{}")
    assert sentence(hub) == message.replace("FILES", ", ".join(files))
    assert set(hub.downloaded) <= {"adapter_config.json"}


def test_an_adapter_names_its_base_model(hub: Hub) -> None:
    config = b'{"base_model_name_or_path": "org/base", "peft_type": "LORA"}'
    hub.revisions["main"] = {"adapter_config.json": config, "adapter_model.safetensors": b""}
    assert sentence(hub) == ADAPTER.replace("adapter,", "adapter of org/base,")


@pytest.mark.parametrize("config", [b"[]", b"{", b'{"base_model_name_or_path": 3}', b"{}"])
def test_an_adapter_that_does_not_say_its_base_model(hub: Hub, config: bytes) -> None:
    hub.revisions["main"] = {"adapter_config.json": config, "adapter_model.safetensors": b""}
    assert sentence(hub) == ADAPTER


def test_weights_of_a_module_are_not_those_of_the_model(hub: Hub) -> None:
    modules = b"""[{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "2_Dense", "type": "sentence_transformers.models.Dense"}]"""
    hub.revisions["main"] = {"config.json": b"{}", "modules.json": modules, "pytorch_model.bin": b""}
    hub.revisions["main"] |= {"2_Dense/config.json": b"{}", "2_Dense/model.safetensors": b"w"}
    assert sentence(hub) == PICKLES.replace("FILES", "pytorch_model.bin")


def test_the_transformer_of_a_damaged_list_is_in_the_folder_of_the_model(hub: Hub, home: Path) -> None:
    hub.revisions["main"]["modules.json"] = b'[{"path": "../0"}, {"path": "1_Pooling"}]'
    resolve.find("org/tiny")
    assert names_in(snapshot(home)) == sorted(["modules.json", *LLAMA])


def test_the_transformer_may_be_in_a_folder_of_its_own(hub: Hub, home: Path) -> None:
    modules = b'[{"idx": 0, "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}]'
    hub.revisions["main"] = {"modules.json": modules, **{f"0_Transformer/{name}": LLAMA[name] for name in LLAMA}}
    resolve.find("org/tiny")
    assert names_in(snapshot(home)) == sorted(["modules.json", *(f"0_Transformer/{name}" for name in LLAMA)])


def test_names_of_files_are_shortened(hub: Hub) -> None:
    hub.revisions["main"] = {f"{'x' * 500}{number}.bin": b"" for number in range(50)}
    assert len(sentence(hub)) < 500
