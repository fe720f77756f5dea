"""The page and its API over a real connection: nothing without the token, nothing for another origin."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
import uvicorn
from explorations import at_once, explored, long_exploration, whole

from regard import RegardError
from regard.explorer import server
from regard.explorer.connections import BoundedProtocol
from regard.explorer.server import application, listen, redirect_file, serve

TOKEN = "secret-token"
HEAD = {"run": 0, "layer": 0, "head": 0}
WATCHDOG = 120  # seconds that no passing test comes near


class Client:
    """Asks one server."""

    def __init__(self, port):
        self.port = port

    def ask(self, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WATCHDOG)
        connection.request(method, path, body=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.headers, content

    def api(self, method, params=None, *, body=None, **headers):
        body = json.dumps(params or {}) if body is None else body
        return self.ask(f"/{TOKEN}/api/{method}", "POST", body, **headers)


@contextmanager
def served(exploration, closing=None):
    listening = listen(0)
    app = application(exploration, TOKEN, closing)
    config = uvicorn.Config(app, log_level="error", lifespan="off", http=BoundedProtocol, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield Client(listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="module")
def exploration(bert):
    """Return an exploration that no test changes."""
    return explored(bert, "the cat sat", "the cat on")


@pytest.fixture(scope="module")
def client(exploration):
    with served(exploration) as client:
        yield client


def test_the_page_and_its_files_are_served_with_all_modules_in_one(client):
    status, headers, page = client.ask(f"/{TOKEN}/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    for name in re.findall(rb'(?:src|href)="(static/[^"]+)"', page):
        status, headers, content = client.ask(f"/{TOKEN}/{name.decode()}")
        assert status == 200
        assert headers["Content-Type"].split(";")[0] in ("text/css", "text/javascript")
        assert content
    script = client.ask(f"/{TOKEN}/static/app/main.js")[2].decode()
    assert "class App" in script
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)


def test_answers_are_those_of_the_exploration(client, exploration):
    def js(method, **params):
        return json.loads(client.api(method, params)[2])

    memory = js("memory")
    assert memory.keys() == {"runs", "overviews", "overviews_limit", "process_peak"}
    assert memory["process_peak"] > memory["runs"] + memory["overviews"]
    assert js("manifest")["runs"] == exploration.manifest()["runs"]
    for method, params in (
        ("heads", {"run": 1}),
        ("movement", {"runs": [0]}),
        ("differences", {"runs": [0, 1]}),
        ("attribution", {"run": 0, "to": "on mats"}),
        ("cell", {"run": 1, "layer": 0, "head": 2, "i": 3, "j": 1}),
    ):
        assert js(method, **params) == getattr(exploration, method)(**params)
    assert client.api("thumbnails", {"run": 0})[2] == exploration.thumbnails(0)
    region = {"row0": 1, "row1": 5, "col0": 0, "col1": 4, "bin_size": 2, "pool": "mean"}
    asked = client.api("tile", {"run": 0, "layer": 1, "head": "mean", **region})
    assert asked[1]["Content-Type"] == "application/vnd.regard.float32"
    expected = exploration.tile(0, 1, "mean", **region)
    np.testing.assert_array_equal(np.frombuffer(asked[2], "<f4").reshape(2, 2), expected)
    for name, at, index in (("row", {"i": 2}, (2,)), ("column", {"j": 2}, (slice(None), 2))):
        answer = client.api(name, {"run": 0, "layer": 1, "head": 0, "mode": "rollout", **at})
        found = np.frombuffer(answer[2], "<f4")
        np.testing.assert_array_equal(found, whole(exploration, 0, 1, 0, "rollout")[index])


@pytest.mark.parametrize("path", ["/", "/x/y/z", f"/{TOKEN}/", f"/{TOKEN}/static/style.css",
                                  f"/{TOKEN}/api/manifest", f"/{TOKEN}/api/none"])  # fmt: skip
def test_every_answer_has_a_strict_policy(client, path):
    _, headers, _ = client.ask(path)
    policy = headers["Content-Security-Policy"]
    for part in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("path", ["/", "/wrong/", f"/{TOKEN}", "/wrong/api/manifest", f"/{TOKEN}x/", "/%C3%A9/"])
def test_nothing_is_answered_without_the_token(client, path):
    status, headers, content = client.ask(path, "POST" if "/api/" in path else "GET")
    assert status == 404
    assert b"use the address that regard printed" in content
    assert "Location" not in headers


@pytest.mark.parametrize("line", ["GET /wrong/", "GET /", "POST /wrong/"])
def test_who_is_refused_gets_one_answer_and_keeps_no_connection(client, line):
    """Requests that are sent ahead, and whose answers nobody reads, would keep a connection in work without end."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=WATCHDOG) as connection:
        connection.sendall(f"{line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 3)
        with connection.makefile("rb") as answers:
            assert answers.read().count(b"HTTP/1.1 40") == 1


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:1", "[::2]:80", ""])
def test_a_page_that_came_by_another_name_gets_nothing(client, host):
    status, _, content = client.api("manifest", Host=host)
    assert status in (400, 421)
    assert b"format" not in content


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_this_machine_s_own_names_are_answered(client, host):
    assert client.api("manifest", Host=f"{host}:{client.port}")[0] == 200


def test_another_page_may_not_ask(client):
    assert client.api("ablate", {"heads": [[0, 0]]}, Origin="http://evil.example")[0] == 403
    assert client.api("manifest", Origin="null")[0] == 403
    own = f"http://127.0.0.1:{client.port}"
    assert client.api("manifest", Origin=own)[0] == 200


@pytest.mark.parametrize(("method", "path", "allow"), [
    ("GET", "api/manifest", "POST"),
    ("DELETE", "api/ablate", "POST"),
    ("HEAD", "api/manifest", "POST"),
    ("PUT", "", None),
    ("TRACE", "", None),
    ("OPTIONS", "api/ablate", None),
])  # fmt: skip
def test_other_methods_are_refused(client, method, path, allow):
    status, headers, _ = client.ask(f"/{TOKEN}/{path}", method=method)
    assert status == 405
    assert allow is None or headers["Allow"] == allow


@pytest.mark.parametrize("body", ["", "[]", "{", '{"heads": 3}', '{"heads": [[0, 99]]}', "[" * 50_000, "x" * 200_000])
def test_a_bad_edit_is_a_sentence(client, body):
    status, _, content = client.api("ablate", body=body)
    assert status == 400
    assert json.loads(content)["error"]


@pytest.mark.parametrize("name", ["..%2f__init__.py", "__init__.py", "%2e%2e/server.py", "none.js",
                                  "app/../../__init__.py", "app", "index.html%00"])  # fmt: skip
def test_only_the_page_s_own_files_are_served(client, name):
    assert client.ask(f"/{TOKEN}/static/{name}")[0] == 404


def test_a_fault_of_our_own_is_a_sentence_and_keeps_the_policy(client, exploration, monkeypatch):
    monkeypatch.setattr(exploration, "cell", lambda **_: 1 / 0)
    status, headers, content = client.api("cell", {"run": 0, "layer": 0, "head": 0, "i": 0, "j": 0})
    assert (status, headers["Content-Type"]) == (500, "application/json; charset=utf-8")
    assert json.loads(content)["error"].endswith("internal error of regard: ZeroDivisionError: division by zero")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_several_pages_at_once_get_their_answers(client, exploration):
    def rows(ask):
        return lambda n: [ask({"run": 0, "layer": n // 3, "head": n % 3, "i": i, "mode": "norms"}) for i in range(5)]

    expected = map(rows(lambda params: exploration.row(**params).tobytes()), range(6))
    assert at_once(6, rows(lambda params: client.api("row", params)[2])) == list(expected)


@pytest.fixture
def endless(monkeypatch):
    """Return a function that gives an exploration thumbnails without end; their beginning and their end are events."""

    def make(exploration):
        begun, left = threading.Event(), threading.Event()

        def thumbnails(*, run, check):
            begun.set()
            try:
                while True:
                    time.sleep(0)
                    check()
            finally:
                left.set()

        monkeypatch.setattr(exploration, "thumbnails", thumbnails)
        return begun, left

    return make


def test_work_for_a_page_that_is_left_stops(endless):
    exploration = long_exploration(3000, heads=3)
    begun, left = endless(exploration)
    with served(exploration) as client:
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            head = f"POST /{TOKEN}/api/thumbnails HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n"
            connection.sendall(f'{head}{{"run": 0}}'.encode())
            assert begun.wait(WATCHDOG)
            assert client.api("row", {**HEAD, "i": 5})[0] == 200  # it does not wait for the thumbnails
            assert not left.is_set()
        assert left.wait(WATCHDOG)
        assert client.api("manifest")[0] == 200


class Page:
    """A page that sends a POST request to an application, and leaves, or stays."""

    def __init__(self, method, *body, stays=False):
        self.messages = [{"type": "http.request", "body": part, "more_body": True} for part in body]
        self.scope = {
            "type": "http", "method": "POST", "path": f"/{TOKEN}/api/{method}", "query_string": b"", "root_path": "",
            "headers": [(b"host", b"localhost")],
        }  # fmt: skip
        self.stays, self.left, self.sent = stays, asyncio.Event(), []

    async def receive(self):
        if self.messages:
            return self.messages.pop(0)
        if self.stays:
            await asyncio.Event().wait()
        self.left.set()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    async def ask(self, app):
        await app(self.scope, self.receive, self.send)
        return self.sent[0]["status"]


def test_a_body_that_is_cut_short_is_no_fault(exploration):
    assert asyncio.run(Page("ablate", b'{"heads": [[0').ask(application(exploration, TOKEN))) == 499


def test_a_text_of_a_page_that_is_left_is_not_run(monkeypatch, exploration):
    ran, begun, ends = [], threading.Event(), threading.Event()

    def run_text(text):
        ran.append(text)
        begun.set()
        assert ends.wait(WATCHDOG)
        return {}

    def page(text, **options):
        page = Page("run_text", json.dumps({"text": text}).encode(), **options)
        page.messages[-1]["more_body"] = False
        return page

    async def ask():
        app = application(exploration, TOKEN)
        first = asyncio.create_task(page("first", stays=True).ask(app))
        assert await asyncio.to_thread(begun.wait, WATCHDOG)
        pages = [page(f"left {i}") for i in range(5)]
        others = [asyncio.create_task(each.ask(app)) for each in pages]
        for each in pages:
            await each.left.wait()
        ends.set()
        return await asyncio.gather(first, *others)

    monkeypatch.setattr(exploration, "run_text", run_text)
    assert asyncio.run(ask()) == [200, *[499] * 5]
    assert ran == ["first"]


def test_work_stops_when_the_server_ends(endless, exploration):
    closing, (begun, _) = threading.Event(), endless(exploration)
    with served(exploration, closing) as client:
        asked = []
        thread = threading.Thread(target=lambda: asked.append(client.api("thumbnails", {"run": 0})[0]))
        thread.start()
        assert begun.wait(WATCHDOG)
        closing.set()
        thread.join(WATCHDOG)
        assert asked == [499]


def test_the_next_free_port_is_taken():
    with listen(0) as taken:
        assert taken.proto == socket.IPPROTO_TCP  # by which asyncio knows that it may send small answers at once
        port = taken.getsockname()[1]
        with listen(port) as other:
            assert port < other.getsockname()[1] <= port + 100
            assert other.getsockname()[0] == "127.0.0.1"


def test_no_free_port_is_said(monkeypatch):
    monkeypatch.setattr(server, "_MAX_PORTS", 1)
    with listen(0) as taken, pytest.raises(RegardError, match="give another, --port N, or 0 for any"):
        listen(taken.getsockname()[1])


@pytest.mark.parametrize("browser", [webbrowser.Error("none"), webbrowser.GenericBrowser("lynx"), False])
def test_without_a_browser_the_address_is_told(monkeypatch, browser):
    class Refusing:
        def open(self, address):
            return False

    def get():
        if isinstance(browser, Exception):
            raise browser
        return browser or Refusing()

    monkeypatch.setattr(webbrowser, "get", get)
    told = []
    server._show("http://127.0.0.1:1/x/", told.append)
    assert told == ["no browser found: open the address above in a browser on this machine"]


def test_a_browser_is_opened_at_the_address(monkeypatch, bert):
    opened = threading.Event()
    addresses, paths = [], []

    class Browser:
        def open(self, address):
            paths.append(Path.from_uri(address) if hasattr(Path, "from_uri") else Path(address.removeprefix("file://")))
            addresses.extend(re.findall(r'url=([^"]+)"', paths[0].read_text()))
            opened.set()
            return True

    monkeypatch.setattr(webbrowser, "get", Browser)
    ran = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: (ran.append(sockets), opened.wait(WATCHDOG)))
    told = []
    serve(explored(bert, "the cat sat"), port=0, tell=told.append)
    assert told == [f"{addresses[0]}\nCtrl-C ends it"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", addresses[0])
    assert ran[0][0].fileno() == -1  # closed at the end
    assert not paths[0].parent.exists()


@pytest.mark.skipif(os.name == "nt", reason="modes of files")
def test_the_browser_is_started_without_the_token(tmp_path, monkeypatch):
    """Everyone on the machine can read the arguments of a process; only the user can read the file that leads there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    address = "http://127.0.0.1:1/token/"
    with redirect_file(address) as path:
        assert "token" not in str(path)
        assert path.read_text().count(address) == 2
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(tmp_path.iterdir()) == []


@contextmanager
def command(folder, *words, start=("-m", "regard"), **variables):
    """Run `regard explore` on "a b a"; yield the process, and its port and token, when it answers."""
    argv = [sys.executable, *start, "explore", "a b a", "--toy", "--port", "0", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        argv, **pipes, cwd=folder, env={**os.environ, **variables}, start_new_session=True
    ) as process:
        try:
            address = process.stdout.readline().strip()
            yield process, *re.fullmatch(r"http://127\.0\.0\.1:(\d+)/([\w-]+)/", address).groups()
        finally:
            process.kill()


@pytest.mark.skipif(os.name == "nt", reason="limits on open files")
@pytest.mark.sweep  # it takes the seconds that asyncio pauses after a connection that it cannot accept
def test_idle_connections_leave_the_page_reachable(tmp_path):
    """More of them than the server may have open files."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); import regard.cli as c; c.main()"
    with command(tmp_path, "--no-browser", start=("-c", limit)) as (process, port, token), ExitStack() as idle:
        for _ in range(400):
            idle.enter_context(socket.create_connection(("127.0.0.1", int(port)), timeout=WATCHDOG))
        with answered(port, token):
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=WATCHDOG)
    assert err.count("\n") <= 1  # at most one line about what could not be accepted


def answered(port, token):
    """Return a connection on which the server of "a b a" has answered; it stays open, as a browser's does."""
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=WATCHDOG)
    connection.request("POST", f"/{token}/api/manifest", "{}")
    assert json.loads(connection.getresponse().read())["title"] == "a b a"
    return closing(connection)


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_no_file_with_the_token_is_left(tmp_path, sent):
    with (
        command(tmp_path, TMPDIR=str(tmp_path), BROWSER="/bin/true") as (process, port, token),
        answered(port, token),
    ):
        (folder,) = tmp_path.iterdir()
        assert token in (folder / "open.html").read_text()
        process.send_signal(sent)
        process.communicate(timeout=WATCHDOG)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_ends_it_without_a_word(tmp_path):
    with command(tmp_path, "--no-browser") as (process, port, token), answered(port, token):
        how = process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WATCHDOG)
    assert (process.returncode, how, out, err) == (0, "Ctrl-C ends it", "", "")
    assert list(Path(tmp_path).iterdir()) == []
