"""Compare the recorded fsyncs of Kafka with ours, and write both as the tables of docs/fsyncs.md.

Compared are the numbers of syncs of each kind of file in each step, whichever system call made them, and whether they
had returned before the response. Kafka's metadata log corresponds to our files `kafkalog.*`; of these only the presence
of a sync is compared, as `metadata`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from tests.interop.fsync_scenario import SETTINGS, STEPS, WITHOUT_RESPONSE, Row

METADATA = "metadata"
TRANSACTION_LOG = "__transaction_state .log"
_OUR_METADATA = "kafkalog."
_KAFKA_METADATA = "__cluster_metadata"

Way = Literal["none", "fewer", "more", "late", "order"]
"""How our syncs of a kind of file differ from Kafka's: none, fewer, more, after the response, in another order."""


@dataclass(frozen=True)
class Deviation:
    """A kind of file whose syncs differ in a step. `kafka`, `ours`: numbers of syncs; with `late`, of those before the
    response."""

    setting: str
    step: str
    kind: str
    way: Way
    kafka: int
    ours: int

    def __str__(self) -> str:
        return f"{self.setting}; {self.step}; {self.kind}: {self.way}, Kafka {self.kafka}, ours {self.ours}"


@dataclass(frozen=True)
class Difference:
    """An explained difference: in these `steps` our syncs of these `kinds` of files differ in this `way`. A kind that
    begins with a space stands for all kinds that end with it."""

    way: Way
    kinds: tuple[str, ...]
    steps: tuple[str, ...]
    reason: str
    settings: tuple[str, ...] = tuple(SETTINGS)

    def explains(self, deviation: Deviation) -> bool:
        return (
            deviation.way == self.way
            and any(deviation.kind.endswith(kind) if kind[0] == " " else deviation.kind == kind for kind in self.kinds)
            and deviation.step in self.steps
            and deviation.setting in self.settings
        )


def load(path: Path) -> dict[str, dict[str, Row]]:
    """Return the rows of a recording, by setting and step. Raises OSError, ValueError."""
    found: dict[str, dict[str, Row]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def deviations(setting: str, step: str, kafka: Row, ours: Row) -> Iterator[Deviation]:
    """Yield the kinds of files of which our syncs in a step differ from Kafka's."""
    theirs, theirs_before = _by_kind(kafka["syncs"]), _by_kind(kafka["before"])
    own, own_before = _by_kind(ours["syncs"]), _by_kind(ours["before"])
    for kind in sorted({*theirs, *own}):
        expected, found = theirs[kind], own[kind]
        if expected != found:
            way: Way = "none" if not found else "fewer" if found < expected else "more"
            yield Deviation(setting, step, kind, way, expected, found)
        # Kafka's metadata log may be synced after the response. Ours never is.
        before = found if kind == METADATA else min(theirs_before[kind], found)
        if own_before[kind] < before and step not in WITHOUT_RESPONSE:
            yield Deviation(setting, step, kind, "late", before, own_before[kind])
    if step.startswith("EndTxn") and TRANSACTION_LOG in ours["order"]:
        # PrepareCommit is on disk before the first marker, and all markers are before CompleteCommit.
        for kind in {ours["order"][0], ours["order"][-1]} - {TRANSACTION_LOG}:
            yield Deviation(setting, step, kind, "order", 1, 1)


def unexplained(setting: str, step: str, kafka: Row, ours: Row, differences: Iterable[Difference]) -> list[Deviation]:
    """Return the deviations of a step that none of the differences explains."""
    known = tuple(differences)
    found = deviations(setting, step, kafka, ours)
    return [deviation for deviation in found if not any(entry.explains(deviation) for entry in known)]


def _by_kind(syncs: Mapping[str, int]) -> Counter[str]:
    """Add up the system calls of each kind; `metadata` is 0 or 1."""
    found: Counter[str] = Counter()
    for name, count in syncs.items():
        _, _, kind = name.partition(" ")
        if kind.startswith((_KAFKA_METADATA, _OUR_METADATA)):
            found[METADATA] = 1
        else:
            found[kind] += count
    return found


# ---- the page


def tables(
    kafka: Mapping[str, Mapping[str, Row]], ours: Mapping[str, Mapping[str, Row]], differences: Iterable[Difference]
) -> str:
    """Return a Markdown table for each setting, and the numbered reasons to which their last columns refer. After the
    first setting only those steps are listed that differ from it."""
    known = list(differences)
    reasons = list(dict.fromkeys(entry.reason for entry in known))
    default, *_ = SETTINGS
    lines = []
    for setting in SETTINGS:
        title = "With default settings" if setting == default else f"With `{setting}`, where that differs"
        lines += [f"## {title}", "", "| step | Kafka 4.3.0 | kafkalog | why |", "|---|---|---|---|"]
        quiet = []
        for step in STEPS:
            rows = kafka[setting][step], ours[setting][step]
            cells = [_cell(step, row) for row in rows]
            if setting != default and cells == [_cell(step, every[default][step]) for every in (kafka, ours)]:
                continue
            if not any(row["syncs"] for row in rows):
                quiet.append(step)
                continue
            found = list(deviations(setting, step, *rows))
            numbers = {reasons.index(entry.reason) + 1 for entry in known if any(map(entry.explains, found))}
            lines.append(f"| {step} | {' | '.join(cells)} | {', '.join(map(str, sorted(numbers)))} |")
        lines.append("")
        if quiet:
            lines += [f"Neither broker forces a file in these steps: {'; '.join(quiet)}.", ""]
    lines += ["## Why they differ", ""]
    lines += [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    return "\n".join(lines) + "\n"


def _cell(step: str, row: Row) -> str:
    """Return the forced files of a step; in italics those that are not forced before the response."""
    counts, before = _shown(row["syncs"]), _shown(row["before"])
    if not counts:
        return "-"
    parts = []
    for owner, kinds in groupby(sorted(counts, key=_place), _owner):
        files = ", ".join(
            _file(kind, counts[kind], is_late=kind not in before and step not in WITHOUT_RESPONSE) for kind in kinds
        )
        parts.append(f"`{owner}`: {files}" if owner.startswith("__") else files)
    return "; ".join(parts)


def _shown(syncs: Mapping[str, int]) -> Counter[str]:
    """Add up the system calls of each kind; of Kafka's metadata log without a number."""
    found: Counter[str] = Counter()
    for name, count in syncs.items():
        _, _, kind = name.partition(" ")
        if kind.startswith(_KAFKA_METADATA):
            found[_KAFKA_METADATA] = 1
        else:
            found[kind] += count
    return found


def _owner(kind: str) -> str:
    first, _, rest = kind.partition(" ")
    return first if rest and (first == "topic" or first.startswith("__")) else ""


def _place(kind: str) -> tuple[int, str, str]:
    owner = _owner(kind)
    return ("topic", "").index(owner) if owner in ("topic", "") else 2, owner, kind


def _file(kind: str, count: int, *, is_late: bool) -> str:
    name = kind.removeprefix(f"{_owner(kind)} ") if _owner(kind) else kind
    if kind == _KAFKA_METADATA:
        name = "metadata log"
    shown = name if " " in name or name == "directory" else f"`{name}`"
    shown = shown if count == 1 else f"{shown} ×{count}"
    return f"*{shown}*" if is_late else shown
