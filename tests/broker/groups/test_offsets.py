from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkalog_broker.coordinator.coordinator_record import Record
from kafkalog_broker.coordinator.record_batch import CoordinatorBatch
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.groups.classic.classic_group_records import GroupKey
from kafkalog_broker.groups.group_loader import load
from kafkalog_broker.groups.offset_records import OffsetAndMetadata, OffsetKey, decode_key, offset_key, offset_value
from kafkalog_broker.groups.offset_requests import CommitRequest, CommittedPartition
from kafkalog_broker.groups.offset_store import OffsetStore
from kafkalog_spark.format.layout import ControlType
from tests.broker.groups.helpers.commits import commit_at_once
from tests.broker.groups.helpers.virtual_time import Client, World, subscription

DAY_MS = 24 * 3600 * 1000
RETENTION_MS = 7 * DAY_MS


def commit(world: World, *offsets: tuple[str, int, int], **how: object) -> list[ErrorCode]:
    """Commit (topic, partition, offset)s, as a simple consumer unless told otherwise."""
    request = CommitRequest("g", tuple(CommittedPartition(*offset) for offset in offsets))
    return commit_at_once(world.coordinator, replace(request, **how))  # type: ignore[arg-type]


def by(client: Client) -> dict[str, object]:
    return {"member_id": client.member_id, "generation": client.generation}


def fetched(world: World, topic: str = "orders", partition: int = 0, group_id: str = "g") -> int:
    (answer,) = world.coordinator.shard(group_id).offsets.fetch(group_id, topic, (partition,))
    return answer.committed_offset


def tombstones(world: World) -> list[OffsetKey | GroupKey | None]:
    return [decode_key(key) for key, value in world.log.records() if value is None]


def refused(world: World, **how: object) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        commit(world, ("orders", 0, 1), **how)
    return caught.value.code


def test_committed_offsets_survive_a_crash() -> None:
    world = World(partitions=50)
    commit(world, ("orders", 0, 5), ("orders", 1, 6), ("more", 0, 7))
    commit(world, ("orders", 0, 8))
    world.crash()
    assert [fetched(world), fetched(world, "orders", 1), fetched(world, "more"), fetched(world, "orders", 2)] == [
        8, 6, 7, -1,
    ]  # fmt: skip


def test_offsets_of_one_request_are_written_as_one_batch() -> None:
    world = World()
    commit(world, ("orders", 0, 5), ("orders", 1, 6), ("more", 0, 7))
    (batch,) = world.log.scan(0)
    assert len(batch.records) == 3


def test_offset_that_cannot_be_written_is_not_committed() -> None:
    world = World()
    commit(world, ("orders", 0, 5))
    world.log.failure = ErrorCode.kafka_storage_error
    assert refused(world) is ErrorCode.not_coordinator
    assert refused(world, group_id="new") is ErrorCode.not_coordinator
    assert fetched(world) == 5
    assert [group.group_id for group in world.coordinator.list_groups()] == ["g"]


def test_commit_with_too_long_metadata_fails_for_that_partition_only() -> None:
    world = World(offset_metadata_max_bytes=4)
    parts = tuple(CommittedPartition("orders", n, 5, metadata=text) for n, text in enumerate(("1234", "12345")))
    assert commit_at_once(world.coordinator, CommitRequest("g", parts)) == [
        ErrorCode.none, ErrorCode.offset_metadata_too_large,
    ]  # fmt: skip
    assert [fetched(world, partition=n) for n in range(2)] == [5, -1]


def test_commit_to_an_unknown_group_creates_a_simple_group() -> None:
    world = World()
    commit(world, ("orders", 0, 5))
    (group,) = world.coordinator.list_groups()
    assert (group.protocol_type, group.group_state) == ("", "Empty")
    assert world.log.last_group("g") is None


def test_member_can_join_a_simple_group() -> None:
    world = World()
    commit(world, ("orders", 0, 5))
    world.stable(1)
    assert world.state() == "Stable"
    assert fetched(world) == 5


def test_commit_is_accepted_from_members_in_their_generation_only() -> None:
    world = World()
    one, _ = world.stable(2)
    assert commit(world, ("orders", 0, 5), **by(one)) == [ErrorCode.none]
    assert refused(world) is ErrorCode.unknown_member_id
    assert refused(world, **by(one) | {"member_id": "stranger"}) is ErrorCode.unknown_member_id
    assert refused(world, **by(one) | {"generation": 0}) is ErrorCode.illegal_generation
    assert refused(world, **by(one), group_instance_id="i") is ErrorCode.unknown_member_id
    assert refused(world, group_id="other", generation=1) is ErrorCode.group_id_not_found


def test_commit_is_accepted_in_the_join_phase_and_refused_in_the_sync_phase() -> None:
    world = World()
    one, two = world.stable(2)
    new = world.client(client_id="new").join()
    assert commit(world, ("orders", 0, 5), **by(one)) == [ErrorCode.none]
    one.join()
    two.join()
    assert new.joined.generation_id == 2
    assert refused(world, **by(one)) is ErrorCode.rebalance_in_progress


def test_commit_of_a_replaced_static_member_is_refused() -> None:
    world = World()
    one, _ = world.stable(2, instance="i")
    world.client(instance=one.instance).join()
    assert refused(world, **by(one), group_instance_id=one.instance) is ErrorCode.fenced_instance_id


def test_commit_extends_the_session_of_the_member() -> None:
    world = World()
    (one,) = world.stable(1, session_ms=10_000)
    for offset in range(5):
        world.time.advance(9_000)
        assert commit(world, ("orders", 0, offset), **by(one)) == [ErrorCode.none]
    assert one.heartbeat() is ErrorCode.none


def test_commit_without_a_member_is_accepted_for_an_empty_group_only() -> None:
    world = World()
    (one,) = world.stable(1)
    assert refused(world) is ErrorCode.unknown_member_id
    one.leave()
    assert commit(world, ("orders", 0, 3)) == [ErrorCode.none]


def test_empty_group_id_can_commit_but_not_join() -> None:
    world = World()
    assert commit(world, ("orders", 0, 3), group_id="") == [ErrorCode.none]
    assert fetched(world, group_id="") == 3


def expire(world: World, ms: int) -> None:
    world.time.advance(ms)
    world.coordinator.tick()


def test_offsets_of_an_empty_group_expire_after_retention_since_it_became_empty() -> None:
    world = World()
    (one,) = world.stable(1)
    commit(world, ("orders", 0, 5), **by(one))
    world.time.advance(5_000)
    one.leave()
    expire(world, RETENTION_MS - 1)
    assert fetched(world) == 5
    expire(world, 600_000)
    assert fetched(world) == -1
    assert tombstones(world) == [OffsetKey("g", "orders", 0), GroupKey("g")]
    assert world.coordinator.list_groups() == []
    world.crash()
    assert fetched(world) == -1
    assert world.state() == "Dead"


def test_time_since_a_group_became_empty_survives_a_restart() -> None:
    world = World()
    (one,) = world.stable(1)
    commit(world, ("orders", 0, 5), **by(one))
    one.leave()
    world.time.advance(RETENTION_MS // 2)
    world.crash()
    expire(world, RETENTION_MS // 2 + 1)
    assert fetched(world) == -1


def test_offsets_of_a_simple_group_expire_after_retention_since_their_commit() -> None:
    world = World()
    commit(world, ("orders", 0, 5))
    world.time.advance(DAY_MS)
    commit(world, ("orders", 1, 6))
    expire(world, RETENTION_MS - DAY_MS)
    assert [fetched(world, partition=n) for n in range(2)] == [-1, 6]
    expire(world, DAY_MS)
    assert world.coordinator.list_groups() == []


def test_offsets_of_subscribed_topics_do_not_expire() -> None:
    world = World()
    (one,) = world.stable(1, session_ms=10_000)
    commit(world, ("orders", 0, 5), ("left", 0, 6), **by(one))
    for _ in range(int(RETENTION_MS / 9_000_000) + 1):
        world.time.clock.advance(9_000_000)  # no timer fires: the member is alive
    world.coordinator.tick()
    assert [fetched(world), fetched(world, "left")] == [5, -1]
    assert world.state() == "Stable"


def test_offsets_expire_also_after_the_clock_was_set_forward_and_back() -> None:
    world = World()
    commit(world, ("orders", 0, 5))
    for jump in (365 * DAY_MS, -365 * DAY_MS):
        world.time.clock.jump(jump)
    world.time.advance(RETENTION_MS + 1)
    world.coordinator.tick()
    assert fetched(world) == -1


def test_offsets_do_not_expire_while_a_group_rebalances() -> None:
    world = World()
    (one,) = world.stable(1)
    commit(world, ("left", 0, 6), **by(one))
    world.client(client_id="new").join()
    world.time.clock.advance(2 * RETENTION_MS)
    world.coordinator.tick()
    assert fetched(world, "left") == 6


def test_offsets_of_a_group_whose_subscriptions_are_unknown_do_not_expire() -> None:
    world = World()
    (one,) = world.stable(1, protocols=(("range", b"?"),))
    commit(world, ("orders", 0, 5), **by(one))
    world.time.clock.advance(2 * RETENTION_MS)
    world.coordinator.tick()
    assert fetched(world) == 5


def test_offset_with_an_expire_timestamp_expires_at_that_time() -> None:
    world = World()
    commit(world, ("orders", 0, 5), retention_ms=1_000_000)
    expire(world, 999_999)
    assert fetched(world) == 5
    world.crash()
    expire(world, 600_001)
    assert fetched(world) == -1


def test_empty_group_without_offsets_is_removed_at_the_next_check() -> None:
    world = World()
    (one,) = world.stable(1)
    one.leave()
    expire(world, 599_999)
    assert world.state() == "Empty"
    expire(world, 1)
    assert world.state() == "Dead"


def test_expired_offsets_remain_when_their_tombstones_cannot_be_appended() -> None:
    world = World()
    commit(world, ("orders", 0, 5))
    world.log.failure = ErrorCode.kafka_storage_error
    expire(world, RETENTION_MS)
    assert fetched(world) == 5
    world.log.failure = None
    expire(world, 600_000)
    assert fetched(world) == -1


def test_offsets_of_a_deleted_topic_are_removed() -> None:
    world = World(partitions=50)
    commit(world, ("orders", 0, 5), ("more", 0, 6))
    commit(world, ("orders", 3, 7), group_id="h")
    list(world.coordinator.on_topics_deleted({"orders"}))
    assert [fetched(world), fetched(world, "more"), fetched(world, "orders", 3, "h")] == [-1, 6, -1]
    world.crash()
    assert [fetched(world), fetched(world, "more"), fetched(world, "orders", 3, "h")] == [-1, 6, -1]


def test_list_groups_after_a_restart_loads_partitions_that_are_not_loaded() -> None:
    world = World(partitions=50)
    for group_id in ("a", "b", "c"):
        commit(world, ("orders", 0, 5), group_id=group_id)
    world.crash()
    assert sorted(group.group_id for group in world.coordinator.list_groups()) == ["a", "b", "c"]


def test_expiration_after_a_restart_loads_partitions_that_are_not_loaded() -> None:
    world = World(partitions=50)
    commit(world, ("orders", 0, 5))
    world.crash()
    expire(world, RETENTION_MS)
    assert tombstones(world) == [OffsetKey("g", "orders", 0), GroupKey("g")]


def test_many_offsets_are_deleted_in_batches_of_bounded_size() -> None:
    world = World()
    commit(world, *(("orders", partition, 1) for partition in range(2500)))
    world.coordinator.shard("g").delete("g")
    assert [len(batch.records) for batch in world.log.scan(0)] == [2500, 1000, 1000, 500, 1]


PLAIN = offset_value(OffsetAndMetadata(1, -1, "", 0))
IN_TRANSACTION = offset_value(OffsetAndMetadata(2, -1, "", 0))
KEY = OffsetKey("g", "orders", 0)


def batch(at: int, value: bytes | None, producer: int = -1) -> CoordinatorBatch:
    records: list[Record] = [(offset_key(*KEY), value)]
    return CoordinatorBatch(at, producer, producer >= 0, None, records)


def marker(at: int, producer: int, kind: ControlType) -> CoordinatorBatch:
    return CoordinatorBatch(at, producer, True, kind, [])


@pytest.mark.parametrize(
    ("batches", "expected", "pending"),
    [
        ([batch(0, PLAIN)], 1, False),
        ([batch(0, PLAIN), batch(1, None)], None, False),
        ([batch(0, PLAIN), batch(1, IN_TRANSACTION, 9)], 1, True),
        ([batch(0, PLAIN), batch(1, IN_TRANSACTION, 9), marker(2, 9, ControlType.COMMIT)], 2, False),
        ([batch(0, PLAIN), batch(1, IN_TRANSACTION, 9), marker(2, 9, ControlType.ABORT)], 1, False),
        ([batch(0, PLAIN), batch(1, IN_TRANSACTION, 9), marker(2, 8, ControlType.COMMIT)], 1, True),
        # the later commit wins, whatever the transaction ends with
        ([batch(0, IN_TRANSACTION, 9), batch(1, PLAIN), marker(2, 9, ControlType.COMMIT)], 1, False),
        ([batch(0, IN_TRANSACTION, 9), batch(1, None), marker(2, 9, ControlType.COMMIT)], None, False),
        ([marker(0, 9, ControlType.COMMIT)], None, False),
    ],
)
def test_offsets_of_transactions_count_when_they_are_committed(
    batches: list[CoordinatorBatch], expected: int | None, pending: bool
) -> None:
    offsets = load(batches).offsets
    found = offsets.get(KEY)
    assert (found and found.offset) == expected
    assert offsets.is_pending(KEY) is pending


def test_offsets_of_a_transaction_open_at_the_start_can_be_committed() -> None:
    offsets = load([batch(0, PLAIN), batch(1, IN_TRANSACTION, 9)]).offsets
    offsets.end_transaction(9, commit=True)
    found = offsets.get(KEY)
    assert found is not None
    assert found.offset == 2


def test_later_commit_outside_of_a_transaction_supersedes_a_pending_offset() -> None:
    offsets = load([batch(0, IN_TRANSACTION, 9), batch(1, PLAIN)]).offsets
    assert offsets.is_pending(KEY)
    offsets.end_transaction(9, commit=True)
    found = offsets.get(KEY)
    assert found is not None
    assert found.offset == 1


def test_records_that_cannot_be_decoded_are_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    bad: list[Record] = [
        (b"", b"x"), (b"\0\1\0\x09g", b"x"), (offset_key("g", "bad", 0), b"\0\4"), (b"\0\x63\0\1g", b"\0\0"),
        (offset_key("g", "future", 0), b"\0\x63"), (offset_key(*KEY), PLAIN),
    ]  # fmt: skip
    loaded = load([CoordinatorBatch(0, -1, False, None, bad)])
    assert list(loaded.offsets.keys("g")) == [KEY]
    assert loaded.skipped == 1
    assert sum(record.levelname == "ERROR" for record in caplog.records) == 4


def test_group_with_malformed_subscriptions_counts_as_subscribed_to_every_topic() -> None:
    world = World()
    world.stable(1, protocols=(("range", subscription("orders")[:-6]),))
    assert world.group().is_subscribed_to("anything")
    codes = world.coordinator.shard("g").delete_offsets("g", [("anything", 0)])
    assert codes == [ErrorCode.group_subscribed_to_topic]


def test_later_record_wins_when_two_transactions_commit_the_same_partition() -> None:
    key = OffsetKey("g", "orders", 0)
    for first_to_end in (1, 2):
        store = OffsetStore()
        store.put_pending(1, key, OffsetAndMetadata(10, -1, "", 0))
        store.put_pending(2, key, OffsetAndMetadata(20, -1, "", 0))
        for producer_id in (first_to_end, 3 - first_to_end):
            assert store.is_pending(key)
            store.end_transaction(producer_id, commit=True)
        found = store.get(key)
        assert found is not None
        assert found.offset == 20, "whichever ends last"
        assert not store.is_pending(key)


def test_commit_visits_only_transactions_with_a_pending_offset_of_its_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exactly-once pipelines have thousands of open transactions, which a plain commit must not visit."""
    looked = 0

    class Counted(dict[int, Any]):
        def __getitem__(self, producer_id: int) -> Any:
            nonlocal looked
            looked += 1
            return super().__getitem__(producer_id)

        def __iter__(self) -> Any:
            raise AssertionError("all transactions are walked")

    store = OffsetStore()
    monkeypatch.setattr(store, "_pending", Counted())
    for producer_id in range(1000):
        store.put_pending(producer_id, OffsetKey("g", "orders", producer_id), OffsetAndMetadata(10, -1, "", 0))
    store.put(OffsetKey("g", "payments", 0), OffsetAndMetadata(5, -1, "", 0))
    store.put(OffsetKey("h", "orders", 7), OffsetAndMetadata(5, -1, "", 0))
    assert looked == 0
    store.put(OffsetKey("g", "orders", 7), OffsetAndMetadata(5, -1, "", 0))
    assert looked == 1
