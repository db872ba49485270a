"""kafkalog-cat over a directory against kcat over our broker that serves a copy of it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalog_broker.testing import running_broker
from kafkalog_spark.cli import cat
from tests.cli.kcat_outputs import OUTPUTS, for_kcat, topic_and_arguments

pytestmark = [
    pytest.mark.skipif(shutil.which("kcat") is None, reason="needs kcat (Debian: apt-get install kcat)"),
    pytest.mark.end_to_end,
]


@pytest.fixture(scope="module")
def kcat(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., bytes]]:
    """Runs kcat over a copy of the golden directory."""
    copy = tmp_path_factory.mktemp("kcat") / "data"
    shutil.copytree(golden, copy, copy_function=shutil.copyfile)
    with running_broker(log_dir=copy) as broker:

        def run(*arguments: str) -> bytes:
            command = ["kcat", "-b", broker.bootstrap, "-C", "-e", "-q", *arguments]
            ran = subprocess.run(command, capture_output=True, timeout=120, check=False)
            assert ran.stderr == b""
            return ran.stdout

        yield run


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_cat_output_equals_kcats_over_the_broker(
    name: str, golden: Path, kcat: Callable[..., bytes], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    said = kcat(*topic_and_arguments(name), *for_kcat(OUTPUTS[name]))
    if "KCAT_RECORD" in os.environ:
        kept = Path(__file__).parent / "kcat-1.7.1" / f"{name}.gz"
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(gzip.compress(said, mtime=0))
    assert cat.main([str(golden), *topic_and_arguments(name), *OUTPUTS[name]]) == 0
    found = capsysbinary.readouterr().out
    if "json" in OUTPUTS[name]:
        assert list(map(json.loads, found.decode().splitlines())) == [
            json.loads(line) for line in said.decode(errors="replace").splitlines()
        ]
    else:
        assert found.replace(b"\x00\xff\x80", b"") == said
