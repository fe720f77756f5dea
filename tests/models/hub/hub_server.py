"""A stand-in for the Hugging Face hub on the loopback: repositories, revisions, access, and what can go wrong.

It answers the requests that huggingface_hub makes to find and download files: ``/api/models/ORG/NAME/revision/REV``
and ``HEAD``/``GET /ORG/NAME/resolve/REV/FILE``, with the headers that the hub sends.
"""

import hashlib
import json
import re
import socket
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from tiny_model import Server

Handler = BaseHTTPRequestHandler
COMMIT, LATER = "0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"
TOKEN = "hf_" + "x" * 34


@dataclass
class Hub:
    """What the server has. A test changes it while the server runs."""

    revisions: dict[str, dict[str, bytes]]  # files by the name of a branch or tag
    commits: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})  # the commit of a branch or tag
    kind: str = "models"  # or datasets, spaces
    gated: bool = False  # whether its files need the token
    private: bool = False  # whether all of it needs the token
    fail: Callable[[Handler, str], bool] | None = None  # answers in the place of the hub and returns True, or does not
    far: bool = False  # whether GET is redirected to another address, as for large files
    headers: dict[str, str] = field(default_factory=dict)  # of files, in the place of its own
    requests: list[str] = field(default_factory=list)  # method and path, in order
    tokens: set[str] = field(default_factory=set)
    address: str = ""

    def files_of(self, revision):
        """Return the files of a branch, a tag or a commit."""
        branch = next((name for name, commit in self.commits.items() if commit == revision), revision)
        return self.revisions.get(branch)

    def commit_of(self, revision):
        return self.commits.get(revision, revision)

    @property
    def downloaded(self):
        """The files that were fetched, in order."""
        found = [re.search(r"/(?:resolve/[^/]+|far)/(.*)", each) for each in self.requests if each.startswith("GET ")]
        return [match[1] for match in found if match]


@contextmanager
def serving(hub):
    """Serve the repository ``org/tiny`` while the block runs."""
    with Server(lambda handler: _answer(hub, handler)) as server:
        hub.address = server.address
        yield hub


def stuck(handler, path):
    """Do not answer until the other side leaves."""
    handler.connection.recv(1)
    return True


def status(code, on="", **headers):
    """Return what answers requests whose path has `on` with a status; a header's underscores stand for hyphens."""

    def fail(handler, path):
        if on in path:
            _send(handler, code, b"", **headers)
            return True
        return False

    return fail


def cut(name, at, *, times=1):
    """Return what breaks downloads of a file off after some bytes, the first `times` of them."""
    left = [times]
    lock = threading.Lock()

    def fail(handler, path):
        with lock:
            breaks = left[0] > 0 and handler.command == "GET" and path.endswith(f"/{name}")
            left[0] -= breaks
        if breaks:
            handler.hub_limit = at
        return False

    return fail


def _answer(hub, handler):
    path = unquote(urlsplit(handler.path).path)
    hub.requests.append(f"{handler.command} {path}" + f" {handler.headers.get('Range', '')}".rstrip())
    token = handler.headers.get("Authorization", "").removeprefix("Bearer ")
    hub.tokens.add(token)
    if hub.fail is not None and hub.fail(handler, path):
        return
    if match := re.fullmatch(r"/far/(.*)", path):
        content = next(files[match[1]] for files in hub.revisions.values() if match[1] in files)
        _send_file(handler, content, "", {})
    elif match := re.fullmatch(r"/api/(\w+)/org/tiny(?:/revision/(.+))?", path):
        _answer_info(hub, handler, match[1], match[2] or "main", token)
    elif match := re.fullmatch(r"/org/tiny/resolve/(refs/pr/\d+|[^/]+)/(.+)", path):
        _answer_file(hub, handler, match[1], match[2], token)
    else:
        _send(handler, 404, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")


def _answer_info(hub, handler, kind, revision, token):
    files = hub.files_of(revision)
    if kind != hub.kind or (hub.private and token != TOKEN):
        code = 404 if token == TOKEN else 401
        _send(handler, code, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
    elif files is None:
        _send(handler, 404, X_Error_Code="RevisionNotFound", X_Error_Message=f"Invalid rev id: {revision}")
    else:
        siblings = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
        content = {"id": "org/tiny", "sha": hub.commit_of(revision), "siblings": siblings}
        _send(handler, 200, json.dumps(content).encode(), Content_Type="application/json")


def _answer_file(hub, handler, revision, name, token):
    files = hub.files_of(revision)
    if hub.gated and token != TOKEN:
        code = 403 if token else 401
        _send(handler, code, X_Error_Code="GatedRepo", X_Error_Message="Access to model org/tiny is restricted")
    elif files is None:
        _send(handler, 404, X_Error_Code="RevisionNotFound", X_Error_Message=f"Invalid rev id: {revision}")
    elif name not in files:
        _send(handler, 404, X_Error_Code="EntryNotFound", X_Error_Message="Entry not found")
    else:
        etag = hashlib.sha256(files[name]).hexdigest()
        headers = {"X_Repo_Commit": hub.commit_of(revision), "ETag": f'"{etag}"'}
        if hub.far:
            headers |= {"X_Linked_Etag": f'"{etag}"', "X_Linked_Size": str(len(files[name]))}
            _send(handler, 302, b"", Location=f"{hub.address.replace('127.0.0.1', 'localhost')}/far/{name}", **headers)
        else:
            _send_file(handler, files[name], etag, headers | hub.headers)


def _send_file(handler, content, etag, headers):
    start = int((re.match(r"bytes=(\d+)-", handler.headers.get("Range", "")) or ["", "0"])[1])
    part = content[start:]
    headers = {**headers, "Accept_Ranges": "bytes", "Content_Length": str(len(part))}
    if start:
        headers["Content_Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
    limit = getattr(handler, "hub_limit", len(part))
    _send(handler, 206 if start else 200, part[:limit], **headers)
    if limit < len(part) and handler.command == "GET":
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True


def _send(handler, code, content=b"", **headers):
    handler.send_response(code)
    for name, value in ({"Content_Length": str(len(content))} | headers).items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    if handler.command == "GET":
        handler.wfile.write(content)
        handler.wfile.flush()
