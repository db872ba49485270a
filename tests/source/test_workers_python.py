"""A Python that lacks kafkalog, or a package that it needs, is named before Spark runs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkalog_spark
from kafkalog_spark import registration
from kafkalog_spark.errors import OptionError


@pytest.fixture
def empty_python(tmp_path: Path) -> Path:
    """A Python without a single package."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    path.chmod(0o755)
    return path


class RuntimeConf:
    """Settings of a session, none of them set."""

    def get(self, name: str) -> None:
        return None

    def set(self, name: str, value: str) -> None:
        pass


class Session:
    """What `register` uses of a session."""

    def __init__(self) -> None:
        self.artifacts: list[str] = []
        self.conf: Any = RuntimeConf()

    def addArtifacts(self, path: str, *, pyfile: bool) -> None:
        assert pyfile
        self.artifacts.append(path)


def session() -> Any:
    return Session()


@pytest.fixture
def workers_python(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path | str], None]:
    return lambda python: monkeypatch.setenv("PYSPARK_PYTHON", str(python))


def test_register_with_a_worker_python_without_kafkalog_names_the_command_to_run(
    empty_python: Path, workers_python: Callable[[Path | str], None]
) -> None:
    workers_python(empty_python)
    with pytest.raises(OptionError) as caught:
        kafkalog_spark.register(session())
    assert str(caught.value) == (
        f"Spark's workers run '{empty_python}' ({empty_python}), which lacks kafkalog_spark, numba, numpy, pyarrow; "
        'set os.environ["PYSPARK_PYTHON"] = sys.executable before the session is created, or name another Python that '
        "has kafkalog (docs/clusters.md)"
    )


def test_workers_python_that_is_not_on_the_path_is_refused(workers_python: Callable[[Path | str], None]) -> None:
    workers_python("python9.9")
    with pytest.raises(OptionError, match=r"run 'python9\.9' \(not on PATH\), which lacks Python itself"):
        registration.check_workers_python(session())


def test_worker_python_that_is_this_one_or_has_all_packages_is_accepted(
    tmp_path: Path, workers_python: Callable[[Path | str], None]
) -> None:
    workers_python(sys.executable)
    registration.check_workers_python(session())
    same = tmp_path / "same"
    same.write_text(f'#!/bin/sh\nPYTHONPATH={":".join(filter(None, sys.path))} exec {sys.executable} "$@"\n')
    same.chmod(0o755)
    workers_python(same)
    registration.check_workers_python(session())


def test_discovered_source_without_a_package_names_it_and_the_command_to_run() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import pyspark_kafkalog as found\n"
        "assert found.DefaultSource.name() == 'kafkalog'\n"
        "for call in ('schema', 'reader', 'writer', 'streamReader', 'streamWriter'):\n"
        "    try: getattr(found.DefaultSource({}), call)()\n"
        "    except ImportError as error: print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert len(lines) == 5
    assert set(lines) == {lines[0]}
    assert lines[0].startswith(f"kafkalog cannot be loaded by {sys.executable}, which Spark runs (")
    assert f"type {sys.executable} -m pip install 'kafkalog[spark]', or set PYSPARK_PYTHON" in lines[0]


def test_registering_twice_copies_and_ships_the_wheel_once_to_each_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "kafkalog-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"PK")
    monkeypatch.setattr(registration, "_archive_of", lambda file: wheel)
    one, other = session(), session()
    for each in (one, one, other):
        registration._give_wheel_to_workers(each)
    assert len(one.artifacts) == 1
    assert one.artifacts == other.artifacts
    assert Path(one.artifacts[0]).read_bytes() == b"PK"
