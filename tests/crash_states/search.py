"""Search over crash states: which states of which workloads, and what was found, by workload and by class."""

from __future__ import annotations

import random
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.crash_states import workloads as _workloads  # noqa: F401 - registers them
from tests.crash_states.disk import Event, Rename, Send, StateKind, SyncBegin, SyncEnd, Unlink
from tests.crash_states.state_check import Anomaly, check_state
from tests.crash_states.world import WORKLOADS, Mode, Run, record

STATES_A_RUN = 120
"""States of one recorded run. Then the workload runs again: with another seed its threads interleave differently."""

_NEAR = (0, 0, 1, 1, 2, 5)
"""How far behind a chosen event the crash comes, in events."""

_KINDS = (
    StateKind.NOTHING, StateKind.NOTHING, StateKind.EVERYTHING, StateKind.NAMES, StateKind.ZEROS, StateKind.PREFIX,
    StateKind.PREFIX, StateKind.RANDOM, StateKind.RANDOM, StateKind.FILES, StateKind.FILES,
)  # fmt: skip


class StateName(NamedTuple):
    """Names a state of a saved run."""

    point: int
    kind: StateKind
    seed: int


class Found(NamedTuple):
    """An anomaly and the state in which it was found; `run` is the file of the run, if it was saved."""

    workload: str
    mode: Mode
    run_seed: int
    state: StateName
    anomaly: Anomaly
    run: Path | None

    def __str__(self) -> str:
        state = self.state
        text = (
            f"{self.workload}, {self.mode.value}, run seed {self.run_seed}, event {state.point}, {state.kind.value}, "
            f"state seed {state.seed}: {self.anomaly}"
        )
        if self.run is not None:
            text += "\n    replay: python -m tests.crash_states --replay "
            text += f"{shlex.quote(str(self.run))}:{state.point}:{state.kind.value}:{state.seed}"
        return text


@dataclass
class Result:
    """states: how many were checked, by workload."""

    states: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)

    def by_class(self) -> Counter[tuple[str, str]]:
        """Number of states by workload and class of anomaly."""
        seen = {(one.workload, one.anomaly.kind, one.run_seed, one.state) for one in self.found}
        return Counter((workload, kind) for workload, kind, _, _ in seen)

    def add(self, other: Result) -> None:
        self.states.update(other.states)
        self.found += other.found


def points(events: tuple[Event, ...], rng: random.Random) -> Iterator[int]:
    """Choose points of a trace without end: mostly just after responses and around fsyncs, renames and unlinks."""
    groups = [
        [index for index, event in enumerate(events) if isinstance(event, kinds)]
        for kinds in ((Send,), (SyncEnd,), (SyncBegin,), (Rename, Unlink))
    ]
    weighted = [group for group in (groups[0], *groups) if group]
    while True:
        if not weighted or rng.random() < 0.15:
            yield rng.randint(0, len(events))
        else:
            yield min(len(events), rng.choice(rng.choice(weighted)) + rng.choice(_NEAR))


def states_of(run: Run, count: int, seed: int) -> Iterator[StateName]:
    """Choose states of a run."""
    rng = random.Random(seed)
    for number, point in enumerate(points(tuple(run.trace.events), rng)):
        if number == count:
            return
        yield StateName(point, rng.choice(_KINDS), rng.randrange(1 << 30))


def search(
    workload: str,
    mode: Mode,
    states: int,
    seed: int,
    *,
    save: Path | None = None,
    tell: Callable[[Found], None] = lambda found: None,
) -> Result:
    """Check `states` states of a workload. save: directory for the runs in which something was found."""
    result = Result()
    run_seed = seed
    while result.states[workload] < states:
        run = record(WORKLOADS[workload], mode, run_seed)
        saved: Path | None = None
        for state in states_of(run, min(STATES_A_RUN, states - result.states[workload]), run_seed):
            result.states[workload] += 1
            for anomaly in check_state(run, *state):
                if save is not None and saved is None:
                    saved = save / f"{workload}-{mode.value}-{run_seed}.run"
                    run.save(saved)
                found = Found(workload, mode, run_seed, state, anomaly, saved)
                result.found.append(found)
                tell(found)
        run_seed += 1000
    return result


def search_all(
    states: int, mode: Mode, seed: int, only: list[str], *, save: Path | None, tell: Callable[[Found], None]
) -> Result:
    """Divide `states` over the workloads of `only`, all by default."""
    names = only or sorted(WORKLOADS)
    result = Result()
    for index, name in enumerate(names):
        share = states // len(names) + (index < states % len(names))
        result.add(search(name, mode, share, seed, save=save, tell=tell))
    return result
