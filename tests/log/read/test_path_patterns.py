"""Paths as users write them: `~`, wildcards, and names in which these characters are just characters."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_spark.errors import NotALogDirectory
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.read.roots import Root, expanded_paths
from kafkalog_spark.store.local_store import LOCAL
from tests.source.helpers.made_logs import append, numbers


def paths_of(places: tuple[Root, ...]) -> tuple[str, ...]:
    assert {place.store for place in places} == {LOCAL}
    return tuple(place.path for place in places)


def test_wildcards_find_directories_sorted_and_each_once(tmp_path: Path) -> None:
    for name in ("b2", "b1", "c1"):
        (tmp_path / name).mkdir()
    (tmp_path / "b3").touch()  # a file
    found = expanded_paths([tmp_path / "c1", tmp_path / "[bc]1", tmp_path / "b*"])
    assert paths_of(found) == tuple(str(tmp_path / name) for name in ("c1", "b1", "b2"))


def test_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "logs").mkdir()
    assert paths_of(expanded_paths(["~/logs", "~/l*s"])) == (str(tmp_path / "logs"),)


def test_existing_directory_with_a_wildcard_in_its_name_wins(tmp_path: Path) -> None:
    for name in ("[ab]", "a", "x*", "xy"):
        (tmp_path / name).mkdir()
    assert paths_of(expanded_paths([tmp_path / "[ab]", tmp_path / "x*"])) == (
        str(tmp_path / "[ab]"),
        str(tmp_path / "x*"),
    )


def test_pattern_without_a_match_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(NotALogDirectory, match=r"/nothing\*: no directory matches the pattern"):
        expanded_paths([tmp_path / "nothing*"])


def test_pattern_leaves_out_delete_future_and_stray_partitions(tmp_path: Path) -> None:
    append(tmp_path, "orders", 0, numbers(0, 3))
    append(tmp_path, "orders", 1, numbers(0, 3))
    (tmp_path / "orders-1").rename(tmp_path / f"orders-1.{'0' * 32}-delete")
    assert list(LogDirs.open(tmp_path / "orders-*").locations) == [("orders", 0)]
