"""Sampled mutants: which small changes of the code no test notices, to be read.

``python tests/mutants.py`` draws some of the changes that cosmic-ray makes in these packages (another comparison, a
number plus 1, a condition negated, a loop without turns), makes one after the other in the copy of `faults`, and runs
the tests of the package. What survives is printed with its lines. Many a survivor changes nothing that a test could
see, such as the size of a cache; the others are tests to write. The exit status says nothing about them.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys

from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkResult

import faults

SESSIONS = faults.FOLDER / "mutants"
PACKAGES = {  # and the folders of their tests
    "functional": "tests/functional tests/properties",
    "trace": "tests/trace tests/dask/test_attention_map.py",  # which has maps on disk
    "metrics": "tests/metrics",
}
# Of the operators those whose mutants people could write. The others change types (X | None) or never compile.
OPERATORS = re.compile(
    r"core/(NumberReplacer|AddNot|ZeroIterationForLoop|ReplaceAndWithOr|ReplaceOrWithAnd"
    r"|ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceBreakWithContinue|ReplaceContinueWithBreak"
    r"|ReplaceUnaryOperator_Delete_(Not|USub)|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Mul)"
    r"|ReplaceComparisonOperator_(Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Eq_NotEq|NotEq_Eq))"
)
CONFIGURATION = """[cosmic-ray]
module-path = "src/regard/{package}"
timeout = 900.0
excluded-modules = []
test-command = "{python} -m pytest -x -q -n {jobs} -p no:cacheprovider {tests}"

[cosmic-ray.distributor]
name = "local"
"""


def main() -> None:
    """Draw mutants, run the tests with each, and print those that survive."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=60, metavar="N", help="mutants of all packages together (60)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which of them")
    parser.add_argument("--package", choices=PACKAGES, help="of one package alone")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes of pytest (2)")
    arguments = parser.parse_args()
    faults.use_copy()
    faults.copy_repository()
    SESSIONS.mkdir(parents=True, exist_ok=True)
    packages = [arguments.package] if arguments.package else list(PACKAGES)
    for package in packages:
        tests, session = PACKAGES[package], SESSIONS / f"{package}.sqlite"
        if found := faults.first_failure(tests.split(), arguments.jobs):
            sys.exit(f"without a mutant {found} fails, so that nothing could be told")
        configuration = session.with_suffix(".toml")
        fields = {"package": package, "python": sys.executable, "jobs": arguments.jobs, "tests": tests}
        configuration.write_text(CONFIGURATION.format(**fields), encoding="utf-8")
        session.unlink(missing_ok=True)
        run("init", str(configuration), str(session))
        drawn = draw(str(session), arguments.count // len(packages), arguments.seed)
        print(f"regard.{package}: {drawn}", flush=True)
        run("exec", str(configuration), str(session))
        print_survivors(str(session))


def run(*command: str) -> None:
    subprocess.run([sys.executable, "-m", "cosmic_ray.cli", *command], cwd=faults.TREE, check=True, env=os.environ)


def draw(session: str, count: int, seed: int) -> str:
    """Leave a sample of the mutants of a session to be run; return how many of how many."""
    with use_db(session) as database:
        items = database.work_items
        usable = [item for item in items if is_usable(item.mutations[0])]
        usable.sort(key=lambda item: (str((at := item.mutations[0]).module_path), at.operator_name, at.occurrence))
        drawn = {item.job_id for item in random.Random(seed).sample(usable, min(count, len(usable)))}
        others = [item.job_id for item in items if item.job_id not in drawn]
        database.set_multiple_results(others, WorkResult(worker_outcome=WorkerOutcome.SKIPPED))
    return f"{len(drawn)} of {len(usable):,} mutants"


def is_usable(mutation: MutationSpec) -> bool:
    """Tell whether a test could notice a mutant: not of ``strict=True``, which always holds, or of a bare ``*``."""
    row, column = mutation.start_pos
    line = (faults.TREE / mutation.module_path).read_text(encoding="utf-8").splitlines()[row - 1]
    is_sign = line[column:].startswith("*,")
    return bool(OPERATORS.fullmatch(mutation.operator_name)) and not (is_sign or line[:column].endswith("strict="))


def print_survivors(session: str) -> None:
    """Print the mutants that the tests did not notice, as differences."""
    with use_db(session) as database:
        results = [x for _, x in database.completed_work_items if x.worker_outcome != WorkerOutcome.SKIPPED]
    survivors = [result for result in results if result.test_outcome == TestOutcome.SURVIVED]
    for result in survivors:
        print(result.diff)
    print(f"{len(results) - len(survivors)} of {len(results)} were noticed", flush=True)


if __name__ == "__main__":
    main()
