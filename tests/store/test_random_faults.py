"""200 faults in one read, at random and the same each time: the right bytes or a clear error, and an end."""

from __future__ import annotations

import random

import pytest

from tests.store.buckets import s3_store
from tests.store.fault_proxy import FaultKind, FaultProxy, at_random
from tests.store.s3_server import S3Server

DATA = random.Random(4).randbytes(24 << 20)
PATH = "s3://tier/faults/0.log"
STEP = 4 << 20
READS = 50
"""Small reads after each step: with them a read makes some 300 requests."""


def read_through(s3: S3Server, proxy: FaultProxy, seed: int, share: float, most: int, **options: str) -> None:
    """Reads the segment, by announced windows and by small reads, and lists in between. With 20 tries it is certain
    enough that one of them is without a fault, whatever order threads ask in."""
    source = random.Random(seed)
    proxy.plan = at_random(seed, share, most, longest_delay=0.01)
    # a client of its own: what one has learnt (that the store answers) is not known to the next
    patience = {"storage.max_retries": "20", "storage.retry_timeout": f"{100 + seed}"}
    store = s3_store(s3, proxy, more={**patience, **options})
    facts = store.list("s3://tier/faults").files["0.log"]
    file = store.open(PATH, facts)
    for begin in range(0, len(DATA), STEP):
        file.expect(begin, begin + STEP)
        assert file.read(begin, STEP) == DATA[begin : begin + STEP]
        for _ in range(READS):
            at = source.randrange(len(DATA))
            assert store.open(PATH, facts).read(at, 61) == DATA[at : at + 61]
        assert store.list("s3://tier/faults").names == ["0.log"]
        assert not file.has_changed()
    file.close()


@pytest.fixture(autouse=True)
def segment(s3: S3Server) -> None:
    s3_store(s3).put(PATH, DATA)


def test_few_random_faults_are_retried(s3: S3Server, proxy: FaultProxy) -> None:
    read_through(s3, proxy, 1, 0.3, 20)
    assert len([seen for seen in proxy.seen if seen.fault]) == 20


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_many_random_faults_give_the_bytes_or_an_error(s3: S3Server, proxy: FaultProxy, seed: int) -> None:
    read_through(s3, proxy, seed, 0.5, 200)
    faults = [seen.fault for seen in proxy.seen if seen.fault]
    assert len(faults) == 200
    assert {fault.kind for fault in faults} == set(FaultKind) - {FaultKind.LOST}  # which is of writes


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_store_that_always_fails_raises_an_error(s3: S3Server, proxy: FaultProxy) -> None:
    with pytest.raises(OSError, match=r"127\.0\.0\.1.*\(4 tries\)") as caught:
        read_through(s3, proxy, 8, 1.0, 10_000, **{"storage.max_retries": "3"})
    assert caught.value.filename in (PATH, "s3://tier/faults")
