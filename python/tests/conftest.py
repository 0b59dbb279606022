# SPDX-License-Identifier: Apache-2.0
collect_ignore = ["torch_suite.py"]


def pytest_terminal_summary(terminalreporter, exitstatus):
    """The line by which `./run test` counts."""
    count = {kind: len(terminalreporter.stats.get(kind, [])) for kind in ("passed", "failed", "error", "skipped")}
    terminalreporter.line(
        f"cases: {count['passed']} passed, {count['failed'] + count['error']} failed, {count['skipped']} skipped"
    )
