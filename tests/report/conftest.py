"""Fixtures for report tests: the shop's log directory and the facts of its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.report.collect import collect
from kafkalog_spark.report.facts import Facts
from tests.report.shop_directory import write_shop


@pytest.fixture(scope="session")
def shop_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Log directory of the shop; do not change it."""
    root = tmp_path_factory.mktemp("report") / "shop"
    write_shop(root)
    return root


@pytest.fixture(scope="session")
def facts(shop_dir: Path) -> Facts:
    """Facts of the shop's report, with key counts of topic orders."""
    return collect(LogDirs.open(shop_dir), 1_767_500_000_000, lambda *_: None, top_keys=("orders",))
