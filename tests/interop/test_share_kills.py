"""Share groups under kills (-9) of the broker and of members: what the broker has confirmed as accepted is not given
again, and nothing is lost. `make test-interop` runs it; SHARE_KILLS and SHARE_RECORDS make it shorter.
"""

from __future__ import annotations

import os
import random
import time
from bisect import bisect
from pathlib import Path

import numpy as np
import pytest

from kafkalog_broker.testing import RunningBroker, running_broker
from tests.broker.share.helpers.delivery_counts import DeliveryCounts
from tests.broker.share.helpers.share_script import earliest
from tests.interop.real_kafka import available
from tests.interop.share_workers import Said, ShareWorker, compiled
from tests.interop.test_share_consumers import PROPERTIES, TOPIC, produce

pytestmark = [pytest.mark.skipif(available() is not None, reason=str(available())), pytest.mark.slow]

KILLS = int(os.environ.get("SHARE_KILLS", "30"))
RECORDS = int(os.environ.get("SHARE_RECORDS", "1000000"))
PARTITIONS, WORKERS, LIMIT, GROUP = 4, 3, 10, "workers"
_LAST_S = 240.0


def test_kills_lose_no_record_and_redeliver_no_accepted_one(tmp_path: Path) -> None:
    classes = compiled(tmp_path / "classes")
    properties = {**PROPERTIES, "group.share.delivery.count.limit": LIMIT, "group.share.assignment.interval.ms": 0}
    chance = random.Random(932)
    with running_broker(properties, topics={TOPIC: PARTITIONS}) as broker:
        with broker.connect() as connection:
            earliest(connection, GROUP)
        produce(broker.bootstrap, RECORDS, PARTITIONS)
        workers = [_worker(classes, broker) for _ in range(WORKERS)]
        all_workers = list(workers)
        kills = {"broker": 0, "member": 0}
        killed_at: list[int] = []
        try:
            for _ in range(KILLS):
                time.sleep(chance.uniform(0.3, 1.2))
                killed_at.append(time.monotonic_ns())  # Java's clock too
                if chance.random() < 0.5:
                    broker.kill()
                    broker.start()
                    kills["broker"] += 1
                else:
                    place = chance.randrange(WORKERS)
                    workers[place].kill()
                    workers[place] = _worker(classes, broker)
                    all_workers.append(workers[place])
                    kills["member"] += 1
            end = time.monotonic() + _LAST_S
            while (lag := _lag(broker)) != 0:
                assert time.monotonic() < end, f"{lag} records are left: {[worker.lines[-2:] for worker in workers]}"
                time.sleep(0.5)
        finally:
            for worker in workers:
                worker.stop()
    said = sorted((one for worker in all_workers for one in worker.said()), key=lambda one: one.time)
    given, accepted, counts = _checked(said, killed_at)
    assert given.seen.all(), "records that nobody was given"
    assert given.again
    assert max(counts) <= LIMIT
    unconfirmed = sum(int((times == 0).sum()) for times in accepted)
    print(f"{kills}: {RECORDS} records, {unconfirmed} accepted without its answer, delivery counts {counts}")


def _worker(classes: Path, broker: RunningBroker) -> ShareWorker:
    return ShareWorker(classes, broker.bootstrap, GROUP, TOPIC, "accept", "max.poll.records=2000")


def _lag(broker: RunningBroker) -> int:
    """Records whose delivery is not over; more than there are while the broker does not say."""
    from kio.schema.describe_share_group_offsets.v1.request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )

    asked = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)  # type: ignore[arg-type]
    answer = broker.ask(DescribeShareGroupOffsetsRequest(groups=(asked,)))
    partitions = [one for topic in answer.groups[0].topics for one in topic.partitions]
    if len(partitions) < PARTITIONS or any(one.lag < 0 for one in partitions):
        return RECORDS + 1
    return sum(one.lag for one in partitions)


def _checked(said: list[Said], killed_at: list[int]) -> tuple[DeliveryCounts, list[np.ndarray], dict[int, int]]:
    """How often each record was given, when it was accepted (ns), how many were delivered for which time."""
    size = RECORDS // PARTITIONS
    given = DeliveryCounts(PARTITIONS, size)
    accepted = [np.zeros(size, np.int64) for _ in range(PARTITIONS)]
    counts: dict[int, int] = {}
    for what, at, partition, first, last, count in said:
        run = slice(first, last + 1)
        if what == "G":
            again = np.flatnonzero(accepted[partition][run]) + first
            assert not len(again), f"{partition}: {again[:5]} were given again at {at} after they were accepted"
            # what is polled may have come before a kill, so nobody knows which broker counted
            wrong = given.give(partition, first, last, count, lost=bisect(killed_at, at), life=None)
            assert wrong is None, wrong
            counts[count] = counts.get(count, 0) + last - first + 1
        elif what == "A":
            twice = np.flatnonzero(accepted[partition][run]) + first
            assert not len(twice), f"{partition}: {twice[:5]} were accepted twice"
            accepted[partition][run] = at
    return given, accepted, counts
