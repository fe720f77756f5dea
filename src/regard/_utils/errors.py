"""The one exception of regard."""


class RegardError(Exception):
    """An error the caller can fix.

    The message says what is wrong, with the shapes or values, and what to do. The command line prints it on one line
    and exits with status 2; with ``--verbose`` it prints the notes (`add_note`) too.
    """
