"""A pytest plugin that writes the outcome of every test to the file KAFKALOG_OUTCOMES, as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

_outcomes: dict[str, dict[str, str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test passes when its call does; an error before or after it is a failure."""
    if report.outcome == "passed" and report.when != "call":
        return
    if _outcomes.get(report.nodeid, {}).get("outcome") == "failed":
        return
    _outcomes[report.nodeid] = {"outcome": report.outcome, "why": _why(report)}


def pytest_sessionfinish() -> None:
    Path(os.environ["KAFKALOG_OUTCOMES"]).write_text(json.dumps(_outcomes))


def _why(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):  # skipped: file, line, reason
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr or "")
    return " ".join(text.split())[:300]
