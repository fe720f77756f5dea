"""Suites of peers with regard in the place of their attention; `$REGARD_SUITES` is the folder of their archives.

Each runs in a process of its own, by `in_place`. What came of it is a row of the table: a suite that collects nothing,
or in which the peer computes itself, is as red as one that fails.
"""

import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scripts import fetched

HERE = Path(__file__).resolve().parent
# Where the suites find what they share: the plugin, and which cases of a product are drawn.
MODULES = (HERE, HERE.parent)
# JAX compiles each operation; several threads of small operations would only wait for one another.
SETTINGS = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
OVERRIDDEN = "transformers' own suite of this type has another test in its place"


@dataclass(frozen=True)
class Suite:
    """A run of pytest, and what comes of it."""

    peer: str  # whose attention regard replaces
    files: tuple[str, ...]  # {name} is a folder: here, keras, or an archive that is unpacked
    passed: int
    computed: int  # tests in which regard computed attention
    not_applicable: int = 0  # skipped by the suite itself, on this machine or for this type
    refused: int = 0  # calls that regard refused, of which a peer may make others itself
    known: dict[str, str] = field(default_factory=dict)  # part of a name -> why those tests fail, also without regard
    num_known: int = 0
    settings: dict[str, str] = field(default_factory=dict)

    def counts(self):
        names = ("passed", "computed", "not_applicable", "refused")
        return {name: getattr(self, name) for name in names} | {"known": self.num_known, "failed": 0}


KERAS = ("{keras}/src/layers/attention", "{keras}/src/ops/nn_test.py", "-k", "attention")
SUITES = {
    "FlashAttention": Suite(
        "none",
        ("{here}/reference_of_flash_attention.py",),
        settings={"REGARD_FLASH_ATTENTION": "{flash_attn}"},
        passed=401,
        computed=401,
    ),
    "JAX": Suite("jax", ("{here}/dot_product_of_jax.py",), passed=187, computed=187),
    "Keras on JAX": Suite("jax", KERAS, settings={"KERAS_BACKEND": "jax"}, passed=149, computed=67, not_applicable=13),
    "Keras on PyTorch": Suite(
        "torch", KERAS, settings={"KERAS_BACKEND": "torch"}, passed=145, computed=63, not_applicable=17
    ),
    "PyTorch": Suite("torch", ("{here}/infos_of_torch.py",), passed=1429, computed=1429),
    "transformers": Suite(
        "transformers",
        ("{here}/common_tests_of_transformers.py",),
        settings={"REGARD_COMMON_TESTS": "{transformers}/tests"},
        passed=1486,
        computed=656,
        not_applicable=633,
        known={
            "gemma3_text_tests::test_model_rope_scaling": OVERRIDDEN,  # for a rotary table for each kind of layer
            "t5_tests::test_model_base_model_prefix": OVERRIDDEN,
            "vit_tests::test_model_get_set_embeddings": OVERRIDDEN,  # for images
        },
        num_known=6,
    ),
}


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory):
    """Return a function that unpacks the tests, and what they import, of a source distribution."""

    def unpack(name, *folders):
        path = fetched("suites", f"{name}-*.tar.gz")
        root = path.name.removesuffix(".tar.gz")
        target = tmp_path_factory.mktemp(name)
        with tarfile.open(path) as archive:
            wanted = [x for x in archive if x.isfile() and x.name.startswith(tuple(f"{root}/{y}/" for y in folders))]
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.0 to 3.11.3
            archive.extractall(target, wanted)
        return target / root

    return unpack


def folders_of(suite, unpacked):
    """Return the folders that a suite names."""
    texts = " ".join([*suite.files, *suite.settings.values()])
    folders = {"here": HERE}
    if "{keras}" in texts:
        import importlib.util

        folders["keras"] = Path(importlib.util.find_spec("keras").origin).parent
    if "{flash_attn}" in texts:
        folders["flash_attn"] = unpacked("flash_attn", "tests", "flash_attn")
    if "{transformers}" in texts:
        folders["transformers"] = unpacked("transformers", "tests")
    return folders


@pytest.mark.parametrize("name", SUITES)
def test_a_suite(name, unpacked, tmp_path, capsys):
    suite = SUITES[name]
    folders = folders_of(suite, unpacked)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    outcome = tmp_path / "outcome.json"
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:warnings"]
    command += ["-c", tmp_path / "pytest.ini", f"--rootdir={tmp_path}", f"--confcutdir={HERE}", "-p", "in_place"]
    command += [f"--peer={suite.peer}", f"--known={json.dumps(suite.known)}", f"--outcome={outcome}"]
    command += [file.format(**folders) for file in suite.files]
    path = os.pathsep.join([*map(str, MODULES), os.environ.get("PYTHONPATH", "")])
    settings = {key: x.format(**folders) for key, x in suite.settings.items()}
    environment = {**os.environ, **SETTINGS, "PYTHONPATH": path, **settings}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    assert outcome.exists(), done.stdout[-5000:] + done.stderr[-5000:]
    found = json.loads(outcome.read_text(encoding="utf-8"))
    counts = {count: found["counts"].get(count, 0) for count in suite.counts()}
    with capsys.disabled():
        print(f"\n{name}:", ", ".join(f"{number} {count}".replace("_", " ") for count, number in counts.items()))
    assert not found["failed"], done.stdout[-20_000:]
    assert not found["unmatched"]
    assert counts == suite.counts()
