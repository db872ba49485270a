"""The two brokers of a comparison: kafkalog-broker and Apache Kafka, on one disk, with the same settings."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from kafkalog_broker.testing import RunningBroker
from tests.interop.real_kafka import RealKafka

PROPERTIES = {
    # Records of earlier measurements must neither use memory nor be written to disk during later ones.
    "log.segment.delete.delay.ms": 0,
}


class Topics(Protocol):
    """A broker in which topics can be created and deleted."""

    @property
    def bootstrap(self) -> str: ...
    def create_topic(self, topic: str, partitions: int = 1) -> None: ...


class Side(Protocol):
    """Operations of both brokers."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int | None: ...
    def start(self) -> str: ...
    def stop(self) -> None: ...
    def create_topic(self, topic: str, partitions: int = 1) -> None: ...


def sides(home: Path) -> dict[str, Any]:
    """Return both brokers by name, not started, with their files below `home`. They are measured in this order."""
    return {
        "kafkalog": RunningBroker(home / "kafkalog", PROPERTIES),
        "kafka": RealKafka(home / "kafka", PROPERTIES),
    }


@contextmanager
def running_sides() -> Iterator[dict[str, Side]]:
    """Start both brokers in temporary directories, and stop them at the end of the block."""
    with TemporaryDirectory(prefix="kafkalog-bench-") as home, ExitStack() as stack:
        yield {name: stack.enter_context(side) for name, side in sides(Path(home)).items()}


def new_topic(side: Topics, partitions: int) -> str:
    """Create a topic with a unique name, and return the name."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    side.create_topic(name, partitions)
    return name


def delete_topic(side: Topics, topic: str) -> None:
    """Delete a topic and its files."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    admin.delete_topics([topic])[topic].result(30)


def resident_mb(pid: int | None) -> int:
    """Return the resident memory of a process, in MB of 10^6 bytes. Linux only."""
    match = re.search(r"^VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    if match is None:
        raise RuntimeError(f"process {pid} has no VmRSS: it has ended")
    return round(int(match.group(1)) * 1024 / 1e6)
