"""The quickstart of docs/start: its commands and its programs, as a newcomer types them; the job that migrates."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.pages import QUICKSTARTS, ROOT, listings
from tests.spark_session import JVM_FOR_TESTS

pytestmark = pytest.mark.end_to_end

OF_THE_PACKAGE = ["pyproject.toml", "build_kernels.py", "README.md", "LICENSE", "pyspark_kafkalog.py"]
OF_THE_PACKAGE += ["kafkalog_spark", "broker"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What pip needs to install kafkalog from a directory."""
    for name in OF_THE_PACKAGE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "compiled"))
        else:
            shutil.copyfile(source, tmp_path / name)
    return tmp_path


def environment() -> dict[str, str]:
    """That of a newcomer whose pip finds every dependency installed: those of this process. kafkalog itself it
    installs from the checkout."""
    ours = sysconfig.get_path("purelib")
    kept = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "VIRTUAL_ENV")}
    pip = {
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
    }  # pip reads the last one as its opposite
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, **JVM_FOR_TESTS, **pip, "PYTHONPATH": ours, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.mark.parametrize("page", [page for page in QUICKSTARTS if any(one.reason is None for one in listings(page))])
def test_a_quickstart_works_as_printed(page: str, checkout: Path) -> None:
    """Commands by the shell, programs by the environment that the commands have made."""
    told = ""
    for listing in listings(page):
        if listing.reason is not None:
            continue
        if listing.language == "python":
            command = ["env/bin/python", "-c", listing.code]
        else:
            command = ["bash", "-e", "-o", "pipefail", "-c", listing.code]
        ran = subprocess.run(
            command, cwd=checkout, env=environment(), capture_output=True, text=True, timeout=600, check=False
        )
        assert ran.returncode == 0, f"{listing}\n{ran.stdout}{ran.stderr}"
        told += ran.stdout
    assert list((checkout / "env").glob("lib/*/site-packages/kafkalog_spark/datasource.py"))
    assert re.search(r"\|customer 9\|\s+50400\|", told), told  # 9 + 19 + ... + 999
    assert "{'orders': (0, 1)}" in told
    assert "customer 9" not in told.rpartition("{'orders'")[2], "kafkalog-cat prints values alone"


def test_three_lines_of_a_job_change() -> None:
    before, after = (listing.code for listing in listings("docs/migration.md", "python"))
    changes = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    assert [line[2:].strip() for line in changes if line[0] == "-"] == [
        'spark.readStream.format("kafka")', '.option("kafka.bootstrap.servers", source)', ".load()"
    ]  # fmt: skip
    assert [line[2:].strip() for line in changes if line[0] == "+"] == [
        'spark.readStream.format("kafkalog")', ".load(source)"
    ]  # fmt: skip
