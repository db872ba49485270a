"""What Kafka's own classes decide on made-up cases: recorded once, in kafka-4.3.0-rules.json.gz.

`python -m tests.tiered.kafkas_rules` asks them again (Java and Maven, as the interop tests).
"""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("kafka-4.3.0-rules.json.gz")
WITHIN_CASES = 4000
CACHE_CASES = 600
LOG_END = 60  # offsets of made-up logs


@cache
def recorded() -> dict[str, Any]:
    """states: [from, to, verdict]; written: [base64, text]; within: [case, verdict]; cache: [case, answers]."""
    found: dict[str, Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return found


def random_lineage(source: random.Random) -> list[tuple[int, int]]:
    """(epoch, start offset): both rise, some epochs are left out, some are empty."""
    epochs = sorted(source.sample(range(9), source.randint(1, 6)))
    starts = sorted(source.choices(range(0, LOG_END, 2), k=len(epochs)))
    return list(zip(epochs, starts, strict=True))


def epochs_between(lineage: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """The epochs of a log's offsets start to end, as a segment that is cut out of it has them."""
    found = []
    for slot, (epoch, begins) in enumerate(lineage):
        until = lineage[slot + 1][1] if slot + 1 < len(lineage) else LOG_END + 1
        if begins <= end and until > start:
            found.append((epoch, max(begins, start)))
    return found


def random_segment(source: random.Random, lineage: list[tuple[int, int]]) -> tuple[int, int, list[tuple[int, int]]]:
    """(start, end, epochs): cut out of the log, and mostly changed in one or two places."""
    start = source.randint(max(lineage[0][1] - 3, 0), LOG_END - 1)
    end = source.randint(start, LOG_END)
    epochs = epochs_between(lineage, start, end) or [(lineage[0][0], start)]
    for _ in range(source.choice((0, 0, 1, 1, 2))):
        at = source.randrange(len(epochs))
        epoch, begins = epochs[at]
        changed = source.choice(("epoch", "start", "drop", "add", "before"))
        if changed == "epoch":
            epochs[at] = (max(epoch + source.choice((-1, 1)), 0), begins)
        elif changed == "start":
            epochs[at] = (epoch, max(begins + source.choice((-2, -1, 1, 2)), 0))
        elif changed == "drop" and len(epochs) > 1:
            del epochs[at]
        elif changed == "add":
            epochs.append((epochs[-1][0] + 1, end))
        elif changed == "before" and epochs[0][0] > 0:
            epochs.insert(0, (epochs[0][0] - 1, max(epochs[0][1] - 2, 0)))
    return start, end, sorted(dict(sorted(epochs)).items())


def random_uploads(
    source: random.Random, lineage: list[tuple[int, int]]
) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Segments of one log as several leaders cut it, in the order of their copies: overlapping, repeated, missing."""
    uploads = []
    for _ in range(source.randint(1, 3)):
        at = source.randint(0, LOG_END // 2)
        while at < LOG_END and source.random() < 0.9:
            end = min(at + source.randint(0, 20), LOG_END - 1)
            epochs = epochs_between(lineage, at, end)
            if epochs and source.random() < 0.9:
                uploads.append((at, end, epochs))
            at = end + 1
    return uploads or [(lineage[0][1], LOG_END, epochs_between(lineage, lineage[0][1], LOG_END))]


def _epochs_text(epochs: list[tuple[int, int]]) -> str:
    return ",".join(f"{epoch}:{start}" for epoch, start in epochs)


def _segment_text(segment: tuple[int, int, list[tuple[int, int]]]) -> str:
    return f"{segment[0]}-{segment[1]}/{_epochs_text(segment[2])}"


def main() -> None:
    from tests.log.tiered.tiered_kafka import java_rules

    source = random.Random(15)
    within, caches, lines = [], [], ["states", "written"]
    for _ in range(WITHIN_CASES):
        lineage = random_lineage(source)
        segment = random_segment(source, lineage)
        within.append({"log_end": LOG_END, "segment": segment, "lineage": lineage})
        lines.append(f"within {LOG_END} {_segment_text(segment)} {_epochs_text(lineage)}")
    for _ in range(CACHE_CASES):
        lineage = random_lineage(source)
        uploads = random_uploads(source, lineage)
        queries = [
            (epoch, at) for epoch, begins in epochs_between(lineage, 0, LOG_END) for at in range(begins, LOG_END)
        ]
        caches.append({"lineage": lineage, "uploads": uploads, "queries": queries})
        lines.append(f"cache {';'.join(map(_segment_text, uploads))} {_epochs_text(queries)}")
    answers = iter(java_rules(lines))
    states = [line.split() for line in iter(lambda: next(answers), ".")]
    found = {
        "states": [[before, after, said == "true"] for before, after, said in states],
        "written": [line.split(" ", 1) for line in iter(lambda: next(answers), ".")],
        "within": [[case, next(answers) == "true"] for case in within],
        "cache": [[case, next(answers).split(",")] for case in caches],
    }
    assert next(answers, None) is None
    RECORDED.write_bytes(gzip.compress(json.dumps(found, separators=(",", ":")).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
