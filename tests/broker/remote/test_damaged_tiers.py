"""Damage to remote segments: each reader returns the right records, or an error that names the segment.

Readers: the broker, Spark with the log directory, Spark with the tier alone; each at both isolation levels.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from kafkalog_broker.remote.remote_log_metadata_cache import COPY_FINISHED, RemoteLogMetadataCache
from kafkalog_broker.remote.remote_log_reader import RemoteLogReader
from kafkalog_spark.errors import KafkalogError
from kafkalog_spark.format.control_record import control_type
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.format.names import REMOTE_STORAGE_FILE
from kafkalog_spark.format.transaction_index import ENTRY_SIZE, AbortedTransaction, parse_transaction_index
from kafkalog_spark.log.decode.scan_request import ScanRequest
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.remote.remote_storage import RemoteStorage
from kafkalog_spark.log.tiered.object_keys import Layout, RemoteFile
from kafkalog_spark.log.tiered.remote_segment import RemoteSegment
from kafkalog_spark.log.write.encoded_batch import split_batches
from tests.broker.remote.helpers.remote_logs import SEGMENT, TOPIC, RemoteLogs, offsets_in
from tests.broker.storage.helpers.stored_logs import NOW

CHUNK = 700  # bytes: the segments have several chunks
AIVEN = {
    "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
    "rsm.config.chunk.size": str(CHUNK),
}
LAYOUTS = {"local-tiered": {}, "aiven": AIVEN}
DATE = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAMAGED_SEGMENT = 2  # the segment that is damaged: it has others before and after it


@dataclass
class Tier:
    """A topic `orders` and one `other` of the same batches, whose first segments are remote."""

    logs: RemoteLogs
    root: Path
    pristine: Path
    data: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)

    def index_records(self, log: bytes) -> None:
        """Store the offsets of all records in `data`, and those of aborted ones in `aborted`."""
        open_transactions: dict[int, set[int]] = {}
        for data, header in split_batches(log):
            if header.is_control:
                ended = open_transactions.pop(header.producer_id, set())
                if control_type(data) == ControlType.ABORT:
                    self.aborted |= ended
                continue
            offsets = set(offsets_in(data))
            self.data |= offsets
            if header.is_transactional:
                open_transactions.setdefault(header.producer_id, set()).update(offsets)
        assert not open_transactions

    def restore(self) -> None:
        """Restore the undamaged remote segments."""
        shutil.rmtree(self.root)
        shutil.copytree(self.pristine, self.root)

    def stems(self, topic: str = "orders") -> list[Path]:
        """The objects of each segment, in the order of offsets, without a suffix."""
        found = [path for path in self.root.rglob("*.log") if f"{topic}-" in str(path.relative_to(self.root))]
        return sorted((path.with_suffix("") for path in found), key=lambda path: path.name)

    def path(self, suffix: str, number: int = DAMAGED_SEGMENT) -> Path:
        return Path(f"{self.stems()[number]}{suffix}")

    def change(self, suffix: str, change: Callable[[bytearray], object], number: int = DAMAGED_SEGMENT) -> None:
        path = self.path(suffix, number)
        data = bytearray(path.read_bytes())
        change(data)
        path.write_bytes(data)

    def change_manifest(self, old: str, new: str, number: int = DAMAGED_SEGMENT) -> None:
        path = self.path(".rsm-manifest", number)
        text = path.read_text()
        changed = re.sub(old, new, text, count=1)
        assert changed != text
        path.write_text(changed)

    def copy(self, source: Path, target: Path, *suffixes: str) -> None:
        for path in source.parent.glob(f"{source.name}.*"):
            suffix = path.name.removeprefix(source.name)
            if not suffixes or suffix in suffixes:
                shutil.copyfile(path, f"{target}{suffix}")

    def swap(self, number: int, other: int, *suffixes: str) -> None:
        stems = self.stems()
        aside = self.root / "aside"
        self.copy(stems[number], aside, *suffixes)
        self.copy(stems[other], stems[number], *suffixes)
        self.copy(aside, stems[other], *suffixes)
        for path in self.root.glob("aside.*"):
            path.unlink()

    # ---- readers

    def expected(self, *, committed: bool) -> list[int]:
        return sorted(self.data - self.aborted if committed else self.data)

    def by_broker(self, *, committed: bool) -> list[int]:
        """Offsets as a consumer of the broker gets them."""
        log = self.logs.broker.log()
        remote = self.logs.manager.metadata.cache_of(log.identity)
        offset, found = 0, []
        aborted: list[AbortedTransaction] | None
        with closing(RemoteStorage(self.logs.storage.options)) as storage:
            reader = RemoteLogReader(storage)
            while offset < log.high_watermark:
                if offset < log.local_log_start_offset:
                    read = reader.read(log, remote, offset, 1500, at_least_one=True, committed=committed)
                    chunks, following, aborted = [read.records], read.next_offset, read.aborted
                else:
                    chunks, following = log.read_range(offset, 1500, up_to=log.high_watermark, at_least_one=True)
                    aborted = log.aborted_transactions(offset, following)
                for chunk in chunks:
                    found += consumed(chunk, offset, (aborted or []) if committed else [])
                assert following > offset
                offset = following
        return found

    def from_offset(self, begin: int) -> list[int]:
        """Offsets of the rest of a remote segment from `begin` on, as one fetch of the broker gives them."""
        log = self.logs.broker.log()
        remote = self.logs.manager.metadata.cache_of(log.identity)
        with closing(RemoteStorage(self.logs.storage.options)) as storage:
            read = RemoteLogReader(storage).read(log, remote, begin, 1 << 20, at_least_one=True, committed=False)
        return consumed(read.records, begin, [])

    def by_spark(self, path: Path, *, committed: bool) -> list[int]:
        request = ScanRequest(columns=("offset",), read_committed=committed)
        scan = LogDirs.open([str(path)]).scan("orders", request)
        return [offset for batch in scan for offset in batch.column(0).to_pylist()]

    def read_all(self) -> Iterator[tuple[str, list[int] | KafkalogError, list[int]]]:
        """(reader and isolation level, records or error, records that are right)."""
        for committed in (False, True):
            right = self.expected(committed=committed)
            tier = [offset for offset in right if offset < self.pristine_last]
            readers: tuple[tuple[str, Callable[..., list[int]], list[int]], ...] = (
                ("broker", self.by_broker, right),
                ("data", partial(self.by_spark, self.logs.directory), right),
                ("tier", partial(self.by_spark, self.root), tier),
            )
            for reader, read, expected in readers:
                result: list[int] | KafkalogError
                try:
                    result = read(committed=committed)
                except KafkalogError as error:
                    result = error
                yield f"{reader} {'committed' if committed else 'uncommitted'}", result, expected

    @property
    def pristine_last(self) -> int:
        """The offset after the last remote segment."""
        return self.logs.broker.log().highest_offset_in_remote_storage + 1


def consumed(chunk: bytes, offset: int, aborted: list[AbortedTransaction]) -> list[int]:
    """Offsets from `offset` on of a fetched chunk, as a consumer returns them (CompletedFetch.nextFetchedRecord)."""
    waiting = sorted(aborted, key=lambda one: one.first_offset)
    producers: set[int] = set()
    found: list[int] = []
    for data, header in split_batches(chunk):
        while waiting and waiting[0].first_offset <= header.last_offset:
            producers.add(waiting.pop(0).producer_id)
        if header.is_control:
            if control_type(data) == ControlType.ABORT:
                producers.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in producers):
            found += [one for one in offsets_in(data) if one >= offset]
    return found


LONG_PRODUCER = 1000
LONG = (0, 1, 9, 19, 21, 30)
ENDS = {18: ControlType.ABORT, 20: ControlType.COMMIT, 31: ControlType.ABORT}
"""Transactions of this producer that span segments: when it sends a batch, and when a transaction ends."""


def sent_by(producer: int) -> dict[str, int]:
    return {"producer_id": producer, "producer_epoch": 0, "attributes": 0x10}


async def written(directory: Path, properties: dict[str, str]) -> RemoteLogs:
    logs = RemoteLogs(directory, properties=properties)
    await logs.start()
    for topic in ("orders", "other"):
        logs.broker.create(topic, 1, **TOPIC)
        log = logs.broker.log(topic)
        for number in range(40):
            if number in LONG:
                logs.broker.append(topic, 0, 1, size=30, base_sequence=LONG.index(number), **sent_by(LONG_PRODUCER))
            logs.broker.append(topic, 0, 3, size=60, base_sequence=0, **sent_by(number))
            if number % 5 == 0:
                logs.broker.append(topic, 0, 2, size=300)
            control = ControlType.COMMIT if number % 3 == 1 else ControlType.ABORT
            log.append_control(control, number, 0, 0, NOW)
            if number in ENDS:
                log.append_control(ENDS[number], LONG_PRODUCER, 0, 0, NOW)
        logs.broker.append(topic, 0, 1, size=SEGMENT - 200)
        logs.broker.append(topic, 0, 3)
        log.flush()
    await logs.settle()
    return logs


@pytest.fixture(scope="module", params=LAYOUTS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tier]:
    directory = tmp_path_factory.mktemp(request.param) / "data"
    with asyncio.Runner() as runner:
        logs = runner.run(written(directory, LAYOUTS[request.param]))
        tier = Tier(logs, logs.remote_dir, directory.parent / "pristine")
        shutil.copytree(tier.root, tier.pristine)
        (directory / REMOTE_STORAGE_FILE).write_bytes(logs.storage.options.recorded_file(DATE))
        log = logs.broker.log()
        assert (
            int(tier.stems()[DAMAGED_SEGMENT + 1].name[:20]) < log.local_log_start_offset
        )  # neither of these is on disk
        local = {int(path.stem): path for path in (directory / "orders-0").glob("*.log")}
        paths = {int(stem.name[:20]): Path(f"{stem}.log") for stem in tier.stems()} | local
        tier.index_records(b"".join(paths[base].read_bytes() for base in sorted(paths)))
        data = logs.storage.fetch_index(segment_of(tier), RemoteFile.TRANSACTION_INDEX)
        assert LONG_PRODUCER in [one.producer_id for one in parse_transaction_index(data)]
        yield tier
        runner.run(logs.stop())


@pytest.fixture
def tier(made: Tier) -> Iterator[Tier]:
    yield made
    made.restore()


# ---- what is done to a segment


def lost(suffix: str) -> Callable[[Tier], object]:
    return lambda tier: tier.path(suffix).unlink()


def cut(suffix: str, size: Callable[[int], int]) -> Callable[[Tier], object]:
    def damage(tier: Tier) -> None:
        def shorter(data: bytearray) -> None:
            assert size(len(data)) < len(data)
            del data[size(len(data)) :]

        tier.change(suffix, shorter)

    return damage


def manifest(old: str, new: str) -> Callable[[Tier], object]:
    return lambda tier: tier.change_manifest(old, new)


def copied(source: int, *suffixes: str) -> Callable[[Tier], object]:
    return lambda tier: tier.copy(tier.stems()[source], tier.stems()[DAMAGED_SEGMENT], *suffixes)


def end_offset(change: Callable[[int], int]) -> Callable[[Tier], object]:
    def damage(tier: Tier) -> None:
        end = json.loads(tier.path(".rsm-manifest").read_text())["remoteLogSegmentMetadata"]["endOffset"]
        tier.change_manifest(r'"endOffset":\d+', f'"endOffset":{change(end)}')

    return damage


def fits_by_chance(tier: Tier) -> None:
    """One chunk fewer: the last chunk keeps its size."""
    size = json.loads(tier.path(".rsm-manifest").read_text())["chunkIndex"]["originalFileSize"]
    tier.change_manifest(r'"originalFileSize":\d+', f'"originalFileSize":{size - CHUNK}')


def size_of_transactions(change: Callable[[int], int]) -> Callable[[Tier], object]:
    def damage(tier: Tier) -> None:
        size = json.loads(tier.path(".rsm-manifest").read_text())["segmentIndexes"]["transaction"]["size"]
        old = r'("transaction":\{"position":\d+,"size":)\d+'
        tier.change_manifest(old, rf"\g<1>{change(size)}")

    return damage


def moved(by: int) -> Callable[[Tier], object]:
    """Batches with the offsets of a segment before or after it: its log where both are of the same size."""

    def damage(tier: Tier) -> None:
        starts = [int(stem.name[:20]) for stem in tier.stems()]
        change = starts[DAMAGED_SEGMENT + by] - starts[DAMAGED_SEGMENT]
        data = bytearray(tier.path(".log").read_bytes())
        at = 0
        for batch, header in split_batches(bytes(data)):
            struct.pack_into(">q", data, at, header.base_offset + change)
            at += len(batch)
        tier.path(".log").write_bytes(data)

    return damage


TRANSACTION_INDEX = {
    "lost": lost(".txnindex"),
    "empty": cut(".txnindex", lambda size: 0),
    "cut to the first entry": cut(".txnindex", lambda size: ENTRY_SIZE),
    "without the last entry": cut(".txnindex", lambda size: size - ENTRY_SIZE),
    "cut within an entry": cut(".txnindex", lambda size: size - 9),
}
OBJECTS = {
    "log lost": lost(".log"),
    "log empty": cut(".log", lambda size: 0),
    "log cut": cut(".log", lambda size: size // 2),
    "log of the next": copied(DAMAGED_SEGMENT + 1, ".log"),
    "log of the one before": copied(DAMAGED_SEGMENT - 1, ".log"),
    "log of the last": copied(-1, ".log"),
    "all of the next": copied(DAMAGED_SEGMENT + 1),
    "all of the one before": copied(DAMAGED_SEGMENT - 1),
    "log with the next one's offsets": moved(1),
    "log with the offsets of the one before": moved(-1),
    "logs swapped": lambda tier: tier.swap(DAMAGED_SEGMENT, DAMAGED_SEGMENT + 1, ".log"),
    "all swapped": lambda tier: tier.swap(DAMAGED_SEGMENT, DAMAGED_SEGMENT + 1),
}
MANIFEST = {
    "transaction null": manifest(r'"transaction":\{[^}]*\}', '"transaction":null'),
    "transaction missing": manifest(r'"transaction":\{', '"transactioo":{'),
    "transaction size 0": size_of_transactions(lambda size: 0),
    "transaction without its last entry": size_of_transactions(lambda size: size - ENTRY_SIZE),
    "segmentIndexes missing": manifest('"segmentIndexes"', '"segmentIndexus"'),
    "originalFileSize 0": manifest(r'"originalFileSize":\d+', '"originalFileSize":0'),
    "originalFileSize that fits": fits_by_chance,
    "endOffset + 1": end_offset(lambda end: end + 1),
    "endOffset + 20": end_offset(lambda end: end + 20),
    "endOffset + 10,000": end_offset(lambda end: end + 10_000),
    "endOffset 2^62": end_offset(lambda end: 1 << 62),
    "endOffset - 1": end_offset(lambda end: end - 1),
    "all of another topic": lambda tier: tier.copy(tier.stems("other")[DAMAGED_SEGMENT], tier.stems()[DAMAGED_SEGMENT]),
}
DAMAGES = {
    "local-tiered": {**{f"txnindex {name}": damage for name, damage in TRANSACTION_INDEX.items()}, **OBJECTS},
    "aiven": {
        **OBJECTS,
        **MANIFEST,
        "indexes lost": lost(".indexes"),
        "indexes cut": cut(".indexes", lambda size: size - ENTRY_SIZE),
    },
}


def check(tier: Tier, what: str) -> dict[str, list[int] | KafkalogError]:
    """Results by reader, each of which must be right, or an error that names the partition or an object of it."""
    results = {}
    objects = [stem.name for stem in tier.stems()]
    for reader, result, expected in tier.read_all():
        results[reader] = result
        if isinstance(result, KafkalogError):
            named = [name for name in ("orders-0", *objects) if name in str(result)]
            assert named, f"{what}, {reader}: {result}"
        else:
            assert result == expected, f"{what}, {reader}: {len(result)} records of {len(expected)}"
    return results


def test_undamaged_tier_all_readers_return_all_records(tier: Tier) -> None:
    assert 0 < len(tier.aborted) < len(tier.data)
    assert not [result for result in check(tier, "undamaged").values() if isinstance(result, KafkalogError)]


@pytest.mark.parametrize("damage", ["lost", "empty", "cut to the first entry", "without the last entry"])
@pytest.mark.parametrize("made", ["local-tiered"], indirect=True)
def test_lost_transaction_index_hides_no_fewer_records(tier: Tier, damage: str) -> None:
    TRANSACTION_INDEX[damage](tier)
    assert not [result for result in check(tier, damage).values() if isinstance(result, KafkalogError)]


@pytest.mark.parametrize("made", ["local-tiered"], indirect=True)
def test_all_transaction_indexes_lost_hide_no_fewer_records(tier: Tier) -> None:
    for path in tier.root.rglob("*.txnindex"):
        path.unlink()
    assert not [result for result in check(tier, "all lost").values() if isinstance(result, KafkalogError)]


def test_metadata_without_the_flag_for_an_empty_transaction_index_gives_all_records(
    tier: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka before 3.9 does not write it."""
    walk = RemoteLogMetadataCache.walk
    monkeypatch.setattr(
        RemoteLogMetadataCache,
        "walk",
        lambda *given: (replace(one, transaction_index_empty=False) for one in walk(*given)),
    )
    for committed in (False, True):
        assert tier.by_broker(committed=committed) == tier.expected(committed=committed)


@pytest.mark.parametrize(
    ("made", "name"), [(layout, name) for layout in LAYOUTS for name in DAMAGES[layout]], indirect=["made"]
)
def test_damaged_segment_gives_right_records_or_an_error(tier: Tier, name: str) -> None:
    DAMAGES[tier.logs.storage.options.layout.value][name](tier)
    check(tier, name)


# ---- bits that no checksum covers


def flipped(position: int, bit: int) -> Callable[[bytearray], None]:
    def flip(data: bytearray) -> None:
        data[position] ^= 1 << bit

    return flip


def test_flipped_base_offset_gives_an_error(tier: Tier) -> None:
    data = tier.path(".log").read_bytes()
    positions, at = [], 0
    for batch, _ in split_batches(data):
        positions.append(at)
        at += len(batch)
    for position in (positions[0], positions[len(positions) // 2], positions[-1]):
        for byte, bit in ((0, 7), (3, 0), (6, 0), (7, 6), (7, 4), (7, 3), (7, 1), (7, 0)):
            tier.change(".log", flipped(position + byte, bit))
            results = check(tier, f"bit {bit} of byte {byte} of the batch at {position}")
            assert all(isinstance(result, KafkalogError) for result in results.values())
            tier.restore()


def test_flipped_offset_index_entry_gives_all_records(tier: Tier) -> None:
    """An index is a hint: the broker begins at the beginning of the segment instead."""
    suffix = ".index" if tier.logs.storage.options.layout is Layout.LOCAL_TIERED else ".indexes"  # the first in it
    assert len(tier.logs.storage.fetch_index(segment_of(tier), RemoteFile.OFFSET_INDEX)) >= 24
    right = tier.expected(committed=False)
    begins = range(int(tier.path(".log").name[:20]), int(tier.path(".log", DAMAGED_SEGMENT + 1).name[:20]))
    for entry in (0, 8, 16):
        for byte, bit in ((0, 7), (2, 0), (3, 6), (3, 4), (3, 3), (3, 2), (3, 0), (6, 3), (6, 0), (7, 6), (7, 0)):
            tier.change(suffix, flipped(entry + byte, bit))
            for begin in begins:
                assert tier.from_offset(begin) == [offset for offset in right if begin <= offset < begins[-1] + 1]
            tier.restore()


def segment_of(tier: Tier) -> RemoteSegment:
    log = tier.logs.broker.log()
    remote = tier.logs.manager.metadata.cache_of(log.identity)
    (segment,) = [one for one in remote.in_state(COPY_FINISHED) if one.name == tier.stems()[DAMAGED_SEGMENT].name]
    return segment
