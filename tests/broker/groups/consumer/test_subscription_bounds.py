"""Limits of subscriptions: topic names of a whole group, and regular expressions."""

from __future__ import annotations

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.consumer.re2_regexes import check_regex
from tests.broker.groups.consumer.test_consumer_group_machine import Groups

MOST = 4_000


def names(first: int, count: int) -> list[str]:
    return [f"topic-{number}" for number in range(first, first + count)]


def test_subscribed_topics_of_all_members_of_a_group_are_limited() -> None:
    world = Groups()
    epoch = world.join("a", *names(0, MOST - 10)).member_epoch
    epoch_b = world.join("b", *names(MOST - 10, 10)).member_epoch  # as many as may be named
    before = world.described()
    with pytest.raises(BrokerError, match=f"{MOST + 1} topics, at most {MOST} may be named by a group") as refused:
        world.join("c", *names(MOST, 1))
    assert refused.value.code is ErrorCode.invalid_request
    with pytest.raises(BrokerError, match=f"at most {MOST} may be named by a group"):
        world.heartbeat("b", epoch_b, topics=names(MOST, 11))
    assert world.described() == before
    world.join("c", *names(5, 100))  # what others name already
    assert world.heartbeat("a", epoch).member_epoch >= epoch
    assert len(world.described().members) == 3


def test_regular_expression_too_long_for_a_record_key_is_refused() -> None:
    check_regex("a" * 32_767)
    for regex, size in (("a" * 32_768, 32_768), ("é" * 16_384, 32_768)):
        with pytest.raises(BrokerError, match=f"{size} bytes, at most 32767") as refused:
            check_regex(regex)
        assert refused.value.code is ErrorCode.invalid_regular_expression


def test_regular_expression_uses_at_most_a_megabyte() -> None:
    check_regex(r"\pL{30}")
    with pytest.raises(BrokerError, match="too large") as refused:
        check_regex(r"\pL{100}")  # some MB, which RE2 takes by default
    assert refused.value.code is ErrorCode.invalid_regular_expression
