"""A log directory that says where its segments are copied to: read as one log, also while they move."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_spark.errors import NotALogDirectory, OptionError
from kafkalog_spark.format.meta_properties import parse_properties
from kafkalog_spark.format.names import REMOTE_STORAGE_FILE
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.segment_file import SegmentFile
from kafkalog_spark.log.remote.remote_storage_options import CLASS_NAME, LOCAL_TIERED_CLASS, RemoteStorageOptions
from kafkalog_spark.log.remote.tiered_log import TieredLog
from kafkalog_spark.log.tiered.object_keys import Layout
from kafkalog_spark.log.tiered.tier_options import TierOptions
from kafkalog_spark.store.storage_options import StorageOptions
from tests.log.remote.moving_log import DATE, MovingLog
from tests.log.tiered.aiven_writer import KEY_ID, KEYS
from tests.log.tiered.golden_tiered import CLEAN
from tests.log.tiered.reading import WITH_KEY, consumed, opened, rows_of
from tests.store.buckets import s3_options
from tests.store.s3_server import S3Server

PREFIXED = {"rsm.config.key.prefix": "cluster/one-"}
LAYOUTS: dict[str, dict[str, str]] = {
    "aiven": {},
    "aiven prefix zstd": {**PREFIXED, "rsm.config.compression.enabled": "true"},
    "aiven encrypted": {
        "rsm.config.encryption.enabled": "true",
        "rsm.config.encryption.key.pair.id": KEY_ID,
        "rsm.config.encryption.key.pairs": KEY_ID,
        f"rsm.config.encryption.key.pairs.{KEY_ID}.private.key.file": str(KEYS / "one.pem"),
    },
    "local-tiered": {CLASS_NAME: LOCAL_TIERED_CLASS},
}
S3 = {"rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage"}
TIER = {**S3, "rsm.config.storage.s3.bucket.name": "tier"}
layouts = pytest.mark.parametrize("properties", LAYOUTS.values(), ids=LAYOUTS)
ONE_KEY = "rsm.config.encryption.key.pairs.one.private.key.file"
TWO_KEYS = {
    "rsm.config.encryption.enabled": "true",
    "rsm.config.encryption.key.pairs": "one,two",
    ONE_KEY: "/keys/one.pem",
    "rsm.config.encryption.key.pairs.two.private.key.file": "/keys/two.pem",
}
TOPIC = "transactions"
ALL = consumed(CLEAN, TOPIC)


@layouts
@pytest.mark.parametrize("moved", [0, 3, 100])
def test_log_directory_path_alone_reads_local_and_remote_segments(
    tmp_path: Path, properties: dict[str, str], moved: int
) -> None:
    log = MovingLog(tmp_path, TOPIC, properties)
    log.move(moved)
    for committed in (False, True):
        read = rows_of(opened(log.data, topic=TOPIC, tier=WITH_KEY), committed=committed)
        assert read == consumed(CLEAN, TOPIC, committed=committed)
    assert rows_of(opened(log.data / f"{TOPIC}-0", topic=TOPIC, tier=WITH_KEY)) == ALL


@layouts
@pytest.mark.parametrize("at_once", [1, 2])
def test_segments_moved_during_a_read_are_read_once(
    tmp_path: Path, properties: dict[str, str], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one when it is about to be opened, and others with it."""
    log = MovingLog(tmp_path, TOPIC, properties)
    partition = opened(log.data, topic=TOPIC, tier=WITH_KEY)
    open_segment = TieredLog.open_segment

    def move_and_open(self: TieredLog, index: int) -> SegmentFile:
        log.move(at_once)
        return open_segment(self, index)

    monkeypatch.setattr(TieredLog, "open_segment", move_and_open)
    assert rows_of(partition) == ALL
    assert not log.segments


def test_planned_task_reads_segments_moved_since(tmp_path: Path) -> None:
    log = MovingLog(tmp_path, TOPIC, {})
    partition = LogDirs.open(log.data).locations[TOPIC, 0].open()
    task = partition.location_for(0, partition.log_end_offset)
    log.move(100)
    assert rows_of(task.open()) == ALL


def test_fully_local_log_sends_no_remote_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MovingLog(tmp_path, TOPIC, {})
    monkeypatch.setattr("kafkalog_spark.log.remote.part_finder.RemoteDirListing.list_segments", pytest.fail)
    assert rows_of(opened(log.data, topic=TOPIC, tier=WITH_KEY)) == ALL


def test_layout_broker_reads_only_local_segments(tmp_path: Path) -> None:
    log = MovingLog(tmp_path, TOPIC, {})
    log.move(3)
    rows = rows_of(opened(log.data, topic=TOPIC, tier=TierOptions.of({"layout": "broker"})))
    assert rows == [row for row in ALL if row["offset"] >= log.segments[0].start_offset]


def test_missing_remote_storage_is_an_error(tmp_path: Path) -> None:
    log = MovingLog(tmp_path, TOPIC, {})
    log.move(3)
    (tmp_path / "tier").rename(tmp_path / "elsewhere")
    with pytest.raises(NotALogDirectory, match=r"does not exist, but the log directory names it"):
        opened(log.data, topic=TOPIC, tier=WITH_KEY)


def test_recorded_file_contains_no_secret_and_round_trips() -> None:
    secret = "s3cr3t-access-key"
    given = {
        **S3,
        "rsm.config.storage.s3.bucket.name": "tier",
        "rsm.config.storage.s3.endpoint.url": "http://127.0.0.1:9",
        "rsm.config.storage.aws.access.key.id": secret,
        "rsm.config.storage.aws.secret.access.key": secret,
        "log.dirs": "/elsewhere",
    }
    options = RemoteStorageOptions.of(given)
    written = options.recorded_file(DATE).decode()
    assert secret not in written
    assert secret not in repr(options)
    assert "log.dirs" not in written
    again = RemoteStorageOptions.of_recorded(parse_properties(written.encode()))
    assert (again.root, again.layout, again.recorded) == ("s3://tier", options.layout, options.recorded)


@pytest.mark.parametrize("key_id", ["one", "two"])
def test_key_pair_of_new_segments_is_the_configured_one(key_id: str) -> None:
    options = RemoteStorageOptions.of({**TWO_KEYS, "rsm.config.encryption.key.pair.id": key_id}, "/tier")
    assert options.key_id == key_id


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {**TWO_KEYS, "rsm.config.encryption.key.pair.id": "three"},
            r"key.pair.id is 'three', which is not in .*: one, two",
        ),
        ({CLASS_NAME: "org.example.Mine"}, "runs in a JVM only"),
        ({"rsm.config.storage.rot": "/x"}, r"rsm.config.storage.rot.*did you mean 'rsm.config.storage.root'"),
        ({"rsm.config.chunk.size": "0"}, r"rsm.config.chunk.size must be positive"),
        ({"rsm.config.key.prefix": "/a/"}, "none at its start"),
        ({"rsm.config.encryption.enabled": "true"}, r"encryption.key.pair.id is None, which is not in"),
        ({"rsm.config.encryption.key.pairs": "one"}, r"names .one., (and|without) .*key.pairs.one.private.key.file"),
        ({"rsm.config.storage.backend.class": "S3"}, "storage.backend.class is S3"),
        (S3, "storage.s3.bucket.name is missing"),
        (
            {"rsm.config.encryption.key.pairs": "one", ONE_KEY: "-----BEGIN KEY-----\nabc"},
            "private.key.file contains a key",
        ),
        (
            {**TIER, "rsm.config.storage.s3.endpoint.url": "http://me:pw@host"},
            "endpoint.url contains a user, a query or",
        ),
        (
            {**TIER, "rsm.config.storage.s3.endpoint.url": "https://host/?sig=abc"},
            "endpoint.url contains a user, a query",
        ),
        ({CLASS_NAME: LOCAL_TIERED_CLASS, "rsm.config.storage.root": "/x"}, "unknown option 'rsm.config.storage.root'"),
    ],
)
def test_invalid_storage_properties_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as refused:
        RemoteStorageOptions.of(given, "/tier")
    assert not any(secret in str(refused.value) for secret in ("pw", "abc"))


def test_storage_without_a_folder_is_refused() -> None:
    with pytest.raises(OptionError, match=r"rsm.config.storage.root is missing"):
        RemoteStorageOptions.of({})


def test_check_covers_local_and_remote_segments(tmp_path: Path) -> None:
    log = MovingLog(tmp_path, TOPIC, {"rsm.config.compression.enabled": "true"})
    log.move(4)
    result = check_log_dirs([log.data])
    assert not result.findings.kept
    assert result.partitions[TOPIC, 0].records >= len(ALL)
    damaged = next((tmp_path / "tier").rglob("*.log"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert check_log_dirs([log.data]).findings.kept


def test_bucket_is_read_with_the_readers_credentials(tmp_path: Path, s3: S3Server) -> None:
    properties = {
        **S3,
        "rsm.config.storage.s3.bucket.name": "tier",
        "rsm.config.storage.s3.endpoint.url": s3.endpoint,
        "rsm.config.storage.aws.access.key.id": s3.access_key,
        "rsm.config.storage.aws.secret.access.key": s3.secret_key,
        **PREFIXED,
    }
    log = MovingLog(tmp_path, TOPIC, properties)
    log.move(100)
    assert s3.secret_key.encode() not in (log.data / REMOTE_STORAGE_FILE).read_bytes()
    with pytest.raises(OptionError, match=rf"give the options tiered.root=s3://tier fs.s3a.endpoint={s3.endpoint} "):
        opened(log.data, topic=TOPIC)
    tier = TierOptions.of({"tiered.root": "s3://tier"})
    dirs = LogDirs.open(log.data, StorageOptions.of(s3_options(s3)), tier)
    assert rows_of(dirs.partition(TOPIC, 0)) == ALL


@pytest.mark.parametrize("content", [None, b"", b"damaged"], ids=["missing", "empty", "damaged"])
def test_unreadable_topic_id_is_an_error_for_remote_segments(tmp_path: Path, content: bytes | None) -> None:
    log = MovingLog(tmp_path, TOPIC, {})
    metadata = log.data / f"{TOPIC}-0" / "partition.metadata"
    if content is None:
        metadata.unlink()
    else:
        metadata.write_bytes(content)
    assert rows_of(LogDirs.open(log.data).partition(TOPIC, 0)) == ALL, "all of the log is on disk"
    log.move(3)
    with pytest.raises(NotALogDirectory, match="are in remote storage and cannot be found") as refused:
        LogDirs.open(log.data).partition(TOPIC, 0)
    assert f"{TOPIC}-0" in str(refused.value)
    assert "layout=broker" in str(refused.value)
    if content is not None:
        findings = check_log_dirs([str(log.data)]).findings
        assert [(finding.path, finding.severity.value) for finding in findings.kept] == [(str(metadata), "error")]
    only_local = rows_of(opened(log.data, topic=TOPIC, tier=TierOptions(layout=Layout.BROKER)))
    assert 0 < len(only_local) < len(ALL)
