"""What pytest shows while it runs: the file that runs, each failure at once, and how far it is."""

import sys

import pytest


class Progress:
    """In place of a dot for each test: on a terminal one line that changes, elsewhere a line for each file."""

    def __init__(self, config: pytest.Config) -> None:
        self._terminal = config.pluginmanager.get_plugin("terminalreporter")
        self._quiet = self._terminal is None or config.get_verbosity() != 0
        self._rewrites = sys.stdout.isatty()
        self._files: set[str] = set()
        self._done = self._total = 0
        if not self._quiet:
            config.option.console_output_style = "none"
            self._terminal._show_progress_info = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total = self._total or len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self._total = len(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        file = nodeid.partition("::")[0]
        if not self._quiet and (self._rewrites or file not in self._files):
            self._files.add(file)
            line = f"[{self._done / max(1, self._total):4.0%}] {file}"
            if self._rewrites:
                self._terminal.rewrite(line, erase=True)
            else:
                self._terminal.write_line(line)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._done += report.when == "teardown"
        if report.failed and not self._quiet:
            self._terminal.ensure_newline()
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = f" - {crash.message.splitlines()[0][:300]}" if crash and crash.message else ""
            self._terminal.write_line(f"FAILED {report.nodeid}{reason}", red=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if self._quiet or hasattr(report, "wasxfail") or (report.when != "call" and report.passed):
            return None
        return "error" if report.failed and report.when != "call" else report.outcome, "", report.outcome.upper()
