"""Transactional requests in order, asked of a real Kafka once (record_transactions.py) and of this broker in tests.

`run(asked)` does one conversation. What a request needs of an earlier answer (producer ids, epochs) is taken from it,
so the scenario is a program and not a table; every answer is kept by `asked` under a label.
"""

from __future__ import annotations

from typing import Any

from tests.broker.api.helpers.transaction_requests import (
    DESCRIBE_PRODUCERS,
    LIST_TRANSACTIONS,
    MAX_EPOCH,
    OFFSET_FETCH,
    SHORT_TIMEOUT_MS,
    TOPIC,
    WRITE_MARKERS,
    Asked,
    Producer,
    describe,
    init,
    look,
    offset_fetch_fields,
    offset_of,
    producer,
)


def run(asked: Asked) -> None:
    """The whole conversation. TOPIC exists with two partitions, and nothing else."""
    for part in (requests_that_are_refused, classic, fencing, recovery_bumps, offsets, second_version, markers,
                 timeouts, exhaustion, administration):  # fmt: skip
        part(asked)


def requests_that_are_refused(asked: Asked) -> None:
    init(asked, "an empty transactional id", 4, "")
    init(asked, "no timeout", 4, "refused", transaction_timeout=0)
    init(asked, "a negative timeout", 4, "refused", transaction_timeout=-1)
    init(asked, "a timeout above transaction.max.timeout.ms", 4, "refused", transaction_timeout=900_001)
    init(asked, "a producer id without an epoch", 4, "refused", producer_id=5)
    init(asked, "an epoch without a producer id", 4, "refused", producer_epoch=0)
    describe(asked, "ids that nobody has", "refused", "")
    stranger = Producer(asked, "stranger", {"producer_id": 77, "producer_epoch": 0})
    for version in (0, 1, 2, 3, 4, 5):
        stranger.add(f"AddPartitionsToTxn v{version} of an unknown id", version, 0)
        stranger.end(f"EndTxn v{version} of an unknown id", version, True)
    stranger.add("AddPartitionsToTxn of the empty id", 3, 0, transactional_id="")
    stranger.add("AddPartitionsToTxn v4 of the empty id", 4, 0, transactional_id="")
    stranger.end("EndTxn of the empty id", 3, True, transactional_id="")
    stranger.end("EndTxn v5 of the empty id", 5, True, transactional_id="")
    for version in (0, 1, 2, 3, 4):
        stranger.add_offsets(f"AddOffsetsToTxn v{version} of an unknown id", version, "readers")
    for version in (0, 3, 4, 5):
        stranger.commit_offsets(f"TxnOffsetCommit v{version} of an unknown id", version, "readers", 1)
    for version in (3, 7, 11, 12):
        stranger.produce(f"Produce v{version} of an unknown id", version)
    stranger.produce("a transactional batch in a request without an id", 11, transactional_id=None)
    stranger.produce("a transactional batch in a request with an empty id", 11, transactional_id="")


def classic(asked: Asked) -> None:
    """The protocol before KIP-890: partitions are added before they are written to."""
    one = producer(asked, "the first producer", 1, "classic")
    describe(asked, "a producer that has done nothing", "classic")
    one.end("commit of nothing", 1, True)
    one.end("abort of nothing", 1, False)
    one.produce("v7 to a partition that was not added", 7)
    one.produce("v11 to a partition that was not added", 11)
    for version in (0, 1, 2, 3):
        one.add(f"v{version} with a wrong producer id", version, 0, producer_id=one.id + 1000)
        one.add(f"v{version} with a higher epoch", version, 0, producer_epoch=one.epoch + 1)
        one.end(f"EndTxn v{version} with a wrong producer id", version, True, producer_id=one.id + 1000)
        one.end(f"EndTxn v{version} with a higher epoch", version, True, producer_epoch=one.epoch + 1)
    one.add("partitions of which one is missing", 3, 0, 7)
    one.add("partitions of a topic that is missing", 3, 0, topic="nowhere")
    one.add("one partition", 0, 0)
    one.add("the same once more", 1, 0)
    one.add("a verification", 4, 0, 1, verify_only=True)
    one.add("a verification with another epoch", 4, 0, producer_epoch=5, verify_only=True)
    describe(asked, "an open transaction", "classic")
    one.produce("the first records", 7)
    one.produce("more records", 9, records=3)
    one.produce("the same records once more", 9, records=3, sequence=2)
    one.produce("records out of order", 9, sequence=9)
    one.produce("records outside of the open transaction", 9, sequence=5, transactional=False)
    one.produce("to the other partition, not added", 9, partition=1)
    look(asked, "while it is open")
    asked("its producers", DESCRIBE_PRODUCERS, 0, topics=[{"name": TOPIC, "partition_indexes": [0]}])
    one.end("with a stale epoch", 1, True, producer_epoch=one.epoch - 1)
    one.end("with a stale epoch, v2", 2, True, producer_epoch=one.epoch - 1)
    one.end("the commit", 1, True)
    one.end("the commit once more", 1, True)
    one.end("an abort after the commit", 1, False)
    one.end("an abort after the commit, v5", 4, False)
    look(asked, "after the commit")
    one.produce("after the commit", 9)
    one.add("the next transaction", 3, 0, 1)
    one.produce("what will be aborted", 9)
    one.produce("what will be aborted, on the other side", 9, partition=1)
    one.end("the abort", 3, False)
    one.end("the abort once more", 3, False)
    one.end("a commit after the abort", 3, True)
    look(asked, "after the abort")
    look(asked, "after the abort, from the middle on", offset=6)
    look(asked, "after the abort, on the other side", partition=1)
    one.add("an empty transaction", 3, 1)
    one.end("its commit", 3, True)
    look(asked, "after the empty one", partition=1)
    asked("its producers, afterwards", DESCRIBE_PRODUCERS, 0, topics=[{"name": TOPIC, "partition_indexes": [0, 1]}])


def fencing(asked: Asked) -> None:
    """A second producer with the same id takes over."""
    zombie = producer(asked, "the zombie", 2, "fenced")
    zombie.add("its partition", 3, 0)
    zombie.produce("its records", 9)
    init(asked, "another one comes", 2, "fenced")
    asked.settle("fenced")
    describe(asked, "the zombie's transaction is aborted", "fenced")
    fresh = producer(asked, "another one comes again", 2, "fenced")
    for version in (0, 1, 2, 3):
        zombie.add(f"the zombie adds, v{version}", version, 0)
        zombie.end(f"the zombie commits, v{version}", version, True)
        zombie.add_offsets(f"the zombie adds offsets, v{version}", version, "readers")
    zombie.end("the zombie commits, v5", 5, True)
    zombie.produce("the zombie writes", 9)
    zombie.produce("the zombie writes, v12", 12)
    zombie.commit_offsets("the zombie commits offsets", 3, "readers", 5)
    init(asked, "the zombie wants to go on", 3, "fenced", producer_id=zombie.id, producer_epoch=zombie.epoch)
    init(asked, "the zombie wants to go on, v4", 4, "fenced", producer_id=zombie.id, producer_epoch=zombie.epoch)
    init(asked, "somebody else's producer id", 4, "fenced", producer_id=zombie.id + 500, producer_epoch=0)
    fresh.add("the fresh one adds", 3, 0)
    fresh.produce("the fresh one writes", 9)
    fresh.end("the fresh one commits", 3, True)
    look(asked, "after fencing")


def recovery_bumps(asked: Asked) -> None:
    """A producer asks for a higher epoch itself (KIP-360)."""
    one = producer(asked, "begins", 3, "bumped")
    old = one.epoch
    first = init(asked, "wants a higher epoch", 3, "bumped", producer_id=one.id, producer_epoch=old)
    init(asked, "asks again: the answer was lost", 3, "bumped", producer_id=one.id, producer_epoch=old)
    init(asked, "goes on from there", 4, "bumped", producer_id=one.id, producer_epoch=first["producer_epoch"])
    init(asked, "asks with the first epoch", 4, "bumped", producer_id=one.id, producer_epoch=old)
    init(asked, "asks with an epoch that is to come", 4, "bumped", producer_id=one.id, producer_epoch=40)
    init(asked, "an id that the broker has forgotten", 4, "forgotten", producer_id=one.id, producer_epoch=3)
    busy = producer(asked, "a busy one", 4, "bumped")
    busy.add("has a partition", 3, 0)
    busy.produce("writes", 9)
    init(asked, "wants a higher epoch while open", 4, "bumped", producer_id=busy.id, producer_epoch=busy.epoch)
    asked.settle("bumped")
    describe(asked, "was aborted", "bumped")
    init(asked, "wants a higher epoch again", 4, "bumped", producer_id=busy.id, producer_epoch=busy.epoch)


def offsets(asked: Asked) -> None:
    """Offsets in transactions."""
    one = producer(asked, "a consumer that produces", 4, "copier")
    for version in (3, 4):
        one.commit_offsets(f"TxnOffsetCommit v{version}, the group was not added", version, "copiers", 3)
    one.add_offsets("adds its group", 3, "copiers")
    describe(asked, "its transaction", "copier")
    one.commit_offsets("commits an offset", 3, "copiers", 3)
    asked("not stable", OFFSET_FETCH, 8, **offset_fetch_fields("copiers", True))
    asked("not asked to be stable", OFFSET_FETCH, 8, **offset_fetch_fields("copiers", False))
    one.commit_offsets("a generation that does not exist", 3, "copiers", 4, generation_id=3, member_id="me")
    one.commit_offsets("a generation of an unknown group", 3, "strangers", 4, generation_id=3, member_id="me")
    one.commit_offsets("no group", 3, "", 4)
    one.commit_offsets("a stale epoch", 3, "copiers", 4, producer_epoch=one.epoch - 1)
    one.commit_offsets("a wrong producer", 3, "copiers", 4, producer_id=one.id + 1000)
    two = offset_of(TOPIC, 1, 17, "a note")
    two["partitions"] += offset_of(TOPIC, 9, 1)["partitions"]
    one.commit_offsets("partitions that do not exist", 3, "copiers", 4, topics=[
        two, offset_of("nowhere", 0, 1)])  # fmt: skip
    one.commit_offsets("too much metadata", 3, "copiers", 4, topics=[offset_of(TOPIC, 0, 1, "x" * 5000)])
    one.end("commits them", 3, True)
    asked("stable", OFFSET_FETCH, 8, **offset_fetch_fields("copiers", True))
    one.add_offsets("adds its group again", 0, "copiers")
    one.commit_offsets("commits another offset", 0, "copiers", 30)
    one.end("aborts it", 3, False)
    asked("as before", OFFSET_FETCH, 8, **offset_fetch_fields("copiers", True))


def second_version(asked: Asked) -> None:
    """KIP-890: partitions are added by writing, and each end raises the epoch."""
    one = producer(asked, "a new producer", 5, "second")
    one.end("commit of nothing", 5, True)
    one.end("commit of nothing, with the epoch before", 5, True, producer_epoch=one.epoch - 1)
    one.end("abort of nothing", 5, False)
    one.produce("does not begin with sequence 0", 12, sequence=4)
    describe(asked, "after a batch that was refused", "second")
    one.produce("adds a partition", 12)
    describe(asked, "with one partition", "second")
    one.produce("adds another partition", 12, partition=1)
    one.produce("writes more", 12)
    one.produce("a wrong producer id", 12, producer_id=one.id + 1000)
    one.produce("a higher epoch", 12, producer_epoch=one.epoch + 1)
    before = one.epoch
    one.end("a higher epoch at the end", 5, True, producer_epoch=one.epoch + 1)
    one.end("the commit", 5, True)
    one.end("the commit once more", 5, True, producer_epoch=before)
    one.end("an abort with the epoch before", 5, False, producer_epoch=before)
    one.end("an epoch from long ago", 5, True, producer_epoch=before - 1)
    one.end("a commit of nothing", 5, True)
    describe(asked, "after the commit", "second")
    look(asked, "after the commit")
    one.produce("with the epoch before", 12, producer_epoch=before, sequence=0)
    one.produce("the next transaction", 12)
    before = one.epoch
    one.end("the abort", 5, False)
    one.end("the abort once more", 5, False, producer_epoch=before)
    one.end("a commit with the epoch before", 5, True, producer_epoch=before)
    one.end("a commit after the abort", 5, True)
    one.end("an abort after the abort", 5, False)
    look(asked, "after the abort")
    one.commit_offsets("adds its group by committing", 5, "second group", 8)
    describe(asked, "with a group", "second")
    one.end("commits the offset", 5, True)
    asked("its offset", OFFSET_FETCH, 8, **offset_fetch_fields("second group", True))
    mixed = producer(asked, "a producer of both kinds", 4, "mixed")
    mixed.add("adds as before", 3, 0)
    mixed.produce("writes as new", 12)
    mixed.end("ends as before", 4, True)
    mixed.add("adds by the brokers' request", 5, 1)
    mixed.produce("writes", 12, partition=1)
    mixed.end("ends as new", 5, True)


def markers(asked: Asked) -> None:
    """WriteTxnMarkers: what coordinators, and kafka-transactions.sh, send."""
    one = producer(asked, "a producer that hangs", 4, "hanging")

    def marker(label: str, version: int = 1, partitions: tuple[int, ...] = (1,), topic: str = TOPIC, **changes: Any):
        fields = {
            "producer_id": one.id, "producer_epoch": one.epoch, "transaction_result": False, "coordinator_epoch": 0,
            "transaction_version": 0, "topics": [{"name": topic, "partition_indexes": list(partitions)}],
        } | changes  # fmt: skip
        asked(label, WRITE_MARKERS, version, markers=[fields])

    asked("no markers", WRITE_MARKERS, 1, markers=[])
    marker("of a missing partition", partitions=(5,))
    marker("of a missing and another partition", partitions=(5, 1))
    marker("of a missing topic", topic="nowhere")
    marker("of an unknown producer", producer_id=one.id + 700)
    one.add("a transaction", 3, 1)
    one.produce("with records", 9, partition=1)
    marker("a stale producer epoch", producer_epoch=one.epoch - 1)
    marker("the same epoch, second version", version=2, transaction_version=2)
    marker("an abort", coordinator_epoch=3)
    marker("an abort, once more", coordinator_epoch=3)
    marker("a coordinator from before", coordinator_epoch=2)
    marker("a higher epoch, second version", version=2, transaction_version=2, coordinator_epoch=3,
           producer_epoch=one.epoch + 1)  # fmt: skip
    marker("a higher epoch, second version, once more", version=2, transaction_version=2, coordinator_epoch=3,
           producer_epoch=one.epoch + 1)  # fmt: skip
    marker("a lower epoch, second version", version=2, transaction_version=2, coordinator_epoch=3,
           producer_epoch=one.epoch)  # fmt: skip
    look(asked, "after markers", partition=1)
    asked("producers after markers", DESCRIBE_PRODUCERS, 0, topics=[{"name": TOPIC, "partition_indexes": [1]}])


def timeouts(asked: Asked) -> None:
    slow = producer(asked, "a slow producer", 4, "slow", transaction_timeout=SHORT_TIMEOUT_MS)
    slow.add("its partition", 3, 0)
    slow.produce("its records", 9)
    asked.expire("slow")
    describe(asked, "it is too late", "slow")
    slow.end("commits too late", 3, True)
    slow.end("commits too late, v1", 1, True)
    slow.produce("writes too late", 9)
    slow.add("adds too late", 3, 0)
    init(asked, "gets on", 4, "slow", producer_id=slow.id, producer_epoch=slow.epoch)
    init(asked, "begins anew", 4, "slow")
    second = producer(asked, "a slow producer of the second version", 5, "slow 2", transaction_timeout=SHORT_TIMEOUT_MS)
    second.produce("its records, implicitly added", 12)
    asked.expire("slow 2")
    describe(asked, "it is too late, second version", "slow 2")
    second.end("commits too late, v5", 5, True)
    second.produce("writes too late, v12", 12)
    look(asked, "after timeouts")


def exhaustion(asked: Asked) -> None:
    """Epochs end at 32766; then comes a new producer id."""
    one = producer(asked, "a worn one", 4, "worn")
    asked.exhaust("worn")
    one.epoch = MAX_EPOCH - 1
    one.produce("writes with the last epoch", 12)
    last = one.epoch, one.id
    one.end("commits with the last epoch", 5, True)
    one.end("commits once more", 5, True, producer_epoch=last[0], producer_id=last[1])
    describe(asked, "has a new producer id", "worn")
    one.produce("goes on", 12)
    one.end("and commits", 5, True)
    two = producer(asked, "a worn one of the first version", 4, "worn 1")
    asked.exhaust("worn 1")
    two.epoch = MAX_EPOCH - 1
    two.add("adds", 3, 0)
    two.end("commits", 3, True)
    init(asked, "asks for the next epoch", 4, "worn 1", producer_id=two.id, producer_epoch=two.epoch)
    init(asked, "asks once more", 4, "worn 1", producer_id=two.id, producer_epoch=two.epoch)
    describe(asked, "has a new id", "worn 1")
    three = producer(asked, "a third one", 4, "worn 2")
    asked.exhaust("worn 2")
    three.epoch = MAX_EPOCH - 1
    three.add("adds its partition", 3, 0)
    init(asked, "is fenced at the last epoch", 4, "worn 2")
    asked.settle("worn 2")
    describe(asked, "was aborted with the highest epoch", "worn 2")
    init(asked, "gets a new id", 4, "worn 2")


def administration(asked: Asked) -> None:
    open_one = producer(asked, "an open one", 4, "open")
    open_one.add("its partitions", 3, 0, 1)
    describe(asked, "several", "open", "second", "nobody", "classic")

    def listed(label: str, version: int = 2, **changes: Any) -> None:
        asked(label, LIST_TRANSACTIONS, version, **({
            "state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": None
        } | changes))  # fmt: skip

    for version in (0, 1, 2):
        listed(f"all, v{version}", version)
    listed("open ones", state_filters=["Ongoing"])
    listed("several states", state_filters=["Empty", "CompleteCommit"])
    listed("states that do not exist", state_filters=["Ongoing", "ongoing", "Sleeping"])
    listed("only states that do not exist", state_filters=["Sleeping"])
    listed("of one producer", producer_id_filters=[open_one.id, 123_456])
    listed("long ones", duration_filter=3_600_000)
    listed("by pattern", transactional_id_pattern="slow.*")
    listed("by a pattern of everything", transactional_id_pattern=".*")
    listed("by an empty pattern", transactional_id_pattern="")
    listed("by part of a name", transactional_id_pattern="slo")
    listed("by a pattern that is none", transactional_id_pattern="(ab(c")
    open_one.end("ends it", 3, False)
