"""Idempotent producers after a kill at any step of rolls and deletions: they continue, and retries are duplicates."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broker.storage.helpers.followed_logs import before_each_change
from tests.broker.storage.helpers.stored_logs import HOUR, NOW, new_log, producer, reopened

SETTINGS = {"retention_ms": 10 * HOUR, "segment_bytes": 700, "index_interval_bytes": 100}
QUICK, SLOW, PAUSED = 7, 8, 9
RECORDS = 2  # of a batch


class Sent(NamedTuple):
    """The last batch that was acknowledged to a producer."""

    base_offset: int
    sequence: int


class Killed(NamedTuple):
    """Copy of the log at the time of a kill, with the batches acknowledged and the checkpoints written until then."""

    place: Path
    sent: dict[int, Sent]
    recovery_point: int
    log_start_offset: int


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))])
def test_idempotent_producer_continues_after_a_kill_at_any_step_of_roll_and_deletion(seed, tmp_path):
    """The recovery starts from the recovery point and log start offset of a random earlier checkpoint."""
    chance = random.Random(seed)
    log, now = new_log(tmp_path / "live", **SETTINGS), NOW
    copies: list[Killed] = []
    sent: dict[int, Sent] = {}
    known = [(0, 0)]  # recovery point, log start offset

    def kill():
        if chance.random() < 0.3:
            place = tmp_path / f"killed {len(copies)}"
            shutil.copytree(log.directory, place / "orders-0")
            copies.append(Killed(place, dict(sent), chance.choice(known)[0], chance.choice(known)[1]))

    def send(pid):
        sequence = sent[pid].sequence + RECORDS if pid in sent else 0
        info = log.append(producer(sequence, RECORDS, pid=pid, timestamp=now), now)
        sent[pid] = Sent(info.base_offset, sequence)

    send(PAUSED)
    with before_each_change(kill):
        for _ in range(40):
            send(chance.choice((QUICK, QUICK, QUICK, SLOW)))
            now += HOUR
            what = chance.random()
            if what < 0.15:
                log.flush()
                known.append((log.recovery_point, log.log_start_offset))
            elif what < 0.25:
                if log.local.active.size:
                    log.local.roll(now)
            elif what < 0.3:
                log.delete_records(chance.randrange(log.log_start_offset, log.log_end_offset + 1))
            elif what < 0.6:
                now += 20 * HOUR * (chance.random() < 0.3)
                log.delete_old_segments(now)
    log.discard()
    assert len(copies) > 20
    for killed in copies:
        again = reopened(
            killed.place, now, clean=False, recovery_point=killed.recovery_point,
            log_start_offset=killed.log_start_offset, **SETTINGS,
        )  # fmt: skip
        for pid, last in killed.sent.items():
            repeated = again.append(producer(last.sequence, RECORDS, pid=pid), now)
            assert (repeated.is_duplicate, repeated.base_offset) == (True, last.base_offset)
            again.append(producer(last.sequence + RECORDS, RECORDS, pid=pid), now)
        again.discard()
        shutil.rmtree(killed.place)
