"""Which texts are names of models of the hub."""

import random
from pathlib import Path

import pytest
from hub_helpers import error_of
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

import regard
from regard.models.hub import resolve
from regard.models.hub.hub_name import HubName, parse_hub_name

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/tiny", HubName("org/tiny")),
        ("org/tiny:Q4_K_M", HubName("org/tiny", "Q4_K_M")),
        ("a-b.c/D_e.f-1", HubName("a-b.c/D_e.f-1")),
        ("a" * 96 + "/" + "b" * 96, HubName("a" * 96 + "/" + "b" * 96)),
        ("org/tiny:UD/tiny Q4.gguf", HubName("org/tiny", "UD/tiny Q4.gguf")),
    ],
)
def test_names_of_the_hub(text, expected):
    assert parse_hub_name(text) == expected
    assert str(expected) == text


OTHERS = "tiny ./tiny ../tiny /org/tiny a/b/c org/ /tiny org/tiny/ org/m.gguf org/model.safetensors".split()
OTHERS += "org/a..b a--b/c org/ä org/a.git org/x- org/-x org-/x -org/x org/.x org/x.".split()


@pytest.mark.parametrize("text", [*OTHERS, "", "org/tiny:", "org/tiny:a/b", "org/tiny:../x.gguf", "org/tiny:\n.gguf"])
def test_other_texts_are_not(text):
    assert parse_hub_name(text) is None


@pytest.mark.parametrize("revision", ["", "../x", "a/../b", "/x", "-x", "a b", "x\n", "~x"])
def test_a_revision_that_cannot_be_one_is_refused(revision):
    refused = str(error_of(regard.load, "org/tiny", revision=revision))
    assert "is not a revision: give a branch, a tag or a commit of org/tiny" in refused


@pytest.mark.parametrize("name", ["minilm", "induction", "a/b/c", Path("org/tiny")])
def test_only_names_of_the_hub_have_revisions(name):
    refused = str(error_of(regard.load, name, revision="main"))
    assert "revision is for a model of the Hugging Face hub, org/name, not for" in refused


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("org/a.git", "such a name does not end with .git"),
        ("org/-x", "neither part of such a name begins or ends with - or ."),
        ("org/x-", "neither part of such a name begins or ends with - or ."),
        ("a--b/c", "such a name has neither -- nor .."),
        ("org/ti ny", "such a name has letters of ASCII, digits, -, _ and . alone"),
        ("org/tiny@v1", "a revision is given apart, by --revision of `regard pull` or revision= of regard.load"),
        ("https://huggingface.co/org/tiny/tree/main?x=1", "give org/tiny, without the address"),
        ("https://huggingface.co/datasets/org/tiny", "the address is not that of a model"),
        ("hf.co/spaces/org/tiny", "the address is not that of a model"),
        ("hf.co/org/tiny", "give org/tiny, without the address"),
        ("org/" + "x" * 97, "each part of such a name has at most 96 characters"),
        (
            "org/tiny:Q4 K",
            "what stands after the colon is the quantisation of a GGUF file, such as Q4_K_M, or its path",
        ),
    ],
)
def test_what_the_hub_does_not_allow_is_said_without_a_request(hub, text, reason):
    assert str(error_of(regard.load, text)) == (
        f"there is no folder {text}, and it is not a name of the Hugging Face hub: {reason}"
    )
    assert str(error_of(resolve.pull, text)) == f"{text} is not a name of the Hugging Face hub: {reason}"
    assert hub.requests == []


def test_names_are_those_that_the_library_takes():
    rng, parts = random.Random(0), ("a", "9", "-", "_", ".", "--", "é", " ", ".git", "x" * 96)
    for _ in range(2000):
        name = "/".join("".join(rng.choices(parts, k=rng.randint(1, 4))) for _ in range(2))
        # The library takes other letters, and longer names of owners, before 1.33; the hub has none such.
        can_be = name.isascii() and all(len(part) <= 96 for part in name.split("/"))
        assert (parse_hub_name(name) is not None) == (can_be and is_taken_by_the_library(name)), name


def is_taken_by_the_library(name):
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True
