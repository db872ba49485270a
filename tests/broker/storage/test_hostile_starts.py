"""Starts with damaged or hostile log directories, remote segments and internal topics.

The broker starts, serves every healthy partition, logs the names of the others, and changes nothing outside its
directories."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkalog_spark.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from tests.broker.storage.helpers.hostile_broker import (
    PARTITIONS,
    RECORDS,
    HostileBroker,
    contents,
    copy_of,
    names_in,
    unserved,
)

ORDERS, TIERED = ("orders", 0), ("tiered", 0)
STEM = "orders-0/00000000000000000000"
LOG = f"{STEM}.log"
SNAPSHOT = f"orders-0/{RECORDS:020d}.snapshot"
FIRST_LOG = "{}-0/00000000000000000000.log"
TAKEOVER = "kafkalog.mirror.takeover.json"
MARKER = ".kafka_cleanshutdown"
REGISTRY = "kafkalog.topics.json"
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
CPU_S = 10  # of this process, for a start that takes a second: the wall clock tells nothing on a busy machine

Change = Callable[[Path], object]


@dataclass(frozen=True)
class Damage:
    """change: given the folder that holds data, tier and outside. offline: partitions that do not serve. says: pattern
    of the log. clean: the broker was shut down cleanly, so that logs are believed and opened at their first use."""

    change: Change
    says: str = ""
    offline: tuple[tuple[str, int], ...] = ()
    clean: bool = False


def write_file(name: str, data: bytes) -> Change:
    def change(root: Path) -> None:
        path = root / "data" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)

    return change


def flip_byte(name: str, at: int) -> Change:
    """Invert the bits of one byte of a file."""

    def change(root: Path) -> None:
        data = bytearray((root / "data" / name).read_bytes())
        data[at] ^= 0xFF
        (root / "data" / name).write_bytes(data)

    return change


def make_pipe(name: str) -> Change:
    """Replace a file by a named pipe."""

    def change(root: Path) -> None:
        (root / "data" / name).unlink(missing_ok=True)
        os.mkfifo(root / "data" / name)

    return change


def make_dir(name: str) -> Change:
    """Replace a file by a directory that is not empty."""

    def change(root: Path) -> None:
        (root / "data" / name).unlink(missing_ok=True)
        (root / "data" / name).mkdir()
        (root / "data" / name / "file").write_bytes(b"x")

    return change


def make_sparse(name: str) -> Change:
    """Extend a file to a sparse one of 2^40 bytes."""

    def change(root: Path) -> None:
        (root / "data" / name).touch()
        os.truncate(root / "data" / name, 1 << 40)

    return change


def symlink(name: str, target: str = "../outside/secret") -> Change:
    """Replace a file by a symbolic link. `target` is relative to the data folder."""

    def change(root: Path) -> None:
        path = root / "data" / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(os.path.relpath(root / "data" / target, path.parent))

    return change


def remove_file(name: str) -> Change:
    return lambda root: (root / "data" / name).unlink()


def edit_registry(edit: Callable[[dict[str, object]], object]) -> Change:
    def change(root: Path) -> None:
        path = root / "data" / REGISTRY
        content = json.loads(path.read_bytes())
        edit(content)
        path.write_text(json.dumps(content))

    return change


def set_payments(**fields: object) -> Callable[[dict[str, object]], object]:
    """Return an edit of the registry that sets fields of `payments`, whose directories stay unchanged."""

    def edit(content: dict[str, object]) -> None:
        topics: list[dict[str, object]] = content["topics"]  # type: ignore[assignment]
        next(topic for topic in topics if topic["name"] == "payments").update(fields)

    return edit


def write_takeover(**fields: object) -> Change:
    partition = {"topic": "orders", "partition": 0, "log_end_offset": 0, "cut_end": 1, "leader_epoch": 1, **fields}
    return write_file(TAKEOVER, json.dumps({"version": 0, "done": False, "partitions": [partition]}).encode())


def all_of(*changes: Change) -> Change:
    return lambda root: [change(root) for change in changes]


def without_registry(change: Change) -> Change:
    return all_of(remove_file(REGISTRY), change)


def empty_file(name: str) -> Change:
    return write_file(name, b"")


def replace_directory(name: str, other: Callable[[str], Change]) -> Change:
    def change(root: Path) -> None:
        shutil.rmtree(root / "data" / name)
        other(name)(root)

    return change


def create_dir(name: str, **files: bytes) -> Change:
    """Create a directory with these files."""

    def change(root: Path) -> None:
        (root / "data" / name).mkdir()
        for file, data in files.items():
            (root / "data" / name / file).write_bytes(data)

    return change


def change_tier(suffix: str, change: Callable[[Path], object]) -> Change:
    def every(root: Path) -> None:
        found = [path for path in (root / "tier").rglob(f"*{suffix}") if f"/{TIERED[1]}/" in str(path)]
        assert found
        for path in found:
            change(path)

    return every


def replace_file(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def lose_log(change: Change) -> Change:
    """Remove the local log of tiered-0, which a start restores from the tier, and apply `change`."""
    return all_of(lambda root: shutil.rmtree(root / "data" / "tiered-0"), change)


def remove_remote_segments(root: Path) -> None:
    """Remove all remote segments of tiered-0."""
    for path in (root / "tier").glob("tiered-*/0"):
        shutil.rmtree(path)


def append_records(topic: str, *values: tuple[bytes | None, bytes | None]) -> Change:
    def change(root: Path) -> None:
        with HostileBroker(root) as running:
            running.write_records(topic, *values)

    return change


BAD_GROUPS = all_of(append_records(OFFSETS_TOPIC, (b"k", b"v")), flip_byte(FIRST_LOG.format(OFFSETS_TOPIC), 65))
DAMAGES: dict[str, Damage] = {
    # checkpoints, which say where recovery begins and where a log starts
    **{
        f"{name}: a pipe": Damage(make_pipe(name), "not a regular file; the checkpoint is treated")
        for name in CHECKPOINTS
    },
    **{f"{name}: a directory": Damage(make_dir(name), f"{name} is a directory, expected") for name in CHECKPOINTS[:3]},
    "a directory in place of a checkpoint written aside": Damage(make_dir(f"{CHECKPOINTS[0]}.tmp"), "is a directory"),
    "a checkpoint: 2^40 bytes": Damage(make_sparse(CHECKPOINTS[0]), "and no broker writes so many"),
    "a checkpoint of 2^31-1 entries": Damage(write_file(CHECKPOINTS[1], b"0\n2147483647\n"), "is treated as empty"),
    "a checkpoint of a later version": Damage(write_file(CHECKPOINTS[0], b"99\n0\n"), "version"),
    "a checkpoint of partitions that are paths": Damage(
        write_file(CHECKPOINTS[0], b"0\n2\n../outside/victim 0 5\norders 2147483647 9223372036854775807\n")
    ),
    "a checkpoint of bytes": Damage(write_file(CHECKPOINTS[2], bytes(range(256)) * 9), "is treated as empty"),
    "a recovery point beyond the end": Damage(write_file(CHECKPOINTS[0], b"0\n1\norders 0 9223372036854775807\n")),
    "a log start beyond the end": Damage(write_file(CHECKPOINTS[1], b"0\n1\norders 0 9223372036854775806\n")),
    "a link in place of a checkpoint written aside": Damage(symlink(f"{CHECKPOINTS[0]}.tmp")),
    "a link in place of a checkpoint": Damage(symlink(CHECKPOINTS[2]), "is treated as empty"),
    # the other files of a log directory
    "the marker is a directory": Damage(make_dir(MARKER), "was not shut down cleanly"),
    "the marker is a link": Damage(symlink(MARKER), clean=True),
    "the registry is a pipe": Damage(make_pipe(REGISTRY), "is kept as"),
    "the registry is a directory": Damage(make_dir(REGISTRY), "is kept as"),
    "the registry is nested too deep": Damage(write_file(REGISTRY, b"[" * 100_000), "is kept as"),
    "the registry is cut": Damage(write_file(REGISTRY, b'{"version": 0, "generation": 3, "topics": ['), "is kept as"),
    "a registry of 2^31-1 partitions": Damage(edit_registry(set_payments(partitions=2**31 - 1)), "is kept as"),
    "a registry of a topic that is a path": Damage(edit_registry(set_payments(name="../outside/victim")), "is kept as"),
    "a registry with an id of another kind": Damage(edit_registry(set_payments(id="../../outside")), "is kept as"),
    "a registry whose configuration is none": Damage(
        edit_registry(set_payments(configs={"retention.ms": "never"})), "payments-0.*retention.ms",
        (("payments", 0), ("payments", 1)),
    ),
    "a registry with a topic less": Damage(
        edit_registry(lambda content: content["topics"].pop(-1)),  # type: ignore[attr-defined]
    ),
    "no registry": Damage(without_registry(lambda root: None), "the topic registry is missing"),
    "meta.properties without a directory id": Damage(
        write_file("meta.properties", b"version=1\nnode.id=1\ncluster.id=abcdefghijklmnopqrstuv\n")
    ),
    "meta.properties with more than is known": Damage(
        write_file("meta.properties", b"version=1\nnode.id=1\ncluster.id=abcdefghijklmnopqrstuv\nx\x1b=../../y\n")
    ),
    "no meta.properties": Damage(remove_file("meta.properties")),
    "meta.properties written aside is a link": Damage(
        all_of(remove_file("meta.properties"), symlink("meta.properties.tmp"))
    ),
    "the index cache is a link": Damage(symlink("remote-log-index-cache", "../outside")),
    "the index cache is a file": Damage(replace_directory("remote-log-index-cache", empty_file)),
    "producer ids that are none": Damage(write_file("kafkalog.producer-ids", b"\xff\x1b[31m"), "IDs begin above those"),
    "producer ids are a directory": Damage(make_dir("kafkalog.producer-ids"), "IDs begin above those"),
    "a takeover that is none": Damage(write_file(TAKEOVER, b"[" * 100_000), "is kept as"),
    "a takeover of another kind": Damage(write_takeover(log_end_offset="0", leader_epoch=[1]), "is kept as"),
    "a takeover of a topic that is a path": Damage(write_takeover(topic="../outside/victim")),
    "a takeover of a partition that is not there": Damage(write_takeover(partition=2**31 - 1)),
    "where the tier lies is a directory": Damage(make_dir("kafkalog.remote-storage.properties"), "expected a file"),
    # names in a log directory
    "a partition beyond all others": Damage(create_dir("orders-2147483647"), "orders-2147483647 is not served"),
    "an unknown topic's largest partition": Damage(create_dir("new-2147483647"), "new-2147483647 is not served"),
    "a partition beyond 32 bits": Damage(create_dir("new-2147483648")),
    "no registry and a partition beyond all others": Damage(
        without_registry(create_dir("__consumer_offsets-2000000000")), "__consumer_offsets-2000000000 is not served"
    ),
    "directories with strange names": Damage(
        lambda root: [create_dir(name)(root) for name in (
            "-0", "..-0", "a\nb\x1b[31m-0", "orders-00", "orders--1", "orders-0.x-stray", "ö-0", "x" * 250, "orders- 1",
        )], "because it is a -stray directory",
    ),
    "a name that is not UTF-8": Damage(lambda root: os.mkdir(os.fsencode(root / "data") + b"/p\xff-0")),
    "a deleted partition that is a link": Damage(symlink(f"orders-0.{32 * 'a'}-delete", "../outside")),
    "a partition is a link to elsewhere": Damage(
        symlink("orders-0", "../outside/victim-0"), "orders-0 is a symbolic link", (ORDERS,)
    ),
    "a partition is a link to another": Damage(
        symlink("orders-0", "orders-1"), "orders-0 is a symbolic link", (ORDERS,)
    ),
    "a partition is a link to itself": Damage(symlink("orders-0", "orders-0"), "orders-0 already exists", (ORDERS,)),
    "a partition is a file": Damage(replace_directory("orders-0", empty_file), "orders-0 already exists", (ORDERS,)),
    "a partition is a pipe": Damage(replace_directory("orders-0", make_pipe), "orders-0 already exists", (ORDERS,)),
    # files of a partition
    "partition.metadata: a pipe": Damage(make_pipe("orders-0/partition.metadata"), "using the topic ID"),
    "partition.metadata: a directory": Damage(make_dir("orders-0/partition.metadata"), "using the topic ID"),
    "partition.metadata: nonsense": Damage(
        write_file("orders-0/partition.metadata", b"\x1b[2J" * 99), "using the topic"
    ),
    "partition.metadata of another topic": Damage(
        write_file("orders-0/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"),
        "orders-0 is not served", (ORDERS,),
    ),
    "no registry, and no id in partition 0": Damage(
        without_registry(write_file("orders-0/partition.metadata", b"")), "using the topic ID"
    ),
    "leader epochs: a pipe": Damage(
        make_pipe("orders-0/leader-epoch-checkpoint"), "rebuilding leader epochs from the log"
    ),
    "leader epochs: a directory": Damage(make_dir("orders-0/leader-epoch-checkpoint"), "is a directory, expected"),
    "leader epochs that fall": Damage(write_file("orders-0/leader-epoch-checkpoint", b"0\n2\n9 5\n3 900\n")),
    "2^31-1 leader epochs": Damage(
        write_file("orders-0/leader-epoch-checkpoint", b"0\n2147483647\n"), "rebuilding leader epochs from the log"
    ),
    "leader epochs written aside are a link": Damage(symlink("orders-0/leader-epoch-checkpoint.tmp")),
    "a log is a pipe": Damage(make_pipe(LOG), "is not a regular file", (ORDERS,)),
    "a log is a directory": Damage(make_dir(LOG), "is not a regular file", (ORDERS,)),
    "a log is a link": Damage(symlink(LOG, "../outside/victim-0/00000000000000000000.log"), "symbolic link", (ORDERS,)),
    "a log is a link, after a clean stop": Damage(
        symlink(LOG, "../outside/victim-0/00000000000000000000.log"), "", (ORDERS,), clean=True
    ),
    "a log is a pipe, after a clean stop": Damage(make_pipe(LOG), "", (ORDERS,), clean=True),
    "a log of 2^40 zeros": Damage(make_sparse(LOG)),
    "a log of zeros": Damage(write_file(LOG, bytes(1 << 16))),
    "a log of 2^31-1 bytes in a batch": Damage(write_file(LOG, bytes(8) + b"\x7f\xff\xff\xff" + bytes(200))),
    "a bad batch": Damage(flip_byte(LOG, 70)),
    "a segment at the largest offset": Damage(write_file("orders-0/09223372036854775807.log", b"")),
    "a segment beyond 64 bits": Damage(write_file("orders-0/99999999999999999999.log", b"x")),
    "an offset index: a pipe": Damage(make_pipe(f"{STEM}.index"), "is not a regular file", (ORDERS,)),
    "an offset index: a link": Damage(symlink(f"{STEM}.index")),
    "an offset index: a link, after a clean stop": Damage(symlink(f"{STEM}.index"), clean=True),
    "an offset index: a directory": Damage(make_dir(f"{STEM}.index"), "is not a regular file", (ORDERS,)),
    "an offset index of bytes": Damage(write_file(f"{STEM}.index", bytes(range(1, 250)))),
    "a time index: a link": Damage(symlink(f"{STEM}.timeindex")),
    "a time index: a link, after a clean stop": Damage(symlink(f"{STEM}.timeindex"), "", (ORDERS,), clean=True),
    "a transaction index of bytes": Damage(write_file(f"{STEM}.txnindex", bytes(range(1, 250)))),
    "a transaction index: a pipe": Damage(make_pipe(f"{STEM}.txnindex")),
    "a transaction index: a pipe, after a clean stop": Damage(make_pipe(f"{STEM}.txnindex"), clean=True),
    "a producer snapshot of bytes": Damage(write_file(SNAPSHOT, bytes(range(1, 250)))),
    "a producer snapshot: a directory": Damage(make_dir(SNAPSHOT)),
    "a producer snapshot: a pipe": Damage(make_pipe(SNAPSHOT)),
    "a producer snapshot of 2^40 bytes": Damage(make_sparse(SNAPSHOT)),
    "a snapshot at the largest offset": Damage(write_file("orders-0/09223372036854775807.snapshot", b"")),
    "an unfinished cleaning is a directory": Damage(make_dir(f"{LOG}.cleaned"), "orders-0", (ORDERS,)),
    "a swap file is a pipe": Damage(make_pipe(f"{LOG}.swap"), "orders-0", (ORDERS,)),
    "files with strange names": Damage(write_file("orders-0/a\nb\x1b[31m.log", b"")),
    # the metadata log of a cluster, which producer ids are taken from
    "a metadata log of pipes": Damage(
        all_of(create_dir("__cluster_metadata-0"), make_pipe("__cluster_metadata-0/00000000000000000000.log"))
    ),
    # the tier, of a partition whose disk is lost
    "no manifests": Damage(lose_log(change_tier(".rsm-manifest", os.unlink)), "tiered-0 is offline", (TIERED,)),
    "manifests of bytes": Damage(
        lose_log(change_tier(".rsm-manifest", lambda path: path.write_bytes(b"\xff\x1b[31m"))),
        "tiered-0 is offline", (TIERED,),
    ),
    "manifests that are nested too deep": Damage(
        lose_log(change_tier(".rsm-manifest", lambda path: path.write_bytes(b"[" * 100_000))),
        "tiered-0 is offline", (TIERED,),
    ),
    "manifests are pipes": Damage(
        lose_log(change_tier(".rsm-manifest", replace_file(os.mkfifo))),
        "tiered-0 is offline", (TIERED,),
    ),
    "manifests are directories": Damage(
        lose_log(change_tier(".rsm-manifest", replace_file(os.mkdir))),
        "tiered-0 is offline", (TIERED,),
    ),
    "manifests are links to elsewhere": Damage(
        lose_log(change_tier(
            ".rsm-manifest", replace_file(lambda path: path.symlink_to(path.parents[3] / "outside" / "secret"))
        )), "tiered-0 is offline.*symbolic link leads out", (TIERED,),
    ),
    "manifests of 2^40 bytes": Damage(
        lose_log(change_tier(".rsm-manifest", lambda path: os.truncate(path, 1 << 40))),
        "tiered-0 is offline", (TIERED,),
    ),
    "indexes of bytes": Damage(
        lose_log(change_tier(".indexes", lambda path: path.write_bytes(b"\xff" * 9))),
        "tiered-0 is offline", (TIERED,),
    ),
    "no segments in the tier": Damage(lose_log(remove_remote_segments), "tiered-0 is offline", (TIERED,)),
    # records that no coordinator wrote
    "groups: nonsense": Damage(append_records(
        OFFSETS_TOPIC, (b"", b""), (None, None), (b"\0\1\xff\xff", b"\xff" * 9), (b"\x7f\xff" * 9, b"x"),
        (b"\0\2\0\1g", b"\0\3" + b"\x7f" * 40),
        (b"\0\1\0\1g\0\x11../outside/victim\xff\xff\xff\xff", b"\0\3" + bytes(40)),
    )),
    "transactions: nonsense": Damage(append_records(
        TRANSACTION_TOPIC, (b"", b""), (None, b"x"), (b"\0\0\0\1t", b"\0\0" + b"\x7f" * 60), (b"\0\0\xff\xff", b"x"),
        (b"\0\0\0\1u", b"\0\0" + bytes(16) + b"\7\0\0\0\0\x7f\xff\xff\xff"), (b"\x7f\xff", None),
    )),
    "share groups: nonsense": Damage(append_records(
        SHARE_STATE_TOPIC, (b"", b""), (None, b"x"), (b"\0\0\xff", b"x"),
        (b"\0\1" + b"\xff" * 30, b"\0\1" + b"\xff" * 30),
    )),
    "groups: a bad batch": Damage(BAD_GROUPS),
    "groups: a bad batch, after a clean stop": Damage(
        BAD_GROUPS, "the groups of __consumer_offsets-0 cannot be loaded", clean=True,
    ),
    "transactions: a log that is a pipe": Damage(
        make_pipe(FIRST_LOG.format(TRANSACTION_TOPIC)), "the transactions of __transaction_state-0 cannot be loaded"
    ),
    "share groups: a log that is a link": Damage(
        symlink(FIRST_LOG.format(SHARE_STATE_TOPIC)), "the share partitions of __share_group_state-0 cannot be loaded"
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_start_over_damage_serves_healthy_partitions_names_the_others_and_touches_nothing_outside(
    broker_root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Damage
) -> None:
    root = copy_of(broker_root, tmp_path / "broker")
    damage.change(root)
    if not damage.clean and (root / "data" / MARKER).is_file():
        (root / "data" / MARKER).unlink()
    before, names = contents(root / "outside"), names_in(root)
    began = time.process_time()
    with caplog.at_level(logging.INFO), HostileBroker(root) as running:
        took = time.process_time() - began
        assert unserved(running, [key for key in PARTITIONS if key not in damage.offline]) == {}
        for key in damage.offline:
            assert running.produce(*key) == "kafka_storage_error"
            assert running.fetch(*key)[0] == "kafka_storage_error"
        running.tick()
    assert took < CPU_S
    assert re.search(damage.says, caplog.text)
    assert "\x1b" not in caplog.text
    assert (contents(root / "outside"), names_in(root)) == (before, names)


def test_table_of_damages_has_at_least_50_entries() -> None:
    assert len(DAMAGES) >= 50
