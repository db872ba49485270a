"""Fetch sessions, in the words of KIP-227 and FetchSessionTest."""

from __future__ import annotations

from itertools import count

import pytest

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.fetch_read import FetchedPartition
from kafkalog_broker.fetching.fetch_report import report_partition
from kafkalog_broker.fetching.fetch_request import FetchPartition, FetchRequest, SessionRequest
from kafkalog_broker.fetching.fetch_session import FetchSessions

NOW = 1_000_000


def sessions(slots: int = 10) -> FetchSessions:
    ids = count(1)
    return FetchSessions(slots, new_id=lambda: next(ids))


def wants(partition: int, offset: int = 0, topic: str = "t") -> FetchPartition:
    return FetchPartition(topic, partition, offset, 1 << 20, -1)


def context(cache, session_id, epoch, wanted, forgotten=(), *, by_id=False, now_ms=NOW):  # type: ignore[no-untyped-def]
    by_key = {(one.topic, one.partition): one for one in wanted}
    session = SessionRequest(session_id, epoch, list(forgotten), names_topics_by_id=by_id)
    request = FetchRequest(by_key, {}, session, 0.0, 1, 1 << 20, read_committed=False, correlation_id=0)
    return cache.new_context(request, now_ms)


def code_of(cache: FetchSessions, session_id: int, epoch: int, *, by_id: bool = False) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        context(cache, session_id, epoch, [], by_id=by_id)
    return caught.value.code


def test_fetch_without_a_session_is_full_and_creates_no_session() -> None:
    cache = sessions()
    answered = context(cache, 0, -1, [wants(0)])
    assert (answered.session_id, answered.is_incremental, answered.partitions) == (0, False, [wants(0)])
    assert len(cache) == 0


def test_fetch_with_epoch_0_creates_a_session_whose_first_response_is_full() -> None:
    cache = sessions()
    opened = context(cache, 0, 0, [wants(0), wants(1)])
    assert (opened.session_id, opened.is_incremental) == (1, False)
    following = context(cache, 1, 1, [])
    assert following.is_incremental
    assert following.partitions == [wants(0), wants(1)]


def test_incremental_fetch_changes_adds_and_forgets_partitions() -> None:
    cache = sessions()
    context(cache, 0, 0, [wants(0), wants(1)])
    answered = context(cache, 1, 1, [wants(0, 7), wants(2)], [("t", 1)])
    assert answered.partitions == [wants(0, 7), wants(2)]


def test_fetch_with_an_unexpected_session_epoch_is_refused_and_changes_nothing() -> None:
    cache = sessions()
    context(cache, 0, 0, [wants(0)])
    for wrong in (2, 7):
        assert code_of(cache, 1, wrong) == ErrorCode.invalid_fetch_session_epoch
    assert context(cache, 1, 1, []).partitions == [wants(0)]


def test_fetch_with_an_unknown_session_id_is_an_error() -> None:
    assert code_of(sessions(), 9, 1) == ErrorCode.fetch_session_id_not_found


def test_fetch_session_does_not_mix_topic_names_and_topic_ids() -> None:
    cache = sessions()
    context(cache, 0, 0, [wants(0)])
    assert code_of(cache, 1, 1, by_id=True) == ErrorCode.fetch_session_topic_id_error


def test_fetch_with_the_final_epoch_closes_its_session() -> None:
    cache = sessions()
    context(cache, 0, 0, [wants(0)])
    assert context(cache, 1, -1, [wants(3)]).session is None
    assert code_of(cache, 1, 1) == ErrorCode.fetch_session_id_not_found


def test_fetch_with_epoch_0_and_a_session_id_replaces_that_session() -> None:
    cache = sessions()
    context(cache, 0, 0, [wants(0)])
    assert context(cache, 1, 0, [wants(1)]).session_id == 2
    assert len(cache) == 1


def test_fetch_session_epoch_after_the_maximum_is_1() -> None:
    cache = sessions()
    session = context(cache, 0, 0, [wants(0)]).session
    assert session is not None
    session.epoch = 2**31 - 1
    context(cache, 1, 2**31 - 1, [])
    context(cache, 1, 1, [])
    assert session.epoch == 2


def test_full_session_cache_evicts_a_session_only_after_two_idle_minutes() -> None:
    cache = sessions(slots=2)
    for _ in range(2):
        context(cache, 0, 0, [wants(0)])
    assert context(cache, 0, 0, [wants(0)], now_ms=NOW + 120_000).session_id == 0
    context(cache, 1, 1, [], now_ms=NOW + 60_000)
    later = context(cache, 0, 0, [wants(0)], now_ms=NOW + 120_001)
    assert later.session_id != 0
    assert code_of(cache, 2, 1) == ErrorCode.fetch_session_id_not_found  # the one not used for longest went
    context(cache, 1, 2, [], now_ms=NOW + 120_001)


def test_incremental_response_contains_partitions_with_records_errors_or_changed_offsets() -> None:
    cache = sessions()
    session = context(cache, 0, 0, [wants(0)]).session
    assert session is not None

    def tell(*, high_watermark: int = 5, log_start: int = 0, has_records: bool = False, error: bool = False) -> bool:
        return bool(
            report_partition(
                session,
                FetchedPartition(
                    wants(0),
                    ErrorCode.unknown_server_error if error else ErrorCode.none,
                    high_watermark=high_watermark,
                    log_start_offset=log_start,
                    size=int(has_records),
                ),
            )
        )

    assert tell()  # nothing was told yet
    assert not tell()
    assert tell(high_watermark=6)
    assert tell(high_watermark=6, log_start=2)
    assert not tell(high_watermark=6, log_start=2)
    assert tell(high_watermark=6, log_start=2, has_records=True)
    assert tell(high_watermark=6, log_start=2, error=True)
    assert tell(high_watermark=6, log_start=2)  # the error is over: the client has to know
    assert not tell(high_watermark=6, log_start=2)


def test_fetch_session_reads_a_partition_that_returned_records_last_in_the_next_request() -> None:
    cache = sessions()
    session = context(cache, 0, 0, [wants(0), wants(1), wants(2)]).session
    assert session is not None
    report_partition(session, FetchedPartition(wants(0), high_watermark=1, log_start_offset=0, size=1))
    assert [p.partition for p in context(cache, 1, 1, []).partitions] == [1, 2, 0]


def test_larger_session_evicts_the_smallest_session_older_than_two_minutes() -> None:
    """FetchSessionCache.tryEvict (KIP-227): many small sessions do not prevent a larger one."""
    cache = sessions(slots=3)
    for number, size in enumerate([2, 1, 3], start=1):
        context(cache, 0, 0, [wants(n) for n in range(size)])
        context(cache, number, 1, [], now_ms=NOW + 100_000)  # in use
    two = [wants(0), wants(1)]
    assert context(cache, 0, 0, two, now_ms=NOW + 120_000).session_id == 0  # all of them are young
    assert context(cache, 0, 0, [wants(0)], now_ms=NOW + 120_001).session_id == 0  # no larger than the smallest
    assert context(cache, 0, 0, two, now_ms=NOW + 120_001).session_id == 4
    assert code_of(cache, 2, 2) == ErrorCode.fetch_session_id_not_found
    assert context(cache, 0, 0, two, now_ms=NOW + 120_001).session_id == 0  # the new one is young, no other smaller
    assert len(cache) == 3
    context(cache, 1, 2, [wants(n) for n in range(5)], now_ms=NOW + 130_000)  # it grows, and is not the smallest now
    four = [wants(n) for n in range(4)]
    assert context(cache, 0, 0, four, now_ms=NOW + 130_000).session_id == 5
    assert code_of(cache, 3, 2) == ErrorCode.fetch_session_id_not_found
    assert context(cache, 1, 3, []).session_id == 1


def test_total_number_of_partitions_in_all_sessions_is_limited() -> None:
    cache = FetchSessions(100, count(1).__next__, max_partitions=10)
    many = [wants(n) for n in range(6)]
    assert context(cache, 0, 0, [wants(n) for n in range(11)]).session_id == 0
    assert context(cache, 0, 0, many).session_id == 1
    assert context(cache, 0, 0, many).session_id == 0
    assert context(cache, 0, 0, [wants(0)]).session_id == 2
    with pytest.raises(BrokerError, match="all sessions together may name 10 partitions, and this one has 5"):
        context(cache, 2, 1, [wants(n) for n in range(5)])
    assert code_of(cache, 2, 1) == ErrorCode.fetch_session_id_not_found
    assert cache.partitions == 6
    assert len(context(cache, 1, 1, [wants(n) for n in range(10)]).partitions) == 10
    assert context(cache, 0, 0, [wants(0)], now_ms=NOW + 120_001).session_id == 3  # the first was idle, and went
    assert cache.partitions == 1


def test_fetch_session_without_partitions_is_closed() -> None:
    cache = sessions()
    context(cache, 0, 0, [wants(0)])
    last = context(cache, 1, 1, [], [("t", 0)])
    assert (last.session_id, last.is_incremental, list(last.partitions)) == (0, False, [])
    assert (len(cache), cache.partitions) == (0, 0)
    assert code_of(cache, 1, 2) == ErrorCode.fetch_session_id_not_found
