"""A plain terminal, a function that runs a command, and small models to give it."""

import signal

import pytest

from regard.cli import main


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch):
    """A wide terminal without colour."""
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def run(capsys):
    """Return a function that runs a command and returns its status, output and errors."""

    def run(*argv):
        status = main(list(argv))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def tiny(write_bert):
    return str(write_bert())


@pytest.fixture
def interruptible():
    """Give signals their usual effect here and in processes started from here, whatever these tests inherited."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
