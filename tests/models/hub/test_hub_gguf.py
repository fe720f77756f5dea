"""The GGUF files of a repository, by their quantisation."""

import pytest
from hub_helpers import LLAMA, error_of, snapshot

from regard.models.hub import resolve
from regard.models.hub.hub_gguf import gguf_models

pytestmark = pytest.mark.usefixtures("home")


QUANTIZED = {
    "tiny-Q4_K_M.gguf": b"GGUF4",
    "tiny.q8_0.gguf": b"GGUF8",
    "UD/tiny-UD-Q4_K_XL.gguf": b"GGUFU",
    "mmproj-F16.gguf": b"GGUFP",
    "tiny-F16-00001-of-00002.gguf": b"GGUF",
    "tiny-F16-00002-of-00002.gguf": b"GGUF",
}
SAME = {  # of one quantisation
    "small-q4_0.gguf": b"GGUF1",
    "large-Q4_0.gguf": b"GGUF2",
    "a/deep-Q8_0.gguf": b"GGUF3",
    "b/deep-Q8_0.gguf": b"GGUF4",
    "my model.gguf": b"GGUF5",
    "tiny-fp16.gguf": b"GGUF6",
}


OTHERS = (  # of GGUF, but no models
    *("mmproj-tiny-f16.gguf", "tiny-mmproj-f16.gguf", "tiny.mmproj-Q8_0.gguf", "MMPROJ.gguf"),
    *("tiny.imatrix.gguf", "imatrix_unsloth.gguf", "ggml-vocab-llama-bpe.gguf", "tiny-F16-vocab.gguf"),
    *("tiny-F16-LoRA.gguf", "mtp-tiny-Q8_0.gguf", "tiny-eagle3-Q8_0.gguf"),
)
Q4, XL, PARTS = "tiny-Q4_K_M.gguf", "UD/tiny-UD-Q4_K_XL.gguf", [f"tiny-F16-0000{i}-of-00002.gguf" for i in (1, 2)]
WHOLE = [*QUANTIZED, "tiny-F16.gguf", "tiny-F16-00001-of-00001.gguf"]
FOUND = [  # the files, what is asked for, and the files that it names
    *((["config.json", "model.safetensors", *QUANTIZED], key, [Q4]) for key in ("Q4_K_M", "q4_k_m")),
    *((QUANTIZED, key, [XL]) for key in ("UD-Q4_K_XL", "tiny-ud-q4_k_xl", XL)),
    (QUANTIZED, "Q8_0", ["tiny.q8_0.gguf"]),
    *((QUANTIZED, key, PARTS) for key in ("F16", *PARTS)),
    (WHOLE, "F16", ["tiny-F16.gguf"]),  # not in parts, where it is there whole
    ([Q4, "config.json", "README.md"], "", [Q4]),  # the only one
    *(([file, Q4, "tiny.imatrix", "imatrix.dat"], "", [Q4]) for file in OTHERS),
    (SAME, "small-q4_0", ["small-q4_0.gguf"]),
    (SAME, "LARGE-q4_0", ["large-Q4_0.gguf"]),
    *((SAME, file, [file]) for file in ("a/deep-Q8_0.gguf", "b/deep-Q8_0.gguf", "my model.gguf")),
    *((SAME, key, ["tiny-fp16.gguf"]) for key in ("f16", "F16", "fp16", "FP16", "tiny-fp16.gguf")),
]


@pytest.mark.parametrize(("files", "key", "expected"), FOUND, ids=[f"{key} in {len(files)}" for files, key, _ in FOUND])
def test_what_is_asked_for_names_one_model_whose_files_alone_are_fetched(hub, home, files, key, expected):
    hub.revisions["main"] = {file: file.encode() for file in files}
    name = f"org/tiny:{key}" if key else "org/tiny"
    assert resolve.find(name) == snapshot(home) / expected[0]
    assert hub.downloaded == expected
    hub.requests.clear()
    assert resolve.find(name) == snapshot(home) / expected[0]
    assert hub.requests == []


REFUSED = [  # the files, the name, and the error
    (
        QUANTIZED, "org/tiny",
        "org/tiny holds 4 GGUF models: name the quantisation of one, as in org/tiny:Q4_K_M; "
        "there are UD-Q4_K_XL, F16, Q4_K_M, Q8_0",
    ),
    (QUANTIZED, "org/tiny:Q2_K", "org/tiny has no quantisation Q2_K: choose from UD-Q4_K_XL, F16, Q4_K_M, Q8_0"),
    (LLAMA, "org/tiny:Q4_0", "org/tiny has no quantisation Q4_0: it holds no GGUF model"),
    (
        [name for name in QUANTIZED if "00001" not in name], "org/tiny:F16",
        "org/tiny:F16 has 1 of the 2 GGUF files into which it is split: choose another quantisation or revision",
    ),
    (
        ["mmproj-F16.gguf", "README.md"], "org/tiny",
        "org/tiny has no weights that regard reads: mmproj-F16.gguf is the image part of a model; choose another model",
    ),
    (SAME, "org/tiny:Q4_0", "org/tiny has 2 GGUF models that Q4_0 may mean: choose from large-Q4_0, small-q4_0"),
    (
        SAME, "org/tiny:deep-Q8_0",
        "org/tiny has 2 GGUF models that deep-Q8_0 may mean: choose from a/deep-Q8_0.gguf, b/deep-Q8_0.gguf",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("files", "name", "message"), REFUSED, ids=[name for _, name, _ in REFUSED])
def test_what_names_no_file_or_several_is_told_with_the_choice(hub, files, name, message):
    hub.revisions["main"] = dict.fromkeys(files, b"GGUF")
    assert str(error_of(resolve.find, name)) == message


def test_a_part_that_is_lost_is_fetched_again(hub, home):
    hub.revisions["main"] = QUANTIZED | {PARTS[1]: b"GGUF, the second"}
    for _ in range(2):
        assert resolve.find("org/tiny:F16") == snapshot(home) / PARTS[0]
        (snapshot(home) / PARTS[1]).unlink()  # an error if it is not there


@pytest.mark.parametrize(
    ("names", "num_files"),
    [
        (["m.gguf", "m-00001-of-00001.gguf"], [1, 1]),
        (["m-00001-of-00002.gguf", "m-00001-of-00002.GGUF"], [1, 1]),  # two first parts
        (["m-00001-of-00002.gguf", "m-00003-of-00002.gguf", "m-00000-of-00002.gguf"], [1, 1, 1]),
        (["m-00001-of-00002.gguf", "m-00002-of-00003.gguf"], [1, 1]),
        (["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "a/m-00002-of-00002.gguf"], [1, 2]),
    ],
)
def test_only_parts_of_one_model_are_together(names, num_files):
    models = gguf_models(names)
    assert [len(each.files) for each in models] == num_files
    assert len({each.key for each in models}) == len(models)


@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("tiny-Q4_K_M.gguf", "Q4_K_M"),
        ("tiny.IQ3_XXS.gguf", "IQ3_XXS"),
        ("Q8_0.gguf", "Q8_0"),
        ("ggml-model-f16.gguf", "F16"),
        ("tiny-fp16.gguf", "F16"),
        ("tiny-fp32.gguf", "F32"),
        ("tiny_bf16.gguf", "BF16"),
        ("tiny-Q4_K_M-imat.gguf", "Q4_K_M"),
        ("Q4_0_tiny.gguf", "Q4_0"),
        ("tiny-Q8_0-abliterated.v2.gguf", "Q8_0"),
        ("tiny-f16-to-q4_0.gguf", "Q4_0"),  # the last one counts
        ("tiny-UD-IQ1_S.gguf", "UD-IQ1_S"),
        ("tiny-mxfp4_moe.gguf", "MXFP4_MOE"),
        ("tiny-TQ1_0.gguf", "TQ1_0"),
        ("Q3-Q2_K-00001-of-00002.gguf", "Q2_K"),
        ("model.GGUF", "model"),
        ("qwen2.5-q4all.gguf", "qwen2.5-q4all"),
    ],
)
def test_the_key_of_a_file_is_its_quantisation(file, key):
    assert [each.key for each in gguf_models([file])] == [key]


def test_each_of_the_choices_is_found(hub):
    hub.revisions["main"] = SAME
    listed = str(error_of(resolve.find, "org/tiny")).partition("there are ")[2].split(", ")
    assert listed == ["a/deep-Q8_0.gguf", "b/deep-Q8_0.gguf", "large-Q4_0", "my model.gguf", "small-q4_0", "F16"]
    for key in listed:
        assert resolve.find(f"org/tiny:{key}")


def test_a_list_of_choices_is_bounded(hub):
    hub.revisions["main"] = {f"{'x' * 200}{number}.gguf": b"GGUF" for number in range(100)}
    assert len(str(error_of(resolve.find, "org/tiny"))) < 4500
