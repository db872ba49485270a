"""python -m kafkalog_spark.warm: its processes compile the kernels without an error."""

from __future__ import annotations

import pytest

from kafkalog_spark.warm import main


def test_warm_compiles_the_kernels_for_writing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "write"]) == 0
    assert capsys.readouterr().out.startswith("kernels ready after ")
