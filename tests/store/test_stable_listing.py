from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.log.read.partition_log import PartitionLocation, PartitionLog
from kafkalog_spark.store.local_store import stable_listing

A, B, C = "00000000000000000000.log", "00000000000000000100.log", "00000000000000000200.log"


class Listings:
    """What os.listdir gives, one after the other; the last one for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, listings: Iterable[Iterable[str]]) -> None:
        self.listings = [list(names) for names in listings]
        self.calls = 0
        self._directory = str(directory)
        self._real = os.listdir
        monkeypatch.setattr(os, "listdir", self)

    def __call__(self, path: Any = ".") -> list[str]:
        if str(path) != self._directory:
            return self._real(path)
        self.calls += 1
        return list(self.listings[min(self.calls, len(self.listings)) - 1])


def test_unchanged_directory_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / A).touch()
    old = time.time() - 10
    os.utime(tmp_path, (old, old))
    listings = Listings(monkeypatch, tmp_path, [[A]])
    assert stable_listing(str(tmp_path)) == [A]
    assert listings.calls == 1


def test_file_renamed_during_a_listing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its old name nor its new one is in the first listing."""
    listings = Listings(monkeypatch, tmp_path, [[A, C], [A, B, C]])
    assert stable_listing(str(tmp_path)) == [A, B, C]
    assert listings.calls == 3


def test_deleted_files_do_not_cause_another_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listings = Listings(monkeypatch, tmp_path, [[A, f"{B}.deleted"], [A]])
    assert A in stable_listing(str(tmp_path))
    assert listings.calls == 2


def test_directory_that_always_changes_is_listed_after_a_bounded_number_of_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Listings(monkeypatch, tmp_path, ([A] if turn % 2 else [A, B] for turn in range(1000)))
    assert A in stable_listing(str(tmp_path))


def test_partition_log_lists_segments_until_the_listing_settles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (A, B, C):
        (tmp_path / name).touch()
    Listings(monkeypatch, tmp_path, [[A, C], [A, B, C]])
    log = PartitionLog(PartitionLocation("orders", 0, str(tmp_path)))
    assert [segment.base_offset for segment in log.segments] == [0, 100, 200]


def test_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        stable_listing(str(tmp_path / "none"))
