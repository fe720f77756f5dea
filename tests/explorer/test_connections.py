"""Connections that send nothing, too slowly, or are too many, with a clock that stands still."""

import errno
import logging
import select
import socket

import h11
import pytest
import uvicorn
from uvicorn.server import ServerState

from regard.explorer.connections import (
    MAX_CONNECTIONS,
    REQUEST_SECONDS,
    BoundedProtocol,
    ClassProtocol,
    log_once,
)
from regard.explorer.server import listen


class Timer:
    def __init__(self, at, call):
        self.at, self.call, self.cancelled = at, call, False

    def when(self):
        return self.at

    def cancel(self):
        self.cancelled = True


class Loop:
    """A loop whose timers are called by hand."""

    def __init__(self):
        self.timers, self.tasks, self.reported = [], [], []

    def call_later(self, seconds, call, *arguments):
        self.timers.append(Timer(len(self.timers) + seconds, lambda: call(*arguments)))
        return self.timers[-1]

    def create_task(self, task, **_):
        task.close()
        self.tasks.append(task)
        return self

    def add_done_callback(self, _):
        pass

    def default_exception_handler(self, context):
        self.reported.append(context)


class Transport:
    def __init__(self, client=None):
        self.aborted, self.closing, self.client, self.queued = False, False, client, 0

    def get_extra_info(self, name):
        return (self.client, 1) if name == "peername" and self.client else None

    def abort(self):
        self.aborted = True

    def close(self):
        self.closing = True

    def is_closing(self):
        return self.aborted or self.closing

    def pause_reading(self):
        pass

    def get_write_buffer_size(self):
        return self.queued

    def write(self, data):
        pass


@pytest.fixture
def connect():
    """Return a function that opens a connection, all of them to one server."""
    state, loop = ServerState(), Loop()
    config = uvicorn.Config(lambda: None, http=BoundedProtocol, ws="none", lifespan="off", log_config=None)

    def open_one(kind=BoundedProtocol, client=None):
        protocol = kind(config, state, {}, _loop=loop)
        protocol.connection_made(Transport(client))
        return protocol

    open_one.loop, open_one.state = loop, state
    return open_one


def test_a_connection_without_a_complete_request_is_closed(connect):
    protocol = connect()
    (timer,) = connect.loop.timers
    assert timer.at == REQUEST_SECONDS
    for part in (b"GET / HT", b"TP/1.1\r\n", b"Host: x\r\n"):  # which does not give it more time
        protocol.data_received(part)
    assert connect.loop.timers == [timer]
    timer.call()
    assert protocol.transport.aborted
    assert not connect.state.connections


def test_a_body_must_be_complete_too(connect):
    protocol = connect()
    protocol.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n12345")
    assert not connect.loop.timers[0].cancelled
    protocol.data_received(b"6789")
    assert connect.loop.timers[0].cancelled


def test_a_complete_request_may_take_any_time_and_the_next_has_its_own(connect):
    protocol = connect()
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert connect.loop.timers[0].cancelled
    assert len(connect.loop.timers) == 1
    protocol.conn.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
    protocol.conn.send(h11.EndOfMessage())
    protocol.on_response_complete()
    assert any(not timer.cancelled and timer.at >= REQUEST_SECONDS for timer in connect.loop.timers[1:])


@pytest.mark.parametrize("kind", [BoundedProtocol, ClassProtocol])
@pytest.mark.parametrize("keep", [True, False])
def test_an_answer_may_be_taken_slowly_and_must_be_taken(connect, kind, keep):
    protocol = connect(kind, "10.0.0.7")
    ending = "" if keep else "Connection: close\r\n"
    protocol.data_received(f"GET / HTTP/1.1\r\nHost: x\r\n{ending}\r\n".encode())
    protocol.conn.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
    protocol.conn.send(h11.EndOfMessage())
    protocol.transport.queued = 3_000_000
    if not keep:
        protocol.transport.close()  # when the answer has been sent, as uvicorn does
    protocol.on_response_complete()
    for protocol.transport.queued in (2_000_000, 1_999_999, 1):
        connect.loop.timers[-1].call()
        assert not protocol.transport.aborted
    connect.loop.timers[-1].call()
    assert protocol.transport.aborted
    assert not connect.state.connections


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ],
)
def test_the_last_request_of_a_connection_may_take_any_time(connect, request_):
    connect().data_received(request_)
    assert connect.loop.timers[0].cancelled


def test_of_too_many_the_one_that_waits_longest_is_closed(connect):
    first, second, *_ = [connect() for _ in range(MAX_CONNECTIONS)]
    first.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")  # in work
    connect()
    assert (first.transport.aborted, second.transport.aborted) == (False, True)
    assert len(connect.state.connections) == MAX_CONNECTIONS


def test_of_too_many_in_work_the_new_one_is_closed(connect):
    working = [connect() for _ in range(MAX_CONNECTIONS)]
    for protocol in working:
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    transport = Transport()
    protocol = BoundedProtocol(working[0].config, connect.state, {}, _loop=connect.loop)
    protocol.connection_made(transport)
    protocol.connection_lost(None)
    assert transport.aborted
    assert not any(each.transport.aborted for each in working)


def test_a_pupil_has_few_connections_and_takes_none_of_others(connect):
    other = connect(ClassProtocol, "10.0.0.8")
    first, second, *_ = [connect(ClassProtocol, "10.0.0.7") for _ in range(12)]
    first.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")  # in work
    connect(ClassProtocol, "10.0.0.7")
    assert [each.transport.aborted for each in (other, first, second)] == [False, False, True]
    assert len(connect.state.connections) == 13


def test_of_a_class_too_there_are_so_many_connections_at_most(connect):
    first, *_ = [connect(ClassProtocol, f"10.0.0.{n // 12}") for n in range(192)]
    connect(ClassProtocol, "10.0.1.1")
    assert first.transport.aborted
    assert len(connect.state.connections) == 192


def test_a_pupil_takes_an_answer_in_time(connect):
    protocol = connect(ClassProtocol, "10.0.0.7")
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    waiting, answering = connect.loop.timers
    assert (waiting.cancelled, answering.cancelled) == (True, False)
    protocol.conn.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
    protocol.conn.send(h11.EndOfMessage())
    protocol.on_response_complete()
    assert answering.cancelled
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    connect.loop.timers[-1].call()
    assert protocol.transport.aborted
    assert not connect.state.connections


def test_a_pupil_that_takes_an_answer_slowly_gets_the_next_one_that_it_asked_for_ahead(connect):
    protocol = connect(ClassProtocol, "10.0.0.7")
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
    for protocol.transport.queued in (2_000_000, 1_999_999, 1):
        connect.loop.timers[-1].call()
        assert not protocol.transport.aborted
    connect.loop.timers[-1].call()
    assert protocol.transport.aborted


def test_that_an_answer_is_taken_is_seen_after_a_few_kilobytes():
    with listen(0) as listening, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
        client.connect(listening.getsockname())
        connection, _ = listening.accept()
        with connection:
            connection.setblocking(False)
            while select.select([], [connection], [], 0)[1]:
                connection.send(bytes(1 << 20))
            taken = 0
            while not select.select([], [connection], [], 0)[1]:
                taken += len(client.recv(4096))
    assert taken <= 1 << 16  # of answers of some megabytes


def test_that_no_file_can_be_opened_is_logged_once(caplog):
    loop, handle = Loop(), log_once()
    with caplog.at_level(logging.ERROR, "uvicorn.error"):
        for _ in range(1000):
            handle(loop, {"exception": OSError(errno.EMFILE, "Too many open files")})
    assert [record.message for record in caplog.records] == ["cannot accept a connection: Too many open files"]
    other = {"exception": OSError(errno.EPIPE, "other")}
    handle(loop, other)
    assert loop.reported == [other]
