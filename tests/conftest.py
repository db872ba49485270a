"""Fixtures that every test may use: golden directories, one Spark session, and how hypothesis searches."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import golden_data, searches
from tests.spark_session import JVM_FOR_TESTS, new_session

pytest_plugins = ["tests.on_bucket"]

searches.load_profile()
for name, value in JVM_FOR_TESTS.items():
    os.environ.setdefault(name, value)  # also for the JVMs that examples, the notebook and killed queries start

INTEROP = Path(__file__).parent / "interop"
SPARK = Path(__file__).parent / "spark"
OWN_SPARKS = SPARK / "processes"
"""Tests whose Spark is a process that they start: they need no session of the run's, and may run alongside it."""

BUCKETS = frozenset({"s3", "gs", "azure"})
"""Fixtures that serve object storage; with the files test_bucket*.py, what is left to `make test-bucket`."""
LONG_SECONDS = 900
"""A hang is a failure of an end-to-end or interop test too, but each takes a minute on a machine that does nothing
else. A tool of Kafka's takes 2 s there and 20 s beside other Javas; the first tests wait for what Maven and pip fetch.
"""

# What one process works on for longest, after the Spark session's tests. Begun first, so that all processes end at
# about the same time; the others fill the gaps as they come.
LONG = (
    "tests/spark/processes/",
    "tests/examples/test_examples.py",
    "tests/notebooks/test_explore.py",
    "tests/log/read/test_mutations.py",
    "tests/broker/net/test_fuzz.py",
    "tests/broker/clients/",
)


NICE = 10
"""How nice the processes are that do not have the Spark session, whose tests take longest: it is never waited for."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """The session's tests are the first group, so the first of several processes has it. Interop tests are not nice: a
    real Kafka beside another one would have a tenth of the processor, and miss what it has seconds for."""
    is_nice = not session.config.getoption("markexpr").startswith("interop")
    if is_nice and os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        os.nice(NICE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budget", type=float, metavar="SECONDS",
        help="skip the tests that would begin later than this after the first one; no tests are no error",
    )  # fmt: skip


_budget_began: list[float] = []


def pytest_runtest_setup(item: pytest.Item) -> None:
    budget = item.config.getoption("--budget")
    if budget is not None:
        now = time.monotonic()
        _budget_began.append(now)
        if now - _budget_began[0] > budget:
            pytest.skip("the time of --budget is over; make test runs this test")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if session.config.getoption("--budget") is not None and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the markers that follow from what a test uses, so that none is forgotten."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
            # `make test` would start another session in its other process; `make test-slow` has one process.
            if not item.path.is_relative_to(SPARK) and item.get_closest_marker("slow") is None:
                raise pytest.UsageError(f"{item.nodeid} uses the Spark session, so it belongs below {SPARK}")
        if item.path.is_relative_to(INTEROP):
            item.add_marker("interop")
        if not BUCKETS.isdisjoint(getattr(item, "fixturenames", ())) or item.path.name.startswith("test_bucket"):
            item.add_marker("bucket")
        is_long = any(map(item.get_closest_marker, ("end_to_end", "interop")))
        if is_long and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_SECONDS))
    items.sort(key=_place)  # stable: within a file they stay in their order


def shares_the_session(path: Path) -> bool:
    """Whether a file's tests run in the process that has the one Spark session."""
    return path.is_relative_to(SPARK) and not path.is_relative_to(OWN_SPARKS)


def _place(item: pytest.Item) -> int:
    """When its turn is, among groups: the Spark session's tests first, then LONG in order, then the others."""
    if shares_the_session(item.path):
        return -1
    return next((place for place, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Collect librdkafka's clients that only a traceback's frame still holds, before their broker ends: they would look
    for it until they are collected, and print "Connection refused" during other tests.

    Not again for those that were there after a collection: with a session's objects in memory each takes 0.4 s."""
    global _outlived
    if _librdkafkas_threads() - _outlived:
        gc.collect()
        _outlived = _librdkafkas_threads()


_outlived: set[str] = set()


def _librdkafkas_threads() -> set[str]:
    """Their numbers. None elsewhere than on Linux."""
    found = set()
    for path in Path("/proc/self/task").glob("*/comm"):
        try:
            if path.read_text().startswith("rdk:"):
                found.add(path.parent.name)
        except OSError:
            pass  # it has ended
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With pytest-xdist (`-n 4`) the tests of one file share a process, and so do those of the Spark session: what a
    file sets up for its tests is set up once, and there is one Spark session. Groups begin in the order of
    collection."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # by number of tests, which says nothing of how long they take

    class BySession(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::", 1)[0]
            return "spark" if shares_the_session(Path(config.rootpath, path)) else path

    return BySession(config, log)


@pytest.fixture(scope="session")
def golden() -> Path:
    """The log directory that Kafka 4.3.0 wrote. Read only: take `golden_copy` to change something."""
    return golden_data.data_dir(golden_data.KAFKA_4_3)


@pytest.fixture(scope="session")
def golden_legacy() -> Path:
    """The log directory that Kafka 2.8.2 wrote, with messages v0 and v1."""
    return golden_data.data_dir(golden_data.KAFKA_2_8)


@pytest.fixture(scope="session")
def golden_crashed() -> Path:
    """A copy of some of `golden`'s partitions after kill -9: zero-padded indexes, stale checkpoints."""
    return golden_data.data_dir(golden_data.KAFKA_4_3, crashed=True)


@pytest.fixture
def golden_copy(tmp_path: Path) -> Callable[..., Path]:
    """`golden_copy(release, *names, crashed=False)`: a log directory with copies of those partitions (all without
    names) and the directory's own files, free to be changed."""

    def copy(release: str = golden_data.KAFKA_4_3, *names: str, crashed: bool = False) -> Path:
        source = golden_data.data_dir(release, crashed=crashed)
        target = tmp_path / f"{release}-{'crashed' if crashed else 'data'}"
        target.mkdir()
        for entry in source.iterdir():
            if entry.is_file():
                shutil.copyfile(entry, target / entry.name)
            elif not names or entry.name in names:
                shutil.copytree(entry, target / entry.name, copy_function=shutil.copyfile)
        missing = [name for name in names if not (target / name).is_dir()]
        if missing:
            raise LookupError(f"{source} has no {missing}")
        return target

    return copy


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of the session's JVM and of its workers: relative paths of queries lie there."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture
def spark_cwd(spark_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, emptied, and this process's working directory too: what a page calls `kafka-logs` lies there."""
    monkeypatch.chdir(spark_folder)
    for left in spark_folder.iterdir():
        if left.name != "spark-warehouse":
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    return spark_folder


@pytest.fixture(scope="session")
def spark(spark_folder: Path) -> Iterator[Any]:
    """The one Spark session of a test run. Whoever changes a setting puts it back."""
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        pytest.fail("Spark needs Java 17 or newer: install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME")
    with contextlib.chdir(spark_folder):
        session = new_session("local[2]", {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"})
    yield session
    session.stop()
