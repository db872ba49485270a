"""Fetch requests that wait for data: the events that complete them, and the number of reads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkalog_broker import api
from kafkalog_broker.api.records import fetch as fetch_api
from kafkalog_broker.fetching import fetch, fetch_read, long_poll
from kafkalog_broker.fetching.long_poll import AWAKE_AT_ONCE
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime import fair_scheduling
from kafkalog_broker.runtime.fair_scheduling import FIRST_SLICE_S, TimeSlice
from kafkalog_broker.storage.append.append_validation import validate_batch
from kafkalog_spark.format.layout import ControlType
from tests.broker.api.helpers.broker_in_process import BrokerInProcess, _decoded
from tests.broker.api.helpers.plain_entities import request_entity
from tests.log.helpers.batch_builder import V2Record, batch

GB = 1 << 30


class Polls:
    """A broker with two topics of two partitions, whose Fetch requests and reads the tests count."""

    def __init__(self, directory, monkeypatch):
        self.reads = 0
        read = fetch_read._read

        def counted(*args):
            self.reads += 1
            return read(*args)

        monkeypatch.setattr(fetch_read, "_read", counted)
        self.process = BrokerInProcess(directory)

    def __enter__(self):
        self.process.__enter__()
        self.broker = self.process.broker
        self.broker.fetcher.polls.clock = lambda: 0.0  # otherwise a slow check on a busy machine delays the next one
        for topic in ("t", "u"):
            topics: Any = [
                {"name": topic, "num_partitions": 2, "replication_factor": -1, "assignments": [], "configs": []}
            ]
            self.process.ask(request_entity(19, 7, {"topics": topics, "timeout": 1000, "validate_only": False}, {}))
        return self

    def __exit__(self, *_):
        self.process.__exit__()

    def log(self, topic="t", partition=0):
        return self.broker.log(topic, partition)

    def append(self, topic="t", partition=0, size=100, **fields):
        now = self.broker.clock.now_ms()
        made = batch(0, [V2Record(0, now, b"k", bytes(size))], **{"leader_epoch": -1, **fields})
        self.log(topic, partition).append(validate_batch(made, self.log().config, now), now)
        return len(made)

    def request(
        self,
        partitions,
        *,
        min_bytes=1,
        max_wait_s=60,
        limit=1 << 20,
        max_bytes=GB,
        committed=False,
        session_id=0,
        session_epoch=-1,
    ):
        """Return a Fetch request for (topic, partition, offset)s on its own connection."""
        values = {
            "replica_id": -1,
            "max_wait": int(max_wait_s * 1000),
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": int(committed),
            "session_id": session_id,
            "session_epoch": session_epoch,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": partition,
                            "current_leader_epoch": -1,
                            "fetch_offset": offset,
                            "log_start_offset": -1,
                            "partition_max_bytes": limit,
                        }
                    ],
                }
                for topic, partition, offset in partitions
            ],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        return Request(1, 11, 1, "c", request_entity(1, 11, values, {}), ConnectionInfo())

    def begin(self, *args, **named):
        request = self.request(*args, **named)
        handler: Any = api.load_all()[1].handler
        task: asyncio.Task[Any] = self.process._loop.create_task(handler(request, self.broker))
        self.turn()
        return request, task

    def turn(self, rounds=5):
        """Run all callbacks of the event loop that are ready."""

        async def rest():
            for _ in range(rounds):
                await asyncio.sleep(0)

        self.process.run(rest())

    def answer(self, begun):
        """Return (topic, partition, record bytes or error name) of a response, which must be available."""
        request, task = begun
        self.turn()
        assert task.done()
        found = _decoded(request, task.result(), None)
        return [
            (topic.topic, one.partition_index, one.error_code.name if one.error_code else len(one.records or b""))
            for topic in found.responses
            for one in topic.partitions
        ]

    def end(self, *begun):
        for _, task in begun:
            task.cancel()
        self.turn()


@pytest.fixture
def polls(tmp_path, monkeypatch):
    with Polls(tmp_path / "data", monkeypatch) as polls:
        yield polls


def record_checks(monkeypatch):
    """Return a list that gets the number of waiting fetches for each later check of a log's waiting fetches."""
    checks, check = [], long_poll._PollsOfLog._check

    def counting(polls):
        checks.append(len(polls._waiting_for_bytes) + len(polls._waiting_for_lso))
        check(polls)

    monkeypatch.setattr(long_poll._PollsOfLog, "_check", counting)
    return checks


def test_fetch_with_a_repeated_partition_reads_it_once_at_its_last_offset(polls):
    size = polls.append()
    polls.append()
    partitions = [("t", 0, 9), ("t", 1, 0)] + [("t", 0, 0)] * 999 + [("t", 0, 1)]
    assert polls.answer(polls.begin(partitions)) == [("t", 0, size), ("t", 1, 0)]
    assert polls.reads == 2


def test_append_below_min_bytes_rereads_no_waiting_fetch(polls, monkeypatch):
    """Rereading for every waiting fetch would make each append slow when thousands of fetches wait."""
    begun = [polls.begin([("t", 0, 0), ("t", 1, 0), ("u", 0, 0)], min_bytes=GB, max_wait_s=600) for _ in range(20)]
    assert polls.reads == 60
    checks = record_checks(monkeypatch)
    for _ in range(50):
        polls.append()
        polls.turn()
    assert polls.reads == 60
    assert checks == [20] * 50  # only of the log with the append, and each fetch once
    polls.end(*begun)
    assert len(polls.broker.fetcher.polls) == 0


def test_waiting_fetch_responds_when_an_append_reaches_min_bytes(polls):
    batch_size = polls.append()
    begun = polls.begin([("t", 0, 0), ("u", 1, 0)], min_bytes=3 * batch_size)
    reads = polls.reads
    polls.append("u", 1)
    polls.turn()
    polls.append("u", 0)  # the fetch does not read this partition
    polls.turn()
    assert not begun[1].done()
    assert polls.reads == reads
    polls.append()
    assert polls.answer(begun) == [("t", 0, 2 * batch_size), ("u", 1, batch_size)]
    assert polls.reads == reads + 2


def test_fetch_with_min_bytes_above_max_bytes_waits_for_max_bytes(polls):
    """KafkaApis.handleFetchRequest: fetchMinBytes = min(minBytes, fetchMaxBytes)."""
    batch_size = polls.append()
    begun = polls.begin([("t", 0, 0)], min_bytes=GB, max_bytes=3 * batch_size)
    polls.append()
    polls.turn()
    assert not begun[1].done()
    polls.append()
    assert polls.answer(begun) == [("t", 0, 3 * batch_size)]


def test_append_above_partition_max_bytes_wakes_no_fetch(polls):
    batch_size = polls.append()
    polls.append()
    begun = polls.begin([("t", 0, 0)], min_bytes=2 * batch_size, limit=batch_size)
    reads = polls.reads
    for _ in range(5):
        polls.append()
        polls.turn()
    assert (polls.reads, begun[1].done()) == (reads, False)
    polls.log().delete_records(2)  # a deletion completes the fetch
    assert polls.answer(begun) == [("t", 0, "offset_out_of_range")]


def test_read_committed_fetch_waits_for_the_end_of_a_transaction(polls):
    fields = {"producer_id": 7, "producer_epoch": 0, "attributes": 0x10}
    polls.append(**fields, base_sequence=0)
    begun = polls.begin([("t", 0, 0)], committed=True)
    reads = polls.reads
    for sequence in range(1, 6):
        polls.append(**fields, base_sequence=sequence)
        polls.turn()
    assert (polls.reads, begun[1].done()) == (reads, False)
    polls.log().append_control(ControlType.COMMIT, 7, 0, 0, polls.broker.clock.now_ms())
    ((_, _, size),) = polls.answer(begun)
    assert size == polls.log().size_bytes


def test_deleted_topic_wakes_waiting_fetches(polls):
    begun = polls.begin([("u", 0, 0), ("t", 0, 0)], min_bytes=GB)
    topics = [{"name": "u", "topic_id": None}]
    polls.process.ask(request_entity(20, 6, {"topics": topics, "timeout": 1000}, {}))
    assert polls.answer(begun) == [("u", 0, "unknown_topic_or_partition"), ("t", 0, 0)]


def test_waiting_fetch_ends_at_max_wait_or_when_its_connection_closes(polls):
    over = polls.begin([("t", 0, 0)], min_bytes=GB, max_wait_s=0)
    assert polls.answer(over) == [("t", 0, 0)]
    request, task = polls.begin([("t", 0, 0)], min_bytes=GB, max_wait_s=600)
    for callback in request.connection.mark_closed():
        callback()
    polls.turn()
    assert task.done()
    assert len(polls.broker.fetcher.polls) == 0


def test_slow_check_of_waiting_fetches_delays_the_next_check(polls, monkeypatch):
    """Checks take at most a tenth of the event loop's time; the next check counts the appends in between."""
    now = [1000.0]

    def clock():
        now[0] += 100  # duration of a check; no other time passes
        return now[0]

    monkeypatch.setattr(polls.broker.fetcher.polls, "clock", clock)
    checks = record_checks(monkeypatch)
    batch_size = polls.append()
    begun = [polls.begin([("t", 0, 1)], min_bytes=100 * batch_size) for _ in range(3)]
    for _ in range(100):
        polls.append()
        now[0] = 1000.0
    polls.turn()
    assert checks == [3]
    assert not any(task.done() for _, task in begun)
    (waiting,) = polls.broker.fetcher.polls._waiting.values()
    assert waiting._delayed_check.when() - polls.process._loop.time() > 800
    waiting._check()
    for poll in begun:
        assert polls.answer(poll) == [("t", 0, 100 * batch_size)]


@pytest.mark.parametrize(("session_epoch", "read"), [(-1, 0), (0, 96)])
def test_fetch_of_many_partitions_yields_between_partitions(polls, monkeypatch, session_epoch, read):
    turns = []

    class Short(TimeSlice):
        is_over = property(lambda self: True)

        async def wait_turn(self):
            turns.append(1)
            await super().wait_turn()

    monkeypatch.setattr(fetch_api, "TimeSlice", Short)
    partitions = [("x", n, 0) for n in range(96)]
    begun = polls.begin(partitions, min_bytes=0, session_epoch=session_epoch)
    polls.turn(500)
    answer = polls.answer(begun)
    assert answer == [("x", n, "unknown_topic_or_partition") for n in range(96)]
    assert len(turns) == 1 + read // fetch_read.PARTITIONS_PER_CHECK, "taken in, read"


def test_fetch_with_missing_partitions_reads_only_existing_ones(polls, monkeypatch):
    """Only partition numbers are kept of missing partitions, to save memory. Existing ones are read as usual."""
    read: list[Any] = []
    really = fetch_read.read_partitions

    async def counted(partitions, *args, **named):
        read.extend((one.topic, one.partition) for one in partitions)
        return await really(partitions, *args, **named)

    monkeypatch.setattr(fetch, "read_partitions", counted)
    size = polls.append()
    asked = [("t", 5, 0), ("t", 0, 0), ("gone", 0, 0), ("t", 5, 7), ("t", -1, 0), ("u", 1, 0), ("gone", 0, 0)]
    answer = polls.answer(polls.begin(asked))
    assert read == [("t", 0), ("u", 1)]
    missing = [("t", 5), ("t", -1), ("gone", 0)]
    assert answer == [("t", 0, size), ("u", 1, 0), *((*one, "unknown_topic_or_partition") for one in missing)]


def test_fetch_with_more_partitions_than_a_session_holds_has_no_session_and_closes_the_named_one(polls, monkeypatch):
    monkeypatch.setattr(fetch_api, "MAX_PARTITIONS", 2)
    polls.answer(polls.begin([("t", 0, 0), ("t", 1, 0)], min_bytes=0, session_epoch=0))
    (session_id,) = polls.broker.fetcher.sessions._sessions
    partitions = [("t", 0, 0), ("t", 1, 0), ("u", 0, 0)]
    assert len(polls.answer(polls.begin(partitions, min_bytes=0, session_epoch=0, session_id=session_id))) == 3
    assert len(polls.broker.fetcher.sessions) == 0


def test_fetch_that_used_its_time_slice_on_partitions_yields_before_it_reads(polls, monkeypatch):
    now, reads_before_turns = 1.0, []
    collect, next_slice = fetch_api._partitions, TimeSlice.wait_turn

    def collect_slowly(*args, **named):
        nonlocal now
        now += FIRST_SLICE_S
        return collect(*args, **named)

    async def counted(time_slice):
        reads_before_turns.append(polls.reads)
        await next_slice(time_slice)

    monkeypatch.setattr(fair_scheduling, "perf_counter", lambda: now)
    monkeypatch.setattr(fetch_api, "_partitions", collect_slowly)
    monkeypatch.setattr(TimeSlice, "wait_turn", counted)
    assert polls.answer(polls.begin([("t", 0, 0)], min_bytes=0)) == [("t", 0, 0)]
    assert reads_before_turns == [0]


def test_append_that_wakes_many_fetches_runs_a_bounded_number_at_once(polls, monkeypatch):
    """Thousands of fetches that become ready in one round of the event loop would block it."""
    turns: list[int] = []

    class Counted(TimeSlice):
        is_over = property(lambda self: False)

        async def wait_slice(self):
            turns.append(1)
            await super().wait_slice()

    monkeypatch.setattr(fetch, "TimeSlice", Counted)
    begun = [polls.begin([("t", 0, 0)]) for _ in range(50)]
    size = polls.append()
    polls.turn(100)
    for poll in begun:
        assert polls.answer(poll) == [("t", 0, size)]
    assert len(turns) == 50 - 1 - AWAKE_AT_ONCE
    assert polls.broker.fetcher.polls.awake == 0
    one = polls.begin([("t", 0, 1)])
    polls.append()
    assert polls.answer(one) == [("t", 0, size)]
    assert len(turns) == 50 - 1 - AWAKE_AT_ONCE


def test_fetch_at_max_wait_does_not_reread_a_log_without_appends(polls):
    """Idle consumers mostly get empty responses, so these must be cheap."""
    size = polls.append("u")
    idle = polls.begin([("t", 0, 0), ("t", 1, 0)], max_wait_s=0.001)
    few = polls.begin([("t", 0, 0), ("u", 0, 0)], min_bytes=GB, max_wait_s=0.001)
    assert polls.reads == 4
    polls.process.run(asyncio.wait([idle[1], few[1]]))
    assert polls.answer(idle) == [("t", 0, 0), ("t", 1, 0)]
    assert polls.answer(few) == [("t", 0, 0), ("u", 0, size)]  # those records were not kept meanwhile
    assert polls.reads == 4 + 2
