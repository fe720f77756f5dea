"""The one exception that regard raises for a caller's mistake."""


class RegardError(Exception):
    """A mistake that the caller can mend.

    The message says what was wrong, with the shapes or values at hand, and what to do about it. The
    command line prints it on one line and exits with status 2.
    """
