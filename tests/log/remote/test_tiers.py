"""Tiers in a bucket: every record equal, at how many requests, and no secret told."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from kafkalog_spark.errors import KeyNotGiven
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.source.batch_reader import KafkaLogBatchReader
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.planning import plan
from kafkalog_spark.source.read_schema import load_schema
from kafkalog_spark.source.resolved_read import ResolvedRead
from kafkalog_spark.source.row_filter import RowFilter
from kafkalog_spark.source.split import Split
from kafkalog_spark.store.storage_options import StorageOptions
from tests.log.tiered.aiven_writer import KEY_ID, KEYS, AivenMode
from tests.log.tiered.golden_tiered import CLEAN
from tests.log.tiered.reading import WITH_KEY, aiven_tree, consumed, readable, rows_of
from tests.store.buckets import s3_options
from tests.store.fault_proxy import FaultProxy, Seen
from tests.store.s3_server import S3Server

KEY_OPTION_PREFIX = f"tiered.encryption.key.{KEY_ID}"
MODES = (None, *AivenMode)  # None: LocalTieredStorage's layout
modes = pytest.mark.parametrize("mode", MODES, ids=lambda mode: "local-tiered" if mode is None else mode.name.lower())


@pytest.fixture(scope="module")
def tier(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Callable[[AivenMode | None], str]:
    """URL of the golden tier in the bucket, in one of the modes."""
    made: dict[AivenMode | None, str] = {}

    def url(mode: AivenMode | None) -> str:
        if mode not in made:
            name = "local-tiered" if mode is None else mode.name.lower()
            root = CLEAN.remote if mode is None else aiven_tree(CLEAN, tmp_path_factory.mktemp(name), mode, 3000)
            files = s3.file_system()
            for path in root.rglob("*"):
                if path.is_file():
                    with files.open_output_stream(f"tier/tiers/{name}/{path.relative_to(root)}") as target:
                        target.write(path.read_bytes())
            made[mode] = f"s3://tier/tiers/{name}"
        return made[mode]

    return url


@modes
@pytest.mark.parametrize("with_local", [False, True])
def test_records_of_a_bucket_tier_equal_the_consumers(
    mode: AivenMode | None, with_local: bool, s3: S3Server, tier: Callable[[AivenMode | None], str]
) -> None:
    roots = [*([str(CLEAN.data)] if with_local else []), tier(mode)]
    dirs = LogDirs.open(roots, StorageOptions.of(s3_options(s3)), WITH_KEY)
    for topic in ("codecs", "transactions", "recreated"):
        for committed in (False, True):
            log = dirs.partition(topic, 0)
            rows = rows_of(log, committed=committed)
            end = 2**63 if with_local else rows[-1]["offset"] + 1
            assert rows == consumed(CLEAN, topic, committed=committed, end=end)


def gets(seen: list[Seen], suffix: str) -> int:
    return sum(one.method == "GET" and one.path.endswith(suffix) for one in seen)


def test_range_requests_only_its_segments(
    s3: S3Server, proxy: FaultProxy, tier: Callable[[AivenMode | None], str]
) -> None:
    asked = {
        **s3_options(s3, proxy),
        KEY_OPTION_PREFIX: str(KEYS / "one.pem"),
        "path": tier(AivenMode.ZSTD_ENCRYPTED),
        "assign": '{"transactions":[0]}',
    }
    segments = sorted(s.start_offset for s in readable(CLEAN) if s.partition.topic == "transactions")
    assert len(segments) > 10
    middle = segments[5]
    asked["startingOffsets"] = f'{{"transactions":{{"0":{middle}}}}}'
    asked["endingOffsets"] = f'{{"transactions":{{"0":{middle + 20}}}}}'
    splits = plan(parse_read_options(asked), RowFilter())
    planned = list(proxy.seen)
    topics = len({segment.partition[:2] for segment in readable(CLEAN)})
    # the root, each topic for its partitions, and the partition
    assert sum("list-type" in one.query for one in planned) == 1 + topics + 1
    # the last one, for where the log ends and by which leader epochs; the one that is read, and how much of it
    assert (gets(planned, ".rsm-manifest"), gets(planned, ".indexes"), gets(planned, ".log")) == (2, 2, 0)
    assert [row["offset"] for row in _read(asked, splits)] == list(range(middle, middle + 20))
    of_task = list(proxy.seen)[len(planned) :]
    assert all(f"/{middle:020d}-" in one.path for one in of_task)  # nothing is listed or asked about again
    assert gets(of_task, ".rsm-manifest") == 0
    assert gets(of_task, ".log") >= 1


def _read(asked: dict[str, str], splits: list[Split]) -> list[dict[str, Any]]:
    options = parse_read_options(asked)
    read = ResolvedRead(options, {}, load_schema(options, {}))
    reader = pickle.loads(pickle.dumps(KafkaLogBatchReader(read)))
    splits = pickle.loads(pickle.dumps(splits))  # as a task gets them
    return [row for batch in reader.read(InputPartition(splits)) for row in batch.to_pylist()]


def test_task_up_to_latest_lists_once_and_requests_no_planned_manifest(
    s3: S3Server, proxy: FaultProxy, tier: Callable[[AivenMode | None], str]
) -> None:
    asked = {**s3_options(s3, proxy), "path": tier(AivenMode.ZSTD), "assign": '{"plain":[1]}'}
    splits = plan(parse_read_options(asked), RowFilter())
    planned = len(proxy.seen)
    assert [row["offset"] for row in _read(asked, splits)] == list(range(900))
    of_task = proxy.seen[planned:]
    assert gets(of_task, ".rsm-manifest") == 0
    assert sum("list-type" in one.query for one in of_task) == 1


def test_timestamp_range_requests_manifests_and_only_matching_segments(
    s3: S3Server, proxy: FaultProxy, tier: Callable[[AivenMode | None], str]
) -> None:
    url = tier(AivenMode.ZSTD)
    rows = CLEAN.records("plain", 0)
    since = sorted(row["timestamp"] for row in rows)[-40]
    asked = {**s3_options(s3, proxy), "path": url, "assign": '{"plain":[0]}'}
    segments = [s for s in readable(CLEAN) if s.partition[::2] == ("plain", 0)]
    splits = plan(parse_read_options(asked), RowFilter(timestamp_from_ms=since))
    assert gets(proxy.seen, ".rsm-manifest") == len(segments)
    assert gets(proxy.seen, ".log") == 0
    wanted = [segment for segment in segments if segment.max_timestamp >= since]
    assert 0 < len(wanted) < len(segments)
    assert sum(split.range.size for split in splits) <= sum(s.until - s.start_offset for s in wanted)


def test_check_reads_tiers_in_buckets(s3: S3Server, tier: Callable[[AivenMode | None], str]) -> None:
    result = check_log_dirs(
        [tier(AivenMode.ZSTD_ENCRYPTED)], StorageOptions.of(s3_options(s3)), WITH_KEY, decode_records=True
    )
    assert result.findings.errors == 0
    assert sum(of.segments for of in result.partitions.values()) == len(readable(CLEAN))


def test_secrets_appear_in_no_log_or_error(
    s3: S3Server, tier: Callable[[AivenMode | None], str], caplog: pytest.LogCaptureFixture
) -> None:
    pem = (KEYS / "one.pem").read_text()
    canaries = [pem.splitlines()[1], pem.splitlines()[-2], s3.secret_key]
    options = {**s3_options(s3), KEY_OPTION_PREFIX: pem, "path": tier(AivenMode.ENCRYPTED), "subscribe": "headers"}
    told = []
    with caplog.at_level(logging.DEBUG):
        parsed = parse_read_options(options)
        splits = plan(parsed, RowFilter())
        log = splits[0].location.open()
        told += [repr(parsed), repr(splits), str(splits), repr(log), repr(vars(log)), repr(parsed.tier)]
        assert _read(options, splits)
        wrong = {**options, KEY_OPTION_PREFIX: pem.replace("\n", "x\n")}
        for asked in (wrong, {name: text for name, text in options.items() if name != KEY_OPTION_PREFIX}):
            with pytest.raises(Exception, match=r"tiered\.encryption\.key") as refused:
                plan(parse_read_options(asked), RowFilter())
            told.append(str(refused.value) + repr(refused.value))
    told.append(caplog.text)
    assert not [text for text in told if any(canary in text for canary in canaries)]
    assert pem.splitlines()[1].encode() in pickle.dumps(splits)  # tasks need it


def test_missing_encryption_key_is_named(s3: S3Server, tier: Callable[[AivenMode | None], str]) -> None:
    dirs = LogDirs.open(tier(AivenMode.ENCRYPTED), StorageOptions.of(s3_options(s3)))
    with pytest.raises(KeyNotGiven, match=f"set the option {KEY_OPTION_PREFIX}"):
        dirs.partition("headers", 0)
