"""Expected outcomes of the tests of a suite, and the differences from the actual ones.

One file a suite, expected/<suite>.toml: a table `reasons` (a name and a sentence), and a table `tests` with "passed",
"failed: <reason>" or "skipped: <reason>" for each test.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

EXPECTED = Path(__file__).parent / "expected"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class BadExpectations(ValueError):
    """The file contradicts itself."""


@dataclass(frozen=True)
class Expectations:
    """`tests`: a test's name to its outcome and, unless it passes, the name of a reason."""

    reasons: Mapping[str, str]
    tests: Mapping[str, tuple[str, str | None]]

    def counts(self) -> Counter[str]:
        """How many tests have each outcome."""
        return Counter(outcome for outcome, _ in self.tests.values())


def load(suite: str) -> Expectations:
    """Load the expectations of a suite. Raises BadExpectations."""
    path = EXPECTED / f"{suite}.toml"
    if not path.exists():
        return Expectations({}, {})
    return parse(path.read_text(encoding="utf-8"), path.name)


def parse(text: str, file: str) -> Expectations:
    """The file's text. Raises BadExpectations for unknown outcomes, missing reasons, and reasons that nobody gives."""
    table = tomllib.loads(text)
    reasons: dict[str, str] = table["reasons"]
    tests: dict[str, tuple[str, str | None]] = {}
    for test, told in table["tests"].items():
        outcome, _, reason = told.partition(": ")
        if outcome not in (PASSED, FAILED, SKIPPED):
            raise BadExpectations(f"{file}: {test}: unknown outcome {outcome!r}")
        if (outcome == PASSED) != (reason == "") or (reason and reason not in reasons):
            raise BadExpectations(f"{file}: {test}: {told!r} needs one of the reasons {sorted(reasons)}, or passes")
        tests[test] = (outcome, reason or None)
    unused = set(reasons) - {reason for _, reason in tests.values()}
    if unused:
        raise BadExpectations(f"{file}: no test has the reasons {sorted(unused)}")
    return Expectations(reasons, tests)


def differences(expected: Expectations, outcomes: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a line for each test whose outcome differs from the list, that is not in the list, or that was not run.

    outcomes: each test's name and its `outcome` and `why` (the last line of its output).
    """
    lines = []
    for test, ran in outcomes.items():
        wanted = expected.tests.get(test)
        if wanted is None:
            lines.append(f"{test}: not in the list, {ran['outcome']}: {ran['why']}")
        elif ran["outcome"] != wanted[0]:
            lines.append(f"{test}: expected {wanted[0]}, {ran['outcome']}: {ran['why']}")
    lines += [f"{test}: in the list, but not run" for test in expected.tests if test not in outcomes]
    return lines


def dump(expected: Expectations, outcomes: Mapping[str, Mapping[str, str]], *, keep: bool = False) -> str:
    """Return the file's text for these outcomes.

    Reasons that still apply are kept; TODO marks missing ones. keep: also keep the expectations of tests that were not
    run.
    """
    tests = {}
    if keep:
        tests = {
            test: outcome if reason is None else f"{outcome}: {reason}"
            for test, (outcome, reason) in expected.tests.items()
        }
    for test, ran in outcomes.items():
        outcome, reason = expected.tests.get(test, (None, None))
        kept = reason if outcome == ran["outcome"] else "TODO"
        tests[test] = ran["outcome"] if ran["outcome"] == PASSED else f"{ran['outcome']}: {kept}"
    used = {told.partition(": ")[2] for told in tests.values()}
    lines = ["[reasons]"]
    lines += [f"{name} = {_quoted(text)}" for name, text in expected.reasons.items() if name in used]
    lines += ["", "[tests]", *(f"{_quoted(test)} = {_quoted(told)}" for test, told in tests.items())]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a TOML basic string
