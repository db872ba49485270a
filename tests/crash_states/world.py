"""What a workload works with, and what is left of it: a recorded run, from which states are built.

How to add a workload: write a function that takes a `World` below `workloads/`, decorate it with
`@workload("name", properties={...})`, and add its module to `workloads/__init__.py`. It starts the broker with
`world.start()`, makes requests with sessions of `world.session()`, which note in the ledger what was sent and
acknowledged, and lets time pass with `world.broker.tick(ms)`. A workload without a broker takes `world.log_dir`, calls
the product in this process, and notes in the ledger itself; `world.point()` is the point of now. What is checked after
a restart follows from the ledger (state_check.py); `@workload(..., check=function)` adds checks of its own, for which
`world.facts` holds what they need.
"""

from __future__ import annotations

import itertools
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from tests.broker.manual_clock import ManualClock
from tests.crash_states.broker_thread import BrokerThread, Client, quiet
from tests.crash_states.disk import Trace
from tests.crash_states.ledger import Ledger
from tests.crash_states.recorder import Recorder
from tests.crash_states.session import Session

LOGS, MORE, TIER = "logs", "more", "tier"
"""Names of the roots in a trace: the log directory, another one, and a directory that is a tier's store."""

BEGINS_MS = 1_700_000_000_000


class Mode(Enum):
    """DEFAULT: Kafka's flush settings. STRICT: log.flush.interval.messages=1 for all topics. TOPIC: flush.messages=1
    for the workload's own topics only."""

    DEFAULT = "default"
    STRICT = "strict"
    TOPIC = "topic"

    @property
    def keeps_records(self) -> bool:
        """Whether acknowledged records are never lost."""
        return self is not Mode.DEFAULT

    @property
    def keeps_state(self) -> bool:
        """Whether acknowledged steps of transactions and groups are never lost."""
        return self is Mode.STRICT


@dataclass
class Run:
    """A recorded workload."""

    workload: str
    mode: Mode
    seed: int
    trace: Trace
    ledger: Ledger
    properties: dict[str, object]
    now_ms: int
    facts: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        path.write_bytes(pickle.dumps(self))

    @staticmethod
    def load(path: Path) -> Run:
        run: Run = pickle.loads(path.read_bytes())
        return run


StateCheck = Callable[[Any], None]


@dataclass(frozen=True)
class Workload:
    """properties: of the broker, in each mode. check: called with a `state_check.StateCheck`, before transactions are
    ended. checker: class in place of StateCheck."""

    name: str
    run: Callable[[World], None]
    properties: Mapping[str, object]
    check: StateCheck | None = None
    checker: Any = None


WORKLOADS: dict[str, Workload] = {}


def workload(
    name: str, properties: Mapping[str, object] | None = None, check: StateCheck | None = None, checker: Any = None
) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    """Register a function as the workload `name`."""

    def register(function: Callable[[World], None]) -> Callable[[World], None]:
        WORKLOADS[name] = Workload(name, function, properties or {}, check, checker)
        return function

    return register


def in_directory(properties: Mapping[str, object], directory: Path) -> dict[str, str]:
    """Return properties with the paths of the roots below `directory` for {logs}, {more} and {tier}."""
    paths = {root: directory / root for root in (LOGS, MORE, TIER)}
    return {name: str(value).format(**paths) for name, value in {"log.dirs": "{logs}", **properties}.items()}


class World:
    """A workload's surroundings: a recorder, a manual clock, a broker and clients. facts: what its own check needs."""

    def __init__(self, directory: Path, properties: Mapping[str, object], mode: Mode, seed: int) -> None:
        self.directory, self.mode, self.seed = directory, mode, seed
        self.log_dir, more, self.tier = directory / LOGS, directory / MORE, directory / TIER
        self.log_dir.mkdir(parents=True, exist_ok=True)
        more.mkdir()
        self.tier.mkdir()
        self.properties = dict(properties)
        if mode is Mode.STRICT:
            self.properties["log.flush.interval.messages"] = 1
        self.clock, self.ledger = ManualClock(BEGINS_MS), Ledger()
        self.recorder = Recorder({LOGS: self.log_dir, MORE: more, TIER: self.tier})
        self.facts: dict[str, Any] = {}
        self.broker: BrokerThread
        self._clients: list[Client] = []
        self._numbers = itertools.count()
        self._is_running = False

    @property
    def topic_configs(self) -> dict[str, object]:
        """Configs that the mode gives the workload's own topics."""
        return {"flush_messages": 1} if self.mode is Mode.TOPIC else {}

    def point(self) -> int:
        """Return the point of the trace that is now."""
        return len(self.recorder.events)

    def start(self, **properties: object) -> None:
        """Start the broker, also again; further properties with underscores for dots."""
        self.properties |= {name.replace("_", "."): value for name, value in properties.items()}
        self.broker = BrokerThread(in_directory(self.properties, self.directory), self.clock)
        self.broker.start()
        self._is_running = True

    def stop(self) -> None:
        """Stop the broker cleanly."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        self._is_running = False
        self.broker.stop()

    def end(self) -> None:
        if self._is_running:
            self.stop()

    def session(self) -> Session:
        """Return a client with a connection of its own."""
        client = Client(self.broker.port, self.recorder)
        self._clients.append(client)
        return Session(client, self.ledger, self.broker)

    def values(self, count: int, size: int = 20) -> list[bytes]:
        """Return values that no other record of the run has."""
        return [b"%0*d" % (size, next(self._numbers)) for _ in range(count)]

    def in_parallel(self, *functions: Callable[[], None]) -> None:
        """Run functions in threads of their own and raise the first error of any."""
        errors: list[BaseException] = []

        def guarded(function: Callable[[], None]) -> None:
            try:
                function()
            except BaseException as error:  # noqa: BLE001 - handed on to the caller
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory in memory where there is one: thousands of states are written."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="crash-states-", dir=memory if memory.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def record(workload: Workload, mode: Mode, seed: int, initial: Path | None = None) -> Run:
    """Run a workload and return its record. Raises NotRecorded if the recorder missed a byte.

    initial: a log directory whose files are there, and on disk, before the workload begins.
    """
    with quiet(), scratch_directory() as directory:
        if initial is not None:
            shutil.copytree(initial, directory / LOGS)
        world = World(directory, workload.properties, mode, seed)
        with world.recorder.running():
            try:
                workload.run(world)
            finally:
                world.end()
        world.recorder.check()
        trace = world.recorder.trace()
    return Run(workload.name, mode, seed, trace, world.ledger, world.properties, world.clock.now_ms(), world.facts)
