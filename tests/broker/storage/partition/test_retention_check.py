from __future__ import annotations

import random

import pytest

from kafkalog_broker.storage.partition.retention import may_be_due, plan_deletion
from tests.broker.storage.helpers.stored_logs import NOW, log_config, new_log, validated


@pytest.mark.parametrize("seed", range(40))
def test_may_be_due_agrees_with_plan_deletion(tmp_path, seed):
    """Compare may_be_due, which reads closed logs from disk, with plan_deletion."""
    rng = random.Random(seed)
    log = new_log(tmp_path)
    for _ in range(rng.randrange(4)):
        log.append(validated(rng.randint(1, 3), size=rng.randrange(50), timestamp=NOW - rng.randrange(1000)), NOW)
        if rng.random() < 0.6:
            log.local.roll(NOW)
    config = log_config(
        retention_ms=rng.choice([-1, 100, 500, 900, 2000]),
        retention_bytes=rng.choice([-1, 0, 100, 200, 400]),
        cleanup_policy=rng.choice([("delete",), ("compact",), ("compact", "delete"), ()]),
    )
    start = rng.randint(0, log.log_end_offset)
    expected = plan_deletion(
        log.segments,
        config,
        log_start_offset=start,
        high_watermark=log.log_end_offset,
        log_end_offset=log.log_end_offset,
        now_ms=NOW,
    )
    log.close()
    assert may_be_due(log.directory, config, start, NOW) == bool(expected.count)


def test_segment_without_timestamps_has_the_age_of_its_file(tmp_path):
    log = new_log(tmp_path)
    log.append(validated(timestamp=-1), NOW)
    log.close()
    modified = (log.directory / f"{0:020d}.log").stat().st_mtime_ns // 1_000_000
    config = log_config(retention_ms=1000)
    assert not may_be_due(log.directory, config, 0, modified + 1000)
    assert may_be_due(log.directory, config, 0, modified + 1001)


def test_retention_check_of_an_empty_directory_is_not_due(tmp_path):
    assert not may_be_due(tmp_path, log_config(retention_ms=0), 0, NOW)
