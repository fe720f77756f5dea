"""The page for a class: a code, limits for each client, and nothing but looking."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing, suppress

import numpy as np
import pytest
from explorations import explored
from starlette.datastructures import Address
from starlette.requests import ClientDisconnect

from regard import RegardError
from regard.explorer import share
from regard.explorer.classroom import LOOKS, Classroom, code_of, new_code
from regard.explorer.query import QUERIES
from regard.explorer.rates import Rates
from regard.explorer.share import Answers, class_application, network_address, notice

HOST = "10.0.0.1:8766"
WATCHDOG = 120  # seconds that no passing test comes near
HEAD = {"run": 0, "layer": 0, "head": 0}
TILE = {**HEAD, "row0": 0, "row1": 5, "col0": 0, "col1": 5, "bin_size": 1}
WRONG = "AAAAAA"


class Asking:
    """As much of a request as its answer needs; the client may have left."""

    def __init__(self, client, *, left=False):
        self.client, self.left = Address(client, 1), left

    async def is_disconnected(self):
        return self.left


class Door:
    """The application of a class, asked without a network, with a clock that stands still."""

    def __init__(self, exploration):
        self.now, self.runner = 1000.0, asyncio.Runner()
        exploration.classroom = self.classroom = Classroom(exploration, f"http://{HOST}/")
        self.code = self.classroom.code
        self.app = class_application(self.classroom, HOST, now=lambda: self.now)

    async def request(self, path, method="GET", body=b"", client="10.0.0.7", sent=None, **headers):
        sent = [] if sent is None else sent
        left = [{"type": "http.request", "body": body, "more_body": False}]
        headers = {"host": HOST, **headers}

        async def receive():
            return left.pop() if left else await asyncio.Event().wait()

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http", "method": method, "path": path, "query_string": b"", "root_path": "",
            "client": (client, 1), "headers": [(k.encode(), v.encode("latin-1")) for k, v in headers.items()],
        }  # fmt: skip
        await self.app(scope, receive, send)
        return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}, sent[1]["body"]

    def ask(self, path, *args, **options):
        return self.runner.run(self.request(path, *args, **options))

    def status(self, path, **options):
        return self.ask(path, **options)[0]

    def api(self, name, params=None, *, body=None, **options):
        body = json.dumps(params or {}).encode() if body is None else body
        status, _, content = self.ask(f"/{self.code}/api/{name}", "POST", body, **options)
        return status, content

    def error(self, name, params):
        status, content = self.api(name, params)
        assert status == 400
        return json.loads(content)["error"]


@pytest.fixture(scope="module")
def exploration(bert):
    """Return an exploration; tests run texts in it, each of which is of its own."""
    return explored(bert, "the cat sat", "the cat on")


@pytest.fixture
def door(exploration):
    door = Door(exploration)
    with door.runner:
        yield door


@pytest.fixture
def decoder(causal):
    door = Door(explored(causal, "a b c"))
    with door.runner:
        yield door


def test_a_code_can_be_read_aloud_and_typed():
    codes = {new_code() for _ in range(200)}
    assert len(codes) == 200
    assert not set("".join(codes)) & set("0O1IL2Z5S8B")
    code = codes.pop()
    assert code_of(code.lower()) == code
    assert [code_of(text) for text in ("", "AAAAA", "AAAAAAA", "AAAAA0", "ÄAAAAA", "AAAAA/", "ßßß")] == [None] * 7


def test_the_door_asks_for_the_code_and_the_right_one_opens_the_page(door):
    status, headers, content = door.ask("/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    names = re.findall(rb'(?:src|href)="([^"]*static[^"]*)"', content)
    assert names == [b"/static/enter.css", b"/static/enter.js"]
    assert all(door.status(name.decode()) == 200 for name in names)
    assert (content.count(b"<main"), content.count(b"<template"), content.count(b'id="regard"')) == (1, 0, 0)
    status, _, page = door.ask(f"/{door.code.lower()}/")
    assert status == 200
    for name in re.findall(rb'(?:src|href)="(static/[^"]+)"', page):
        assert door.status(f"/{door.code}/{name.decode()}") == 200
    assert json.loads(door.api("manifest")[1])["runs"][0]["text"] == "the cat sat"


@pytest.mark.parametrize("path", ["/AAAAAA/", "/AAAAAA/static/style.css", "/x/", "/x", "/favicon.ico", "/../", "//",
                                  "/é/", "/static/index.html", "/static/main.js", "/static/"])  # fmt: skip
def test_without_the_code_there_is_the_door_alone(door, path):
    status, headers, content = door.ask(path)
    assert status == 404
    assert (content, headers["connection"], "location" in headers) == (door.ask("/")[2], "close", False)
    assert door.status("/AAAAAA/api/manifest", method="POST") == 404


def test_only_the_files_of_the_page_are_served(door):
    for name in ("server.py", "../share.py", "..%2fshare.py", "app/app.js", "queries.d.ts", "index.html", "enter.js"):
        assert door.status(f"/{door.code}/static/{name}") == 404


@pytest.mark.parametrize(("path", "method"), [("/", "GET"), ("/AAAAAA/", "GET"), ("/x", "PUT"), ("/CODE/", "GET"),
                                              ("/CODE/api/none", "POST"), ("/CODE/", "DELETE")])  # fmt: skip
def test_every_answer_has_the_policy_of_the_teacher_s_page(door, path, method):
    _, headers, _ = door.ask(path.replace("CODE", door.code), method)
    policy = headers["content-security-policy"]
    for part in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "form-action 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    assert [headers[name] for name in ("x-content-type-options", "referrer-policy", "cache-control")] == [
        "nosniff",
        "no-referrer",
        "no-store",
    ]
    assert "access-control-allow-origin" not in headers
    assert "set-cookie" not in headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8766", "10.0.0.1", "10.0.0.1:80", "localhost:8766", ""])
def test_another_host_gets_nothing(door, host):
    for path, method in (("/", "GET"), (f"/{door.code}/", "GET"), ("/x", "GET"), ("/", "PUT")):
        assert door.ask(path, method, host=host)[0] == 421
    assert door.api("manifest", host=host)[0] == 421


def test_another_origin_gets_nothing(door):
    for origin in ("http://evil.example", "null", f"https://{HOST}"):
        assert door.api("manifest", origin=origin)[0] == 403
    assert door.api("manifest", origin=f"http://{HOST}")[0] == 200


def test_wrong_codes_are_slow_for_a_client_and_cost_others_nothing(door):
    assert [door.status(f"/{WRONG}/") for _ in range(7)] == [404] * 5 + [429] * 2
    status, headers, _ = door.ask(f"/{door.code}/")
    assert (status, headers["retry-after"]) == (429, "11")
    assert door.status("/not a code/") == 404  # which cannot be right, and costs nothing
    assert door.status(f"/{door.code}/", client="10.0.0.8") == 200
    door.now += 10.1
    assert [door.status(f"/{WRONG}/") for _ in range(2)] == [404, 429]
    door.now += 10.1
    assert door.status(f"/{door.code}/") == 200
    assert [door.status(f"/{WRONG}/") for _ in range(9)] == [404] * 9  # who is in knows the code
    assert door.status(f"/{door.code}/") == 200


def test_wrong_codes_of_many_clients_are_slow_in_all_and_who_is_in_stays_in(door):
    assert door.status(f"/{door.code}/", client="in") == 200
    tried = [door.status(f"/{WRONG}/", client=f"10.0.1.{n}") for n in range(70)]
    assert tried == [404] * 60 + [429] * 10
    assert door.status(f"/{door.code}/", client="in") == 200
    assert door.status(f"/{door.code}/", client="new") == 429
    door.now += 1.1
    assert door.status(f"/{door.code}/", client="new") == 200
    for _ in range(20):
        door.status(f"/{WRONG}/", client="in")
    assert door.status(f"/{door.code}/", client="newer") == 200


def test_requests_wait_for_their_turn_and_are_refused_when_they_would_wait_long(door, monkeypatch):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(share.anyio, "sleep", sleep)
    statuses = [door.status("/") for _ in range(145)]
    assert statuses == [200] * 140 + [429] * 5
    assert len(waits) == 80
    assert waits == sorted(waits)
    assert 0 < waits[0] < waits[-1] <= 2
    assert door.status("/", client="10.0.0.8") == 200
    door.now += 0.2
    assert door.status("/") == 200


def test_what_is_known_of_clients_is_bounded(door, monkeypatch):
    rates = Rates(1, 2, max_keys=3, now=lambda: 0.0)
    for key in "abcda":
        rates.take(key)
    assert len(rates) == 3
    assert rates.delay("a") == 0  # it was forgotten, and has taken one since
    rates.take("a")
    assert rates.delay("a") == 1
    monkeypatch.setattr(share, "MAX_CLIENTS", 2)
    for client in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        assert door.status(f"/{door.code}/", client=client) == 200
    for _ in range(6):
        door.status(f"/{WRONG}/", client="10.0.0.1")
    assert door.status(f"/{door.code}/", client="10.0.0.1") == 429  # it has to enter again


@pytest.mark.parametrize("name", sorted(set(QUERIES) - set(LOOKS) - {"manifest", "progress", "follow"}))
def test_a_pupil_s_page_asks_for_nothing_else(door, exploration, monkeypatch, name):
    monkeypatch.setattr(exploration, name, None)  # it is not called, whatever the parameters are
    for params in ({}, {"run": 0}, {"text": "a b", "address": "v=head", "heads": [[0, 0]]}):
        assert "only looks" in door.error(name, params)


@pytest.mark.parametrize("name", ["__init__", "describe", "classroom", "_runs", "publish%20", "", "none"])
def test_what_is_not_a_query_is_not_found(door, name):
    assert door.api(name, {"run": 0})[0] in (400, 404)


def test_the_manifest_of_a_pupil_names_no_code_and_offers_only_what_works(door, exploration):
    status, content = door.api("manifest")
    manifest = json.loads(content)
    assert status == 200
    assert door.code not in content.decode()
    assert manifest["classroom"] == {"role": "pupil", "address": "", "code": "", "qr": []}
    assert manifest["can"] == {"ablate": False, "tiles": True, "figures": False}
    assert [manifest[name] for name in ("live_models", "pairs", "attribution_methods")] == [[], [], []]
    assert not any(metric.get("live") for metric in manifest["metrics"])
    teacher = exploration.manifest()["classroom"]
    assert (teacher["role"], teacher["code"], teacher["address"]) == ("teacher", door.code, f"http://{HOST}/")


def test_a_pupil_reads_no_folder_of_the_teacher(decoder, door, exploration):
    for room, name in ((decoder, "plain"), (door, "tiny")):
        manifest = room.api("manifest")[1]
        assert json.loads(manifest)["runs"][0]["model"] == name
        folder = str(room.classroom._exploration.run(0).trace.model)
        assert folder.encode() not in manifest
    assert door.error("lens", {"run": 0}).startswith("tiny is not a decoder")
    exploration.publish("v=head", run=exploration.run_text("the cat on")["run"])
    assert json.loads(door.api("follow", {"known": 0})[1])["run"]["metadata"]["model"] == "tiny"


def test_answers_are_those_of_the_exploration(door, exploration):
    for name, params in (
        ("heads", {"run": 1}),
        ("movement", {"runs": [0, 1]}),
        ("differences", {"runs": [0, 1]}),
        ("cell", {**HEAD, "i": 3, "j": 1}),
    ):
        assert json.loads(door.api(name, params)[1]) == json.loads(json.dumps(getattr(exploration, name)(**params)))
    assert door.api("thumbnails", {"run": 0})[1] == exploration.thumbnails(0)
    np.testing.assert_array_equal(np.frombuffer(door.api("tile", TILE)[1], "<f4"), exploration.tile(**TILE).ravel())
    assert json.loads(door.api("progress")[1]) == {}


def test_pupils_that_ask_the_same_wait_for_one_computation(door, exploration, monkeypatch):
    computed, tile = [], exploration.tile
    monkeypatch.setattr(exploration, "tile", lambda **params: (computed.append(params), tile(**params))[1])

    async def all_at_once():
        body = json.dumps(TILE).encode()
        path = f"/{door.code}/api/tile"
        return await asyncio.gather(*(door.request(path, "POST", body, client=f"10.0.0.{n}") for n in range(30)))

    answers = door.runner.run(all_at_once())
    assert len({content for _, _, content in answers}) == 1
    assert len(computed) == 1
    door.api("tile", dict(reversed(TILE.items())))  # the same question
    assert len(computed) == 1


def test_what_is_kept_is_bounded(door):
    answers = Answers(door.classroom, limit=4_000)

    async def rows():
        for i in range(5):
            for layer in range(2):
                await answers.get(Asking("10.0.0.7"), "row", {**HEAD, "layer": layer, "i": i})
        return answers.nbytes

    assert 2_000 < door.runner.run(rows()) <= 4_000


def test_a_class_that_asks_without_end_leaves_as_many_entries_as_one_that_asks_for_a_while(door, exploration):
    answers = Answers(door.classroom, limit=40_000)

    async def ask(clients):
        for client in clients:
            for i in range(7):  # of 5 tokens
                for layer in range(2):
                    for mode in ("raw", "rollout"):
                        at = {**HEAD, "layer": layer, "mode": mode, "i": i}
                        questions = [("row", at), ("column", {**HEAD, "layer": layer, "mode": mode, "j": i})]
                        for name, params in questions + [("cell", {**at, "j": j}) for j in range(7)]:
                            with suppress(RegardError):
                                await answers.get(Asking(f"10.0.{client}.7"), name, params)
        locks = exploration.cache._key_locks.keys()
        assert locks == exploration.cache._arrays.keys()
        return len(answers._kept), len(answers._coming), len(answers._turns), len(answers._waiting), len(locks)

    first = door.runner.run(ask(range(2)))
    assert first[1:4] == (0, 0, 0)
    assert 2 < first[0] < 80
    assert door.runner.run(ask(range(2, 5))) == first


def test_a_client_computes_one_at_a_time_and_nothing_that_it_left(door, exploration, monkeypatch):
    begun, computing, most = [], [], []

    def row(**params):
        begun.append(params["i"])
        computing.append(1)
        most.append(len(computing))
        computing.pop()
        return np.zeros(5, np.float32)

    monkeypatch.setattr(exploration, "row", row)
    answers = Answers(door.classroom)

    async def ask():
        asking = [answers.get(Asking("a", left=i >= 3), "row", {**HEAD, "i": i}) for i in range(40)]
        return await asyncio.gather(*asking, return_exceptions=True)

    results = door.runner.run(ask())
    assert [type(result) for result in results] == [tuple] * 3 + [ClientDisconnect] * 29 + [RegardError] * 8
    assert (begun, max(most)) == ([0, 1, 2], 1)
    assert not answers._turns
    assert not answers._waiting


def test_a_fault_of_our_own_tells_a_pupil_nothing(door, exploration, monkeypatch):
    monkeypatch.setattr(exploration, "tile", lambda **_: 1 / 0)
    sent = []
    with pytest.raises(ZeroDivisionError):  # the server logs it
        door.api("tile", TILE, sent=sent)
    assert (sent[0]["status"], json.loads(sent[1]["body"])) == (500, {"error": "internal error of regard"})


def test_a_fault_of_a_computation_is_told_to_all_and_tried_again(door, exploration, monkeypatch):
    async def both():
        body = json.dumps(TILE).encode()
        path = f"/{door.code}/api/tile"
        return await asyncio.gather(*(door.request(path, "POST", body, client=f"10.0.0.{n}") for n in range(2)))

    monkeypatch.setattr(exploration, "tile", lambda **_: (_ for _ in ()).throw(MemoryError))
    assert [status for status, _, _ in door.runner.run(both())] == [400, 400]
    monkeypatch.undo()
    assert door.api("tile", TILE)[0] == 200


def test_runs_of_ablations_and_of_what_the_teacher_did_not_show_are_not_seen(door, exploration):
    edited = exploration.ablate([(0, 1)])["run"]
    live = exploration.run_text("the dog")["run"]
    for run in (edited, live, 99, -1):
        assert f"sees no run {run}" in door.error("thumbnails", {"run": run})
    exploration.publish("v=head&text=x", run=live)
    assert door.api("thumbnails", {"run": live})[0] == 200
    assert "sees no run" in door.error("differences", {"runs": [live, edited]})


def test_a_text_that_left_the_memory_is_not_run_again_for_a_pupil(door, exploration):
    live = exploration.run_text("the dog sat")["run"]
    exploration.publish("v=head", run=live)
    for n in range(8):
        exploration.run_text(f"the dog sat on {'a' * n}")
    assert not exploration.store.holds(live)
    assert "sees no run" in door.error("thumbnails", {"run": live})
    assert not exploration.store.holds(live)


def test_pupils_follow_what_the_teacher_publishes(door, exploration):
    first = json.loads(door.api("follow", {"known": 0})[1])
    assert (first["address"], first["run"]) == ("", None)
    assert json.loads(door.api("follow", {"known": first["version"]})[1]) is None
    exploration.publish("v=cell&l=1&h=0&i=2&j=1")
    shown = json.loads(door.api("follow", {"known": first["version"]})[1])
    assert (shown["version"], shown["address"]) == (first["version"] + 1, "v=cell&l=1&h=0&i=2&j=1")
    live = exploration.run_text("the dog sat")["run"]
    exploration.publish("v=head", run=live)
    run = json.loads(door.api("follow", {"known": 0})[1])["run"]
    assert (run["number"], run["metadata"]["text"]) == (live, "the dog sat")
    exploration.publish("v=heads", run=1)  # a given one needs no description
    assert json.loads(door.api("follow", {"known": 0})[1])["run"] is None
    for params in ({"known": "1"}, {}, {"known": 1, "address": "x"}):
        assert door.error("follow", params)


@pytest.mark.parametrize(("params", "message"), [
    ({"address": "x" * 16_385}, "at most 16,384 characters"),
    ({"address": "", "run": 99}, "there is no run 99"),
])  # fmt: skip
def test_what_cannot_be_published_is_said(door, exploration, params, message):
    with pytest.raises(RegardError, match=message):
        exploration.publish(**params)


def test_a_decoder_predicts_for_a_class_what_the_slider_can_choose(decoder):
    assert decoder.api("next_tokens", {"run": 0, "position": 1, "temperature": 0.7})[0] == 200
    assert decoder.api("lens", {"run": 0, "position": 1})[0] == 200
    assert "temperature" in decoder.error("next_tokens", {"run": 0, "temperature": 0.70001})
    assert "not seed" in decoder.error("next_tokens", {"run": 0, "seed": 1})
    assert "not token" in decoder.error("lens", {"run": 0, "token": 1})


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 4_000, b"x" * 5_000, b'{"run": 1e999}', b'{"run": true}',
                                  b"\xff", b'{"run": 0, "run": {"a": 1}}', b'{"runs": [0]}'])  # fmt: skip
def test_a_bad_request_is_a_sentence(door, body):
    status, content = door.api("thumbnails", body=body)
    assert status == 400
    assert json.loads(content)["error"]


@pytest.mark.parametrize(("name", "params"), [
    ("tile", {**TILE, "row1": 10**9}), ("tile", {**TILE, "bin_size": 0}), ("movement", {"runs": []}),
    ("movement", {"runs": [0, 0]}), ("movement", {"runs": [0, 1, 0]}), ("cell", {**HEAD, "i": 99, "j": 0}),
    ("row", {**HEAD, "i": 0, "mode": "../x"}), ("lens", {"run": 0}), ("next_tokens", {"run": 0}),
])  # fmt: skip
def test_what_there_is_not_is_a_sentence(door, name, params):
    assert door.error(name, params)


def test_what_has_other_runs_is_not_shared(exploration, monkeypatch):
    monkeypatch.setattr(exploration, "can_be_shared", False)  # as those of training runs and of maps on disk
    with pytest.raises(RegardError, match="leave it out for a training run"):
        Classroom(exploration, "http://x/")


@pytest.mark.parametrize(("found", "message"), [
    ("8.8.8.8", "8.8.8.8 is an address of the Internet"), (None, "--share finds no network"), ("192.168.1.5", None),
])  # fmt: skip
def test_the_address_in_the_network_is_found_and_not_one_of_the_internet(monkeypatch, found, message):
    class Probe(socket.socket):
        def connect(self, address):
            if found is None:
                raise OSError("Network is unreachable")

        def getsockname(self):
            return found, 1

    monkeypatch.setattr(share.socket, "socket", Probe)
    if message is None:
        assert network_address() == found
    else:
        with pytest.raises(RegardError, match=message):
            network_address()


def test_the_teacher_reads_where_the_class_goes_and_who_sees_what(door):
    text = notice(door.classroom)
    for part in (f"http://{HOST}/", door.code, "Everybody in this network who has the code", "not encrypted"):
        assert part in text
    assert "█" not in text
    rows = door.classroom.page()["qr"]
    drawn = re.findall("\x1b\\[38;5;16;48;5;231m([ ▀▄█]+)\x1b\\[0m", notice(door.classroom, in_terminal=True))
    halves = [("".join("01"[block in "▀█"] for block in line), "".join("01"[block in "▄█"] for block in line))
              for line in drawn]  # fmt: skip
    seen = [half for pair in halves for half in pair]
    assert [row[4:-4] for row in seen[4 : 4 + len(rows)]] == rows
    assert {len(row) for row in seen} == {len(rows) + 8}
    assert [rows[0][:7], rows[0][-7:], rows[-1][:7]] == ["1111111"] * 3


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_both_pages_are_served_and_end_together(tmp_path):
    argv = ["-m", "regard", "explore", "a b a", *"--toy --port 0 --share --address 127.0.0.1 --no-browser".split()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, *argv], **pipes, cwd=tmp_path, start_new_session=True) as process:
        try:
            lines = []
            while not lines or lines[-1] != "Ctrl-C ends it":
                lines.append(process.stdout.readline().strip())
            told = "\n".join(lines)
            port, code = re.search(r"127\.0\.0\.1:(\d+)/\ncode (\w+)", told).groups()
            own, token = re.search(r"127\.0\.0\.1:(\d+)/([\w-]{32})/", told).groups()

            def status(port, path):
                with closing(http.client.HTTPConnection("127.0.0.1", int(port), timeout=WATCHDOG)) as connection:
                    connection.request("POST", path, "{}")
                    return connection.getresponse().status

            asked = [status(port, f"/{code}/api/manifest"), status(own, f"/{token}/api/manifest"),
                     status(port, f"/{token}/api/manifest"), status(own, f"/{code}/api/manifest")]  # fmt: skip
            assert asked == [200, 200, 404, 404]
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=WATCHDOG)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "", "")
