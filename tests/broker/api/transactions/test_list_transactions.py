"""The filter of ListTransactions by a regular expression."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafkalog_broker.api.transactions.list_transactions import _matching
from kafkalog_broker.errors import BrokerError, ErrorCode

IDS = ["a.b", "a.bc", "axb", "a\\", "(a"]


def matched(pattern: str) -> list[str]:
    transactions = [SimpleNamespace(transactional_id=name) for name in IDS]
    return [metadata.transactional_id for metadata in _matching(transactions, pattern)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [
        ("a.b", ["a.b", "axb"]),
        ("a|a.b", ["a.b", "axb"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"\Qa.b", ["a.b"]),
        ("\\Qa\\", ["a\\"]),
        (r"\Q(a", ["(a"]),
        ("z", []),
    ],
)
def test_pattern_matches_whole_ids(pattern: str, ids: list[str]) -> None:
    assert matched(pattern) == ids


@pytest.mark.parametrize("pattern", ["(ab(c", "a)|(b", "a\\", r"a\E", "["])
def test_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BrokerError, match="is not a valid RE2 expression") as refused:
        matched(pattern)
    assert refused.value.code is ErrorCode.invalid_regular_expression
