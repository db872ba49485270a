"""The suites: where their sources come from, at which release, and which of their files are run.

kafka-python's source distribution carries its tests. Those of confluent-kafka-python and aiokafka are in their
repositories only, so these are cloned at a tag.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
WORK = ROOT / "build" / "suites"
"""Where sources are unpacked: one directory each, named `<suite>-<version>`. What is there is taken as it is."""


class SourceMissing(RuntimeError):
    """The sources of a suite could not be fetched."""


@dataclass(frozen=True)
class Suite:
    """`plugin`: the pytest plugin below plugins/ that takes the place of the suite's own environment. `paths`: what of
    the sources pytest is given. `own_client`: whether the client of those sources is tested, not the installed one."""

    name: str
    version: str
    paths: tuple[str, ...]
    plugin: str
    repository: str | None = None  # None: the source distribution has the tests
    tag: str = ""
    own_client: bool = False
    keep: tuple[str, ...] = ()  # of a clone's top level; all without
    properties: Mapping[str, object] = field(default_factory=dict)  # of the broker
    options: tuple[str, ...] = ()  # of pytest
    environment: Mapping[str, str] = field(default_factory=dict)  # {bootstrap} is filled in

    @property
    def directory(self) -> Path:
        return WORK / f"{self.name}-{self.version}"


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "kafka-python",
            "3.0.12",
            ("test/integration",),
            "kafka_python_suite",
            own_client=True,
            # Its tests count on node 0, four partitions, listeners that are configured, and short sessions.
            properties={
                "node.id": 0,
                "num.partitions": 4,
                "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
                "group.min.session.timeout.ms": 1000,
                "group.initial.rebalance.delay.ms": 0,
            },
            environment={"KAFKA_VERSION": "4.3.0", "KAFKA_URI": "kafka://{bootstrap}"},
        ),
        Suite(
            "confluent-kafka-python",
            "2.15.0",
            tuple(f"tests/integration/{part}" for part in ("admin", "consumer", "producer", "serialization")),
            "confluent_kafka_suite",
            repository="https://github.com/confluentinc/confluent-kafka-python",
            tag="v2.15.0",
            properties={"group.initial.rebalance.delay.ms": 0},
            environment={"BROKERS": "{bootstrap}"},
        ),
        Suite(
            "aiokafka",
            "0.14.0",
            tuple(
                f"tests/test_{part}.py"
                for part in (
                    "admin",
                    "client",
                    "conn",
                    "consumer",
                    "coordinator",
                    "fetcher",
                    "pep492",
                    "producer",
                    "transactional_consumer",
                    "transactional_producer",
                )
            ),
            "aiokafka_suite",
            repository="https://github.com/aio-libs/aiokafka",
            keep=("tests",),  # not its client, which lacks the compiled parts and would be found first
            tag="v0.14.0",
            properties={"num.partitions": 2, "group.initial.rebalance.delay.ms": 0},
            options=("--noconftest",),  # its conftest starts Docker
            environment={"KAFKALOG_BOOTSTRAP": "{bootstrap}"},
        ),
    )
}


def fetch(suite: Suite) -> Path:
    """The directory with the suite's sources; fetched when they are not there. Raises SourceMissing."""
    if not suite.directory.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        _clone(suite) if suite.repository else _download(suite)
    return suite.directory


def _download(suite: Suite) -> None:
    downloads = WORK / "downloads"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    _run(suite, [*command, "--dest", str(downloads), f"{suite.name}=={suite.version}"])
    [archive] = downloads.glob(f"{suite.name.replace('-', '_')}-{suite.version}.tar.gz")
    unpacked = WORK / f"{suite.name}.unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    [top] = unpacked.iterdir()
    top.rename(suite.directory)
    unpacked.rmdir()


def _clone(suite: Suite) -> None:
    cloned = WORK / f"{suite.name}.cloned"
    shutil.rmtree(cloned, ignore_errors=True)
    command = ["git", "clone", "--quiet", "--depth", "1", "--branch", suite.tag]
    _run(suite, [*command, str(suite.repository), str(cloned)])
    for entry in cloned.iterdir():
        if suite.keep and entry.name not in suite.keep:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    cloned.rename(suite.directory)


def _run(suite: Suite, command: list[str]) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SourceMissing(
            f"{suite.name} {suite.version} could not be fetched; unpack its sources into {suite.directory}, or "
            f"leave it out (make test-suites SUITES=...): {(ran.stderr or ran.stdout)[-1000:].strip()}"
        )
