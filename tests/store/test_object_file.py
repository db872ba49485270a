"""The file that is fetched in blocks: the right bytes, few requests, bounded memory. What it fetches from is a function
that writes down what it was asked for."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from kafkalog_spark.store import object_file, read_ahead
from kafkalog_spark.store.interface import Buffer
from kafkalog_spark.store.object_file import BLOCK, FIRST_BLOCK, MAX_BLOCKS_AHEAD, MAX_FILE_BYTES, PIECE, ObjectFile
from kafkalog_spark.store.read_ahead import WORKER_BYTES, ReadAhead

MB = 1 << 20
DATA = random.Random(1).randbytes(40 * MB + 12_345)


class Origin:
    """Where the bytes come from. asked: the ranges, in the order of their begin."""

    def __init__(self, data: bytes = DATA) -> None:
        self.data = data
        self._asked: list[tuple[int, int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.failing: OSError | None = None

    def fetch(self, begin: int, end: int) -> Buffer:
        self._asked.append((begin, end))
        assert self.gate.wait(60)
        if self.failing is not None:
            raise self.failing
        assert 0 <= begin < end <= len(self.data)
        return memoryview(self.data)[begin:end]

    @property
    def asked(self) -> list[tuple[int, int]]:
        return sorted(self._asked)

    def file(self, align: int = 1) -> ObjectFile:
        return ObjectFile(len(self.data), self.fetch, has_changed=lambda: False, align=align)


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> ReadAhead:
    """Threads and a budget of the test's own; the budget is whole again at its end."""
    made = ReadAhead()
    monkeypatch.setattr(object_file, "read_ahead", lambda: made)
    return made


def read_all(file: ObjectFile, begin: int, end: int, step: int = 2 * MB) -> bytes:
    """As the scan does: windows, one after the other."""
    target = bytearray(end - begin)
    view = memoryview(target)
    for at in range(0, len(target), step):
        assert file.read_into(begin + at, view[at : at + step]) == len(view[at : at + step])
    return bytes(target)


def settle(shared: ReadAhead) -> None:
    """Wait until nothing is being fetched."""
    shared._threads.shutdown(wait=True)


def test_small_announced_file_is_one_request() -> None:
    origin = Origin(DATA[:20_000])
    file = origin.file()
    file.expect(0, 20_000)
    assert read_all(file, 0, 20_000) == origin.data
    assert origin.asked == [(0, 20_000)]


def test_announced_bytes_come_in_few_large_requests_and_nothing_after_them_is_fetched() -> None:
    origin = Origin()
    file = origin.file()
    file.expect(1000, 30 * MB)
    assert read_all(file, 1000, 30 * MB) == DATA[1000 : 30 * MB]
    assert origin.asked[0] == (1000, 1000 + FIRST_BLOCK)
    assert [begin for begin, _ in origin.asked[1:]] == [end for _, end in origin.asked[:-1]], "each byte once"
    assert origin.asked[-1][1] == 30 * MB
    assert len(origin.asked) == 5  # 2, 4, 8, 8 and the rest


def test_several_requests_are_in_flight_at_once(shared: ReadAhead) -> None:
    """Two from the start; MAX_BLOCKS_AHEAD once the reader has shown that it reads on."""
    together = threading.Barrier(2, timeout=60)
    data = bytes(100 * MB)

    def fetch(begin: int, end: int) -> Buffer:
        if begin < FIRST_BLOCK * 3:
            together.wait()  # for the other one; raises when there is none
        asked.append((begin, end))
        return memoryview(data)[begin:end]

    asked: list[tuple[int, int]] = []
    file = ObjectFile(len(data), fetch, has_changed=lambda: False)
    file.expect(0, len(data))
    read_all(file, 0, 40 * MB)
    settle(shared)
    reading = next(end for begin, end in asked if begin < 40 * MB <= end)
    assert len([begin for begin, _ in asked if begin >= reading]) == MAX_BLOCKS_AHEAD


def test_nearby_header_reads_are_one_request() -> None:
    origin = Origin()
    file = origin.file()
    for position in (5 * MB, 5 * MB + 61, 5 * MB + 40_000, 5 * MB + 100_000, 5 * MB + 61):
        assert file.read(position, 61) == DATA[position : position + 61]
    assert origin.asked == [(5 * MB, 5 * MB + PIECE)]


def test_end_of_a_file_is_one_request() -> None:
    origin = Origin()
    file = origin.file()
    for back in (100, 61, 5_000, 120_000, 1):
        assert file.read(len(DATA) - back, 200) == DATA[-back:][:200]
    assert origin.asked == [(len(DATA) - PIECE, len(DATA))]


def test_sequential_header_reads_need_fewer_and_fewer_requests() -> None:
    """40 MB of batches of 16 kB: 2,560 headers."""
    origin = Origin()
    file = origin.file()
    for position in range(0, 40 * MB, 16_384):
        assert file.read(position, 128) == DATA[position : position + 128]
    assert len(origin.asked) <= 12


def test_bytes_fetched_by_small_reads_are_not_fetched_again() -> None:
    origin = Origin()
    file = origin.file()
    file.read(0, 61)
    file.expect(0, MB)
    assert read_all(file, 0, MB) == DATA[:MB]
    assert origin.asked == [(0, PIECE), (PIECE, MB)]
    again = Origin(DATA[:100_000])
    file = again.file()
    file.read(0, 61)
    file.expect(0, 100_000)
    assert read_all(file, 0, 100_000) == again.data
    assert again.asked == [(0, 100_000)]


def test_seek_ahead_and_back_does_not_disturb_announced_ranges() -> None:
    origin = Origin()
    file = origin.file()
    file.expect(0, 40 * MB)
    assert read_all(file, 0, 6 * MB) == DATA[: 6 * MB]
    assert file.read(38 * MB, 61) == DATA[38 * MB : 38 * MB + 61]
    assert file.read(5 * MB, MB) == DATA[5 * MB : 6 * MB], "a batch that the last window cut"
    assert read_all(file, 6 * MB, 40 * MB) == DATA[6 * MB : 40 * MB]
    fetched = sum(end - begin for begin, end in origin.asked)
    assert fetched <= 40 * MB + PIECE


def test_seek_forward_skips_the_bytes_in_between() -> None:
    origin = Origin()
    file = origin.file()
    file.expect(0, 40 * MB)
    read_all(file, 0, 2 * MB)
    assert read_all(file, 36 * MB, 40 * MB) == DATA[36 * MB : 40 * MB]
    assert sum(end - begin for begin, end in origin.asked) < 25 * MB


def test_large_unannounced_read_is_fetched() -> None:
    origin = Origin()
    file = origin.file()
    assert file.read(3, 20 * MB) == DATA[3 : 20 * MB + 3]
    assert file.read(20 * MB + 3, 100) == DATA[20 * MB + 3 :][:100]
    assert len(origin.asked) <= 6


@pytest.mark.parametrize("align", [1000, 65_536, 4 * MB, 100 * MB])
def test_blocks_of_chunked_objects_are_aligned_to_chunks(align: int) -> None:
    origin = Origin()
    file = origin.file(align)
    source = random.Random(align)
    file.expect(5 * MB + 17, 20 * MB + 3)
    assert read_all(file, 5 * MB + 17, 20 * MB + 3) == DATA[5 * MB + 17 : 20 * MB + 3]
    for _ in range(30):
        position, size = source.randrange(len(DATA)), source.randrange(100_000)
        assert file.read(position, size) == DATA[position : position + size]
    assert all(begin % align == 0 and (end % align == 0 or end == len(DATA)) for begin, end in origin.asked)


@pytest.mark.parametrize("seed", range(20))
def test_reads_in_any_order_return_the_right_bytes(seed: int, shared: ReadAhead) -> None:
    source = random.Random(seed)
    origin = Origin(DATA[: source.choice([1, 61, 100_000, 3 * MB, len(DATA)])])
    size = len(origin.data)
    file = origin.file(source.choice([1, 1, 4096, 1_000_003]))
    for _ in range(60):
        position = source.randrange(-(-size * 11 // 10))
        match source.randrange(4):
            case 0:
                file.expect(position, position + source.randrange(20 * MB))
            case 1:
                wish = source.choice([1, 61, 128, 65_536, 3 * MB])
                assert file.read(position, wish) == origin.data[position : position + wish]
            case 2:
                target = bytearray(source.choice([100, 2 * MB, 10 * MB]))
                count = file.read_into(position, memoryview(target))
                assert target[:count] == origin.data[position : position + len(target)]
            case _:
                begin = min(position, size)
                assert read_all(file, begin, min(begin + 5 * MB, size)) == origin.data[begin : begin + 5 * MB]
    file.close()
    settle(shared)
    assert shared.available == WORKER_BYTES


def test_memory_is_bounded_per_file_and_in_total(shared: ReadAhead) -> None:
    shared.available = 100 * MB
    files = [Origin().file() for _ in range(8)]
    lowest = 100 * MB
    for file in files:
        file.expect(0, 40 * MB)
    for at in range(0, 40 * MB, 2 * MB):
        for file in files:
            assert file.read(at, 2 * MB) == DATA[at : at + 2 * MB]
            lowest = min(lowest, shared.available)
            held = sum(block.end - block.begin for block in file._blocks)
            assert held <= MAX_FILE_BYTES
    assert lowest >= -8 * (BLOCK + BLOCK // 2), "only what a reader waits for is fetched without room for it"
    for file in files:
        file.close()
    settle(shared)
    assert shared.available == 100 * MB


def test_close_discards_fetches_in_flight(shared: ReadAhead) -> None:
    origin = Origin()
    origin.gate.clear()
    file = origin.file()
    file.expect(0, 40 * MB)
    assert shared.available < WORKER_BYTES
    file.close()
    origin.gate.set()
    settle(shared)
    assert shared.available == WORKER_BYTES
    with pytest.raises(ValueError, match="closed"):
        file.read(0, 1)


def test_unclosed_file_releases_its_memory(shared: ReadAhead) -> None:
    file = Origin().file()
    file.expect(0, 40 * MB)
    file.read(0, 10)
    del file
    settle(shared)
    assert shared.available == WORKER_BYTES


def test_failed_fetch_is_raised_when_its_bytes_are_read() -> None:
    origin = Origin()
    file = origin.file()
    origin.failing = FileNotFoundError(2, "replaced", "s3://b/k")
    file.expect(0, 10 * MB)
    with pytest.raises(FileNotFoundError, match="replaced"):
        file.read(0, 100)
    with pytest.raises(FileNotFoundError, match="replaced"):
        file.read(20 * MB, 100)


def test_threads_and_budget_belong_to_one_process() -> None:
    assert read_ahead.read_ahead() is read_ahead.read_ahead()


@pytest.mark.parametrize(
    "take",
    [lambda budget: budget.reserve(11), lambda budget: budget.reserve(5) and budget.reserve(6)],
)
def test_budget_is_exceeded_only_when_unavoidable(take: Callable[[ReadAhead], bool]) -> None:
    budget = ReadAhead(10)
    assert not take(budget)
    assert budget.reserve(11, force=True)
    assert budget.available < 0
