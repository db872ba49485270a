"""`make check` begins with the tests nearest to a change."""

from __future__ import annotations

from tests.affected import AFTER_EVERY_CHANGE, Affected, affected, imports_of_tests

IMPORTS = {
    "tests/log/read/test_scan.py": {"tests/log/helpers/logs.py"},
    "tests/log/read/test_other.py": set(),
    "tests/log/helpers/logs.py": {"kafkalog_spark/log/read/scan.py"},
    "tests/broker/net/test_frames.py": set(),
    "tests/sink/test_commit.py": {"kafkalog_spark/sink/commit.py"},
}


def nearest(*changed: str) -> Affected:
    first, others = affected(changed, IMPORTS)
    assert first[-len(AFTER_EVERY_CHANGE) :] == list(AFTER_EVERY_CHANGE)
    return Affected(first[: -len(AFTER_EVERY_CHANGE)], others)


def test_module_imported_through_a_helper_comes_before_the_rest_of_its_folder() -> None:
    near = nearest("kafkalog_spark/log/read/scan.py")
    assert near == ([], ["tests/log/read/test_scan.py", "tests/log/read/test_other.py"])


def test_changed_test_file_is_apart_from_the_others() -> None:
    changed = ["kafkalog_spark/sink/commit.py", "tests/broker/net/test_frames.py"]
    assert nearest(*changed) == (["tests/broker/net/test_frames.py"], ["tests/sink/test_commit.py"])


def test_broker_module_selects_the_folder_that_mirrors_it() -> None:
    assert nearest("broker/kafkalog_broker/net/connection.py") == ([], ["tests/broker/net/test_frames.py"])


def test_page_selects_only_the_tests_that_run_after_every_change() -> None:
    assert nearest("docs/broker.md") == ([], [])


def test_imports_are_read_from_the_files() -> None:
    assert "tests/affected.py" in imports_of_tests()["tests/test_affected.py"]
