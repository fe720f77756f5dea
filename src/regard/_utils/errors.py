"""The one exception of regard."""


class RegardError(Exception):
    """An error the caller can fix.

    The message says what is wrong, with the shapes or values, and what to do. The command line prints it on one line
    and exits with status 2; with ``--verbose`` it prints the notes (`add_note`) too.
    """


class TorchError(RegardError, RuntimeError):
    """An error of a drop-in for PyTorch, whose own errors of arguments are RuntimeErrors."""


class JaxError(RegardError, ValueError):
    """An error of a drop-in for JAX, whose own errors of arguments are ValueErrors."""
