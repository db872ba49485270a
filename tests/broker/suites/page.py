"""Generator of tests/broker/suites/README.md from the lists of expected outcomes."""

from __future__ import annotations

from itertools import groupby

from tests.broker.suites import expectations
from tests.broker.suites.expectations import FAILED, PASSED, SKIPPED
from tests.broker.suites.sources import ROOT, SUITES

PATH = ROOT / "tests" / "broker" / "suites" / "README.md"

_HEAD = """# Suites of Kafka clients

`make test-suites` runs the integration tests of three clients, unchanged, against the broker. It fails when a test does
something other than the lists in `tests/broker/suites/expected` say. This page is made from them and names the tests
that do not pass, and why. `make test-suites SUITES=kafka-python` runs one suite;
`.venv/bin/python -m tests.broker.suites.run --update` writes lists and page again.
"""


def text() -> str:
    """The whole page."""
    parts = [_HEAD, _table()]
    for name, suite in SUITES.items():
        expected = expectations.load(name)
        parts.append(f"## {name} {suite.version}\n")
        for outcome, title in ((FAILED, "Do not pass"), (SKIPPED, "Not run")):
            tests = [(test, reason) for test, (found, reason) in expected.tests.items() if found == outcome]
            if not tests:
                continue
            parts.append(f"{title}:\n")
            for reason in dict.fromkeys(reason for _, reason in tests if reason is not None):
                parts.append(f"{expected.reasons[reason]}\n")
                parts.append(_listed([test for test, why in tests if why == reason]))
    return "\n".join(parts)


def _table() -> str:
    rows = ["| suite | tests | pass | do not | not run |", "|---|---|---|---|---|"]
    for name, suite in SUITES.items():
        counts = expectations.load(name).counts()
        numbers = " | ".join(str(count) for count in (counts.total(), counts[PASSED], counts[FAILED], counts[SKIPPED]))
        rows.append(f"| {name} {suite.version} | {numbers} |")
    return "\n".join(rows) + "\n"


def _listed(tests: list[str]) -> str:
    """One line a file, with its tests."""
    lines = []
    for file, group in groupby(sorted(tests), key=lambda test: test.partition("::")[0]):
        names = ", ".join(f"`{test.partition('::')[2]}`" for test in group)
        lines.append(f"- `{file}`: {names}")
    return "\n".join(lines) + "\n"
