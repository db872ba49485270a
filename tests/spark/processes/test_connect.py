"""Spark Connect: the server has kafkalog, its clients have neither that nor a JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.source.helpers.driver import read
from tests.spark.helpers.connect_server import client_packages, client_python, connect_server

ROOT = Path(__file__).parents[3]
CLIENT = Path(__file__).parents[1] / "helpers" / "connect_client.py"
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.end_to_end]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect") / "server.log") as remote:
        yield remote


def asked(python: Path, environment: dict[str, str], *arguments: object) -> dict[str, Any]:
    """What the client has found."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK", "JAVA"))}
    ran = subprocess.run(
        [str(python), str(CLIENT), *map(str, arguments)], cwd=str(arguments[-1]), env={**inherited, **environment},
        capture_output=True, text=True, timeout=840, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("client", ["pyspark-client", "pyspark[connect]"])
def test_connect_client_reads_writes_and_streams(server: str, golden: Path, tmp_path: Path, client: str) -> None:
    pure = client_python()
    if client == "pyspark-client":
        found = asked(pure, {"PATH": "/nowhere"}, golden, server, tmp_path)
        assert not found["has kafkalog"]
    else:
        environment = {
            "MORE_PACKAGES": client_packages(),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "broker")]),
        }
        found = asked(Path(sys.executable), environment, golden, server, tmp_path)
        assert found["registered"] == found["count"]
    expected = read(golden, subscribe="segments")
    assert found["session"] == "pyspark.sql.connect.session"
    assert found["server"] == pyspark.__version__
    assert found["count"] == found["view"] == found["stream"] == found["arrow"] == expected.num_rows > 5000
    assert found["schema"].startswith("struct<key:binary,value:binary,topic:string,partition:int,offset:bigint")
    assert found["filtered"] == sorted(o for o in expected["offset"].to_pylist() if 10 <= o <= 14)
    assert found["written"] == sum(offset < 100 for offset in expected["offset"].to_pylist())
    assert found["batches"] > 0
    assert "unknown option 'subscrib'; did you mean 'subscribe'?" in found["refused"]
    assert "option 'commitGroup' applies to streams only" in found["commitGroup in a batch"]
    assert "kafkalog" in found["by path"]
    topics = {name for name in found["stream's end"] if "@" not in name}  # the others are topic IDs
    assert topics == {"segments"}
