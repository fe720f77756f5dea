"""One sentence for each failure."""

import errno
import os

import huggingface_hub
import pytest
from hub_helpers import error_of, point_to, sentence, snapshot
from hub_server import TOKEN, status

import regard
from regard.models.hub import fetch_snapshot, hub_models, resolve
from regard.models.hub.redact import redact

pytestmark = pytest.mark.usefixtures("home")
GATED = "org/tiny is gated: ask for access at HUB/org/tiny, then log in with `hf auth login`, or set HF_TOKEN"
NO_MODEL = (
    "HUB has no model org/tiny, or none for this account: check the name, or log in with `hf auth login` if it is "
    "private"
)
ODD_TOKEN = (
    "the token for HUB has characters that HTTP does not allow: log in again with `hf auth login`, or set HF_TOKEN"
)
ANSWERS = {  # by the status of HTTP
    429: "HUB is limiting requests: wait a few minutes, or log in with `hf auth login`",
    500: "HUB failed to send org/tiny (HTTP 500): try again later",
    403: "HUB does not let this account read org/tiny: see HUB/org/tiny",
    401: "HUB refuses the token: log in again with `hf auth login`, or set HF_TOKEN",
    404: "HUB lacks org/tiny, or a file of it (HTTP 404): check the name, and HF_ENDPOINT if it is a mirror",
    200: "HUB does not answer as the Hugging Face hub does: check HF_ENDPOINT, and the proxy if there is one",
}
SENTENCES = [  # what the hub is like, the token, and the sentence
    ({"gated": True}, "", GATED),
    *(({"kind": "nothing"}, token, NO_MODEL) for token in ("", TOKEN)),
    ({"kind": "datasets"}, "", "org/tiny is a dataset, not a model: give the name of a model"),
    ({"kind": "spaces"}, "", "org/tiny is a space, not a model: give the name of a model"),
    *(({}, token, ODD_TOKEN) for token in ("hf_a\x0bb", "hf_a\xe9b")),
    *(
        ({"fail": status(code, on, X_Error_Message="Invalid credentials in Authorization header")}, "", message)
        for code, message in ANSWERS.items()
        for on in ("/api/", "/resolve/")
    ),
]


@pytest.mark.parametrize(("state", "token", "message"), SENTENCES)
def test_a_failure_is_one_sentence(hub, monkeypatch, state, token, message):
    monkeypatch.setenv("HF_TOKEN", token)
    vars(hub).update(state)
    error = error_of(regard.load, "org/tiny")
    assert str(error).replace(hub.address, "HUB") == message
    assert not token or token[:4] not in "".join(error.__notes__)


@pytest.mark.parametrize("attribute", ["gated", "private"])
def test_a_token_gives_access(hub, home, monkeypatch, attribute):
    setattr(hub, attribute, True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert resolve.find("org/tiny") == snapshot(home)
    assert hub.tokens == {TOKEN}


@pytest.mark.parametrize("header", ["ETag", "X_Linked_Etag", "X_Repo_Commit"])
@pytest.mark.parametrize("name", ["../../../../outside", "{home}/outside", "a/b"])
def test_what_an_answer_names_is_no_path(hub, home, header, name):
    hub.headers = {header: name.format(home=home)}
    before = {*home.rglob("*"), *home.parent.iterdir()}
    assert sentence(hub).startswith("HUB does not answer as the Hugging Face hub does")
    added = {*home.rglob("*"), *home.parent.iterdir()} - before
    assert all(path.is_relative_to(home / "hf") for path in added)
    assert not any(path.is_file() and "blobs" in path.parts and path.stat().st_size for path in added)


def test_no_such_revision_and_no_download_wanted(hub):
    assert sentence(hub, download=False) == "org/tiny is not on this machine: run `regard pull org/tiny` with a network"
    assert hub.requests == []
    assert sentence(hub, revision="v9") == (
        "org/tiny has no revision v9: give a branch, a tag or a commit that HUB/org/tiny lists"
    )


def test_no_network(hub, monkeypatch):
    point_to("http://me:secret@127.0.0.1:9", monkeypatch)
    error = error_of(regard.load, "org/tiny", revision="v1")
    assert str(error) == (
        "org/tiny is not on this machine and http://127.0.0.1:9 does not answer: "
        "run `regard pull org/tiny --revision v1` with a network"
    )
    assert "Connection refused" in error.__notes__[0]
    assert "secret" not in error.__notes__[0]


@pytest.mark.parametrize("variable", ["REGARD_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline(hub, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    assert sentence(hub) == (
        f"org/tiny is not on this machine and {variable} forbids downloads: run `regard pull org/tiny` with a network"
    )
    assert hub.requests == []
    assert str(error_of(resolve.pull, "org/tiny", force=True)) == (
        f"org/tiny cannot be fetched, as {variable} forbids downloads: unset it"
    )


def test_without_the_library(hub, monkeypatch):
    monkeypatch.setattr(hub_models, "importable", lambda name: False)
    assert sentence(hub) == "org/tiny is fetched by huggingface_hub, which is not installed: pip install 'regard[hub]'"


def test_what_another_program_left_does_not_hide_an_answer(hub, other_program):
    hub.fail = status(503, "/resolve/")
    assert sentence(hub) == "HUB failed to send org/tiny (HTTP 503): try again later"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_only_a_place_that_cannot_be_written_is_said_to_be_one(hub, home, monkeypatch, number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number), place)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
    place = str(home / "elsewhere")
    assert sentence(hub) == "org/tiny could not be fetched: run `regard pull org/tiny` again"
    place = str(home / "hf" / "hub" / "x")
    assert f"cannot put org/tiny into {home}/hf/hub/models--org--tiny: {os.strerror(number)}" in sentence(hub)


def test_a_place_that_cannot_be_written(hub, home):
    (home / "hf").write_text("a file")
    assert sentence(hub) == (
        f"cannot put org/tiny into {home}/hf/hub/models--org--tiny: Not a directory; set HF_HUB_CACHE to a folder that "
        "can be written and has room"
    )


def test_each_request_has_a_limit(hub, monkeypatch):
    limits, api = [], huggingface_hub.HfApi
    for method, call in [(method, getattr(api, method)) for method in ("model_info", "repo_info")]:

        def noted(self, *arguments, timeout=None, call=call, **options):
            limits.append(timeout)
            return call(self, *arguments, timeout=timeout, **options)

        monkeypatch.setattr(api, method, noted)
    hub.kind = "nothing"
    assert "has no model org/tiny" in sentence(hub)
    assert len(limits) > 1
    assert all(limits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("header value b'Bearer hf_a\x0bb c'\nend", "header value b'Bearer *** end"),
        ("the token hf_abc is old", "the token *** is old"),
        ("in hf_hub_download", "in hf_hub_download"),
        ("at https://me:p@ss@host/x?sig=1 ", "at https://host/x"),
        ("\x1b[31mred\t", "[31mred"),
    ],
)
def test_secrets_are_not_shown(text, expected):
    assert redact(text) == expected


def test_a_file_too_large_to_be_read_is_not_downloaded(hub, monkeypatch):
    size = len(hub.revisions["main"]["config.json"])
    monkeypatch.setattr(fetch_snapshot, "MAX_BYTES", size - 1)
    assert sentence(hub) == f"config.json of org/tiny has {size:,} bytes, more than the {size - 1:,} it may"
    assert not any("/resolve/" in request for request in map(str, hub.requests))
