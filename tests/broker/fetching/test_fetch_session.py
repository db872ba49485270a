"""Fetch sessions, in the words of KIP-227 and FetchSessionTest."""

from __future__ import annotations

from itertools import count

import pytest
from kio.schema.errors import ErrorCode

from broker.errors import BrokerError
from broker.fetching.fetch_session import FetchPartition, FetchSessions

NOW = 1_000_000


def sessions(slots: int = 10) -> FetchSessions:
    ids = count(1)
    return FetchSessions(slots, new_id=lambda: next(ids))


def wants(partition: int, offset: int = 0, topic: str = "t") -> FetchPartition:
    return FetchPartition(topic, partition, offset, 1 << 20, -1)


def code_of(cache: FetchSessions, session_id: int, epoch: int, *, by_id: bool = False) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        cache.context(session_id, epoch, [], [], by_id=by_id, now_ms=NOW)
    return caught.value.code


def test_a_request_without_a_session_is_answered_in_full_and_remembered_by_nobody() -> None:
    cache = sessions()
    context = cache.context(0, -1, [wants(0)], [], by_id=False, now_ms=NOW)
    assert (context.session_id, context.incremental, context.partitions) == (0, False, [wants(0)])
    assert len(cache) == 0


def test_epoch_0_opens_a_session_that_is_answered_in_full_once() -> None:
    cache = sessions()
    opened = cache.context(0, 0, [wants(0), wants(1)], [], by_id=False, now_ms=NOW)
    assert (opened.session_id, opened.incremental) == (1, False)
    following = cache.context(1, 1, [], [], by_id=False, now_ms=NOW)
    assert following.incremental
    assert following.partitions == [wants(0), wants(1)]


def test_requests_change_add_and_forget_partitions() -> None:
    cache = sessions()
    cache.context(0, 0, [wants(0), wants(1)], [], by_id=False, now_ms=NOW)
    context = cache.context(1, 1, [wants(0, 7), wants(2)], [("t", 1)], by_id=False, now_ms=NOW)
    assert context.partitions == [wants(0, 7), wants(2)]


def test_an_epoch_that_is_not_the_expected_one_is_an_error_and_changes_nothing() -> None:
    cache = sessions()
    cache.context(0, 0, [wants(0)], [], by_id=False, now_ms=NOW)
    for wrong in (2, 7):
        assert code_of(cache, 1, wrong) == ErrorCode.invalid_fetch_session_epoch
    assert cache.context(1, 1, [], [], by_id=False, now_ms=NOW).partitions == [wants(0)]


def test_a_session_that_is_not_there_is_an_error() -> None:
    assert code_of(sessions(), 9, 1) == ErrorCode.fetch_session_id_not_found


def test_names_and_ids_of_topics_do_not_mix_in_a_session() -> None:
    cache = sessions()
    cache.context(0, 0, [wants(0)], [], by_id=False, now_ms=NOW)
    assert code_of(cache, 1, 1, by_id=True) == ErrorCode.fetch_session_topic_id_error


def test_the_final_epoch_closes_the_session() -> None:
    cache = sessions()
    cache.context(0, 0, [wants(0)], [], by_id=False, now_ms=NOW)
    assert cache.context(1, -1, [wants(3)], [], by_id=False, now_ms=NOW).session is None
    assert code_of(cache, 1, 1) == ErrorCode.fetch_session_id_not_found


def test_epoch_0_with_an_id_closes_that_session_and_opens_another() -> None:
    cache = sessions()
    cache.context(0, 0, [wants(0)], [], by_id=False, now_ms=NOW)
    assert cache.context(1, 0, [wants(1)], [], by_id=False, now_ms=NOW).session_id == 2
    assert len(cache) == 1


def test_the_epoch_after_the_largest_is_1() -> None:
    cache = sessions()
    session = cache.context(0, 0, [wants(0)], [], by_id=False, now_ms=NOW).session
    assert session is not None
    session.epoch = 2**31 - 1
    cache.context(1, 2**31 - 1, [], [], by_id=False, now_ms=NOW)
    cache.context(1, 1, [], [], by_id=False, now_ms=NOW)
    assert session.epoch == 2


def test_a_full_cache_opens_no_session_until_one_was_idle_for_two_minutes() -> None:
    cache = sessions(slots=2)
    for _ in range(2):
        cache.context(0, 0, [wants(0)], [], by_id=False, now_ms=NOW)
    assert cache.context(0, 0, [wants(0)], [], by_id=False, now_ms=NOW + 119_999).session_id == 0
    cache.context(1, 1, [], [], by_id=False, now_ms=NOW + 60_000)
    later = cache.context(0, 0, [wants(0)], [], by_id=False, now_ms=NOW + 120_000)
    assert later.session_id != 0
    assert code_of(cache, 2, 1) == ErrorCode.fetch_session_id_not_found  # the one not used for longest went
    cache.context(1, 2, [], [], by_id=False, now_ms=NOW + 120_000)


def test_an_incremental_answer_names_partitions_with_records_errors_or_moved_offsets() -> None:
    cache = sessions()
    session = cache.context(0, 0, [wants(0)], [], by_id=False, now_ms=NOW).session
    assert session is not None

    def tell(**changes: object) -> bool:
        facts = {"has_records": False, "error": False, "high_watermark": 5, "log_start": 0} | changes
        return session.must_tell("t", 0, **facts)  # type: ignore[arg-type]

    assert tell()  # nothing was told yet
    assert not tell()
    assert tell(high_watermark=6)
    assert tell(high_watermark=6, log_start=2)
    assert not tell(high_watermark=6, log_start=2)
    assert tell(high_watermark=6, log_start=2, has_records=True)
    assert tell(high_watermark=6, log_start=2, error=True)
    assert tell(high_watermark=6, log_start=2)  # the error is over: the client has to know
    assert not tell(high_watermark=6, log_start=2)


def test_a_partition_that_gave_records_is_read_last_in_the_next_request() -> None:
    cache = sessions()
    session = cache.context(0, 0, [wants(0), wants(1), wants(2)], [], by_id=False, now_ms=NOW).session
    assert session is not None
    session.must_tell("t", 0, has_records=True, error=False, high_watermark=1, log_start=0)
    assert [p.partition for p in cache.context(1, 1, [], [], by_id=False, now_ms=NOW).partitions] == [1, 2, 0]
