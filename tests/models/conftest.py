"""What the tests of families share."""

import json
import shutil

import numpy as np
import pytest

import golden
from regard.formats.safetensors import SafetensorsFile, write_safetensors


@pytest.fixture
def changed(tmp_path):
    """Return a function that copies a kept model and changes its configuration and its tensors.

    `drop` are names of fields, `without` of tensors; `rename` makes a new name of each tensor's.
    """

    def change(case, config=None, drop=(), rename=str, extra=None, without=()):
        folder = tmp_path / "changed"
        shutil.copytree(golden.FOLDER / case, folder, dirs_exist_ok=True)
        fields = json.loads((folder / "config.json").read_text())
        fields = {name: value for name, value in {**fields, **(config or {})}.items() if name not in drop}
        (folder / "config.json").write_text(json.dumps(fields))
        file = SafetensorsFile(golden.FOLDER / case / "model.safetensors")
        kept = {rename(name): np.array(file[name]) for name in file if name not in without}
        write_safetensors(folder / "model.safetensors", kept | (extra or {}))
        return folder

    return change
