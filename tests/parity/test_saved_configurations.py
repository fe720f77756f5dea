"""config.json as save_pretrained of transformers writes it, for every family: regard reads it, and means the same."""

from __future__ import annotations

import json
import shutil

import pytest

import golden
import regard


@pytest.mark.parametrize("use_diff", [True, False])
@pytest.mark.parametrize("case", golden.KEPT)
def test_what_transformers_writes_is_read(transformers, tmp_path, case, use_diff):
    """With the fields that differ from its defaults, as it does, and with all of them."""
    folder = tmp_path / "model"
    shutil.copytree(golden.FOLDER / case, folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    config.save_pretrained(folder)
    config.to_json_file(folder / "config.json", use_diff=use_diff)
    assert regard.load(folder).config == regard.load(golden.FOLDER / case).config


def test_the_configuration_that_transformers_makes_of_smollm2_is_read(
    transformers, tmp_path, smollm2_file, our_smollm2
):
    """Of its GGUF file; it has unk_token_id, and quantization_config where the weights were quantised."""
    config = transformers.AutoConfig.from_pretrained(smollm2_file.parent, gguf_file=smollm2_file.name)
    config.save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    assert "unk_token_id" in fields
    from regard.models.checkpoint.config import ConfigReader
    from regard.models.llama import LlamaConfig

    read = LlamaConfig.read(ConfigReader(fields | {"quantization_config": None}, "config.json"))
    assert (read.num_layers, read.head_dim, read.rope.base) == (30, 64, our_smollm2.config.rope.base)
