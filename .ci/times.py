"""Say where the time of the last runs went, from the reports in ``.nox/times``: sessions, files, slowest tests.

python .ci/times.py            print
python .ci/times.py --write    also put the seconds of each session into the table of CONTRIBUTING.md
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / ".nox" / "times"
PAGE = ROOT / "CONTRIBUTING.md"
FILES, TESTS = 20, 30  # how many of the slowest are listed


def tests() -> dict[tuple[str, str, str], float]:
    """Return the seconds of each test: session, file and name."""
    seconds: dict[tuple[str, str, str], float] = defaultdict(float)
    for report in sorted(REPORTS.glob("*.xml")):
        for case in ElementTree.parse(report).iter("testcase"):
            place = case.get("classname", "").replace(".", "/")
            seconds[report.stem, place, case.get("name", "")] += float(case.get("time", 0))
    return seconds


def seconds_of(ring: str) -> dict[str, float]:
    """Return the seconds of the sessions that ran in the guard, or by name."""
    path = REPORTS / f"{ring}.json"
    found: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def table(title: str, seconds: dict[str, float], count: int) -> str:
    """Return the rows that took longest, each with its share of all."""
    rows, total = sorted(seconds.items(), key=lambda item: -item[1])[:count], sum(seconds.values())
    lines = [f"{each:8.1f} s {each / total:6.1%}  {name}" for name, each in rows]
    return "\n".join([title, *lines, ""])


def with_times(page: str, sessions: dict[str, float]) -> str:
    """Return a page whose rows of sessions end with their seconds; what did not run stays as it is."""

    def row(match: re.Match[str]) -> str:
        names = re.findall(r"`(\w+)`", match["names"])
        known = [sessions[name] for name in names if name in sessions]
        return f"{match['row']}| {round(sum(known)):,} s |" if len(known) == len(names) else match[0]

    return re.sub(r"^(?P<row>\| (?P<names>`\w+`(?:, `\w+`)*) \|.*)\| (?:[\d,]+ s )?\|$", row, page, flags=re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the seconds of sessions into CONTRIBUTING.md")
    arguments = parser.parse_args()
    for name, title in (("sessions", "Sessions, from start to end"), ("guard", "Sessions of the guard")):
        if sessions := seconds_of(name):
            print(table(title, sessions, len(sessions)))
    files: dict[str, float] = defaultdict(float)
    each_test: dict[str, float] = {}
    for (session, file, name), seconds in tests().items():
        files[f"{session}: {file}"] += seconds
        each_test[f"{session}: {file}::{name}"] = seconds
    print(table("Files, the sum of their tests", files, FILES))
    print(table("Tests", each_test, TESTS))
    if arguments.write:
        PAGE.write_text(with_times(PAGE.read_text(encoding="utf-8"), seconds_of("guard")), encoding="utf-8")


if __name__ == "__main__":
    main()
