"""Something done to a file of a copied golden partition: flips, zeros, cuts, pieces that changed places, lost files."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.golden_data import KAFKA_4_3, DumpedBatch, GoldenLog, golden_logs

LOGS = [
    log
    for log in golden_logs(KAFKA_4_3, crashed=False)
    if log.topic in ("segments", "transactions", "compacted", "codec-lz4", "java-snappy", "deleted-prefix")
]


def copied(log: GoldenLog, root: Path) -> Path:
    """A copy of the partition in a log directory `root` of its own, made anew; its directory."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(log.directory, root / log.name)
    shutil.copy(log.directory.parent / "log-start-offset-checkpoint", root)
    return root / log.name


def damage(log: GoldenLog, directory: Path, numbers: random.Random) -> tuple[Path, set[int]]:
    """Do something to a file of a copy. Returns the .log and the positions of its batches that may be harmed."""
    path = numbers.choice(log.segments())
    data, batches = path.read_bytes(), log.batches(path)
    target = directory / path.name
    at = numbers.randrange(len(data))
    size = min(numbers.choice((1, 1, 8, 61, 500, 4096)), len(data) - at)

    def hit(begin: int, end: int) -> set[int]:
        return {batch.position for batch in batches if batch.position < end and begin < batch.position + batch.size}

    match numbers.randrange(7):
        case 0:  # a bit
            target.write_bytes(data[:at] + bytes([data[at] ^ (1 << numbers.randrange(8))]) + data[at + 1 :])
            return target, hit(at, at + 1)
        case 1:  # zeros
            target.write_bytes(data[:at] + bytes(size) + data[at + size :])
            return target, hit(at, at + size)
        case 2:  # a cut
            target.write_bytes(data[:at])
            return target, hit(at, len(data))
        case 3:  # two pieces have changed places
            other = numbers.randrange(len(data) - size + 1)
            changed = bytearray(data)
            changed[at : at + size], changed[other : other + size] = data[other : other + size], data[at : at + size]
            target.write_bytes(changed)
            # whole batches in the wrong place contradict those that lie between: as many as possible are kept of both
            return target, hit(min(at, other), max(at, other) + size)
        case 4:  # a small file
            others = [file for file in sorted(directory.iterdir()) if file.suffix != ".log"]
            numbers.choice(others).write_bytes(numbers.randbytes(30))
            return target, set()
        case 5:  # a lost file
            lost = numbers.choice(sorted(directory.iterdir()))
            lost.unlink()
            if lost.suffix == ".log":
                return lost, {batch.position for batch in log.batches(log.directory / lost.name)}
            return target, set()
    shutil.copyfile(numbers.choice(log.segments()), target)  # a segment in the place of another
    return target, {batch.position for batch in batches}


def undamaged(log: GoldenLog, path: Path, harmed: set[int]) -> list[DumpedBatch]:
    """The batches of the partition that `damage`, which returned `path` and `harmed`, left as they were."""
    return [
        batch
        for segment in log.segments()
        for batch in log.batches(segment)
        if segment.name != path.name or batch.position not in harmed
    ]
