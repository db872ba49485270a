"""Tiered topics: segments are copied to a store, leave the disk, and expire."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.server import Server
from tests.crash_states.administrator import set_config
from tests.crash_states.broker_thread import BrokerThread
from tests.crash_states.ledger import Trim
from tests.crash_states.session import EARLIEST, LATEST
from tests.crash_states.state_check import StateCheck
from tests.crash_states.world import World, workload

PROPERTIES = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "rsm.config.dir": "{tier}",
    "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
    "remote.log.manager.task.interval.ms": 1 << 30,  # `move` is called instead
    "remote.fetch.max.wait.ms": 60_000,
}
SMALL = {"remote_storage_enable": "true", "internal_segment_bytes": 500, "local_retention_bytes": 1,
         "index_interval_bytes": 100, "file_delete_delay_ms": 1}  # fmt: skip


def move(broker: BrokerThread) -> None:
    """Copy, expire and remove from the disk what is due."""

    async def round_of(server: Server) -> None:
        remote: Any = server.broker.remote
        await remote.run_due()
        await remote.wait_until_idle()

    broker.run(round_of)
    broker.tick(301_000)


def _remote_ends(world: World) -> None:
    """Note how far each log is in remote storage now."""

    async def ends(server: Server) -> dict[tuple[str, int], int]:
        found = {}
        for key, entry in server.broker.logs.entries.items():
            if entry.log is not None and entry.log.highest_offset_in_remote_storage >= 0:
                found[key] = entry.log.highest_offset_in_remote_storage + 1
        return found

    for partition, end in world.broker.run(ends).items():
        world.facts.setdefault("remote", []).append((partition, end, world.point()))


def check_tier(check: StateCheck) -> None:
    """What was remote at the point of the crash is still part of the log, whatever the flush settings are."""
    for partition, end, at in check.run.facts.get("remote", ()):
        if at > check.point or partition not in check.served:
            continue
        highest = check.ledger.trimmed_to(partition, check.point)
        if check.session.list_offset(partition, LATEST) < end:
            check.report("remote-lost", f"{partition} had {end} remote records and ends before")
        start = check.session.list_offset(partition, EARLIEST)
        if start > highest:
            check.report("remote-lost", f"{partition} begins at {start}; its records up to {end} were remote")
    move(check.broker)


@workload("tier", PROPERTIES, check=check_tier)
def tier(world: World) -> None:
    """One topic whose remote segments stay, one whose segments expire, the active one too, and one that is deleted."""
    world.start()
    admin = world.session()
    admin.create_topic("kept", 2, **SMALL, **world.topic_configs)
    admin.create_topic("expiring", 1, **SMALL, local_retention_ms=100_000, **world.topic_configs)
    admin.create_topic("deleted", 1, **SMALL, **world.topic_configs)
    producer = admin.producer()
    for turn in range(4):
        for number in range(5):
            timestamp = world.clock.now_ms()
            producer.produce(("kept", number % 2), world.values(2, 80), timestamp=timestamp)
            admin.produce(("expiring", 0), world.values(2, 80), timestamp=timestamp)
            if turn < 2:
                admin.produce(("deleted", 0), world.values(2, 80), timestamp=timestamp)
        move(world.broker)
        _remote_ends(world)
        if turn == 1:
            admin.delete_topic("deleted")
        if turn == 2:
            world.ledger.trims.append(Trim(("expiring", 0), 10**9, world.point()))
            set_config(admin, "topic", "expiring", "retention.ms", "400000")
        if turn == 2 and world.seed % 2:
            world.stop()
            world.start()
            admin = world.session()
            producer = admin.producer()
    admin.read(("kept", 0))
