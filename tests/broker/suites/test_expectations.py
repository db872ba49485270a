from __future__ import annotations

import pytest

from tests.broker.suites import expectations, page
from tests.broker.suites.expectations import BadExpectations, Expectations, differences, dump, parse
from tests.broker.suites.sources import SUITES

TEXT = """\
[reasons]
security = "There is no TLS."

[tests]
"a.py::one" = "passed"
"a.py::two[x\\u00e4]" = "failed: security"
"b.py::three" = "skipped: security"
"""


def ran(outcome: str, why: str = "because") -> dict[str, str]:
    return {"outcome": outcome, "why": why}


def test_list_has_the_expected_outcome_of_each_test() -> None:
    expected = parse(TEXT, "x.toml")
    assert expected.tests == {
        "a.py::one": ("passed", None),
        "a.py::two[xä]": ("failed", "security"),
        "b.py::three": ("skipped", "security"),
    }
    assert expected.counts() == {"passed": 1, "failed": 1, "skipped": 1}


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        ('"failed: security"', '"failed"', "needs one of the reasons"),
        ('"failed: security"', '"failed: TODO"', "needs one of the reasons"),
        ('"passed"', '"passed: security"', "or passes"),
        ('"passed"', '"xfailed"', "unknown outcome 'xfailed'"),
        ("[tests]", 'other = "Nobody says so."\n[tests]', "no test has the reasons \\['other'\\]"),
    ],
)
def test_contradictory_list_is_refused(was: str, becomes: str, told: str) -> None:
    with pytest.raises(BadExpectations, match=told):
        parse(TEXT.replace(was, becomes), "x.toml")


def test_every_difference_is_reported() -> None:
    expected = parse(TEXT, "x.toml")
    outcomes = {"a.py::one": ran("failed"), "a.py::two[xä]": ran("failed"), "c.py::new": ran("passed", "")}
    assert differences(expected, outcomes) == [
        "a.py::one: expected passed, failed: because",
        "c.py::new: not in the list, passed: ",
        "b.py::three: in the list, but not run",
    ]


def test_dumped_list_keeps_its_reasons() -> None:
    expected = parse(TEXT, "x.toml")
    outcomes = {"a.py::one": ran("passed"), "a.py::two[xä]": ran("failed"), "b.py::three": ran("skipped")}
    assert parse(dump(expected, outcomes), "x.toml") == expected
    assert '"a.py::one" = "failed: TODO"' in dump(expected, {**outcomes, "a.py::one": ran("failed")})
    only = {"c.py::new": ran("passed")}
    assert parse(dump(expected, only, keep=True), "x.toml").tests == {**expected.tests, "c.py::new": ("passed", None)}
    assert dump(Expectations({}, {}), {"a": ran("passed")}) == '[reasons]\n\n[tests]\n"a" = "passed"\n'


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_has_a_list_in_which_most_tests_pass(suite: str) -> None:
    counts = expectations.load(suite).counts()
    assert counts["passed"] > counts["failed"] + counts["skipped"]


def test_page_equals_the_text_made_from_the_lists() -> None:
    assert page.PATH.read_text(encoding="utf-8") == page.text()
