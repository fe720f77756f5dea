"""Some thousands of damaged files; ``python tests/fuzz/fuzz_formats.py --cases 200000`` asks for more."""

from pathlib import Path

import pytest

from regard.formats import tensor_file
from sweeps import sweep_after

pytest.importorskip("resource", reason="Windows has no limits on resources")
import fuzz_formats

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is bounded as Linux does it")


@pytest.mark.parametrize("first", sweep_after(1, range(0, 2000, 250)))
def test_damaged_files_are_refused_or_read(first):
    assert fuzz_formats.supervised(250, seed=20170613, first=first) == []


def test_a_case_that_ends_the_process_is_one_failure(tmp_path, monkeypatch):
    """Cases after it go on."""
    script = (
        Path(fuzz_formats.__file__)
        .read_text()
        .replace(
            "    try:\n        with warnings",
            "    if float(rng.random()) < 0.1:\n        os.abort()\n    try:\n        with warnings",
        )
    )
    copy = tmp_path / "fuzz" / "fuzz_formats.py"
    copy.parent.mkdir()
    copy.write_text(
        script.replace("Path(__file__).parent.parent", repr(str(Path(fuzz_formats.__file__).parent.parent)))
    )
    monkeypatch.setattr(fuzz_formats, "__file__", str(copy))
    failures = fuzz_formats.supervised(20, seed=1)
    assert 0 < len(failures) < 10
    assert all("the process ended with -6" in failure for failure in failures)


def test_what_is_no_error_of_ours_is_found(monkeypatch):
    """The oracle itself can fail: what is refused with another error is seen."""
    monkeypatch.setattr(tensor_file, "RegardError", KeyError)
    failures = fuzz_formats.run(100, seed=1)
    assert len(failures) > 10
    assert all("KeyError" in failure for failure in failures)
