"""Small files read whole."""

from __future__ import annotations

import pytest

from regard._utils.errors import RegardError
from regard.text.files import read_file


def test_a_file_larger_than_any_is_refused_unread(tmp_path):
    with (tmp_path / "a").open("wb") as stream:
        stream.truncate(1 << 40)  # a hole: it takes no place on the disk
    with pytest.raises(RegardError, match="it has 1099511627776 bytes, more than the limit of 134217728"):
        read_file(tmp_path / "a")
