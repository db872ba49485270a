"""The recorded fsyncs of Kafka and of our broker: how they are read, compared and shown on a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.fsync_comparison import Difference, deviations, load, unexplained
from tests.interop.fsync_differences import DIFFERENCES
from tests.interop.fsync_scenario import SETTINGS, STEPS, Row
from tests.interop.fsync_trace import Trace, counts, kind_of
from tests.interop.record_fsyncs import KAFKA, OURS, PAGE, page

LOG_DIR = Path("/d/data")
TRACED = b"""\
7 1.0 openat(AT_FDCWD</>, "/d/data/t-0/00000000000000000000.index", O_RDWR|O_CREAT, 0666) = 4</d/data/t-0/0> <0.1>
7 1.1 openat(AT_FDCWD</>, "/d/data/t-0/00000000000000000000.index", O_RDWR|O_CREAT, 0666) = 5</d/data/t-0/0> <0.1>
7 1.2 openat(AT_FDCWD</>, "/etc/hosts", O_RDONLY) = 6</etc/hosts> <0.1>
7 1.3 mmap(NULL, 8192, PROT_WRITE, MAP_SHARED, 4</d/data/t-0/00000000000000000000.index>, 0) = 0x7f0000001000 <0.1>
8 1.4 msync(0x7f0000002000, 100, MS_SYNC) = 0 <0.1>
7 2.0 fsync(9</d/data/t-0/00000000000000000000.log> <unfinished ...>
8 2.1 fdatasync(3</d/data/__consumer_offsets-12/00000000000000000005.log>) = 0 <0.1>
7 2.0 <... fsync resumed>) = 0 <3.5>
8 2.2 fsync(3</d/data/t-0/leader-epoch-checkpoint.tmp>) = -1 EIO (Input/output error) <0.1>
8 2.3 fsync(3</d/data/t-0/leader-epoch-checkpoint.tmp>) = 0 <0.1>
8 2.4 rename("/d/data/t-0/leader-epoch-checkpoint.tmp", "/d/data/t-0/leader-epoch-checkpoint") = 0 <0.1>
8 2.5 fsync(3</d/data/t-0>) = 0 <0.1>
8 2.6 unlinkat(3</d/data/t-0.0123456789abcdef0123456789abcdef-delete>, "partition.metadata", 0) = 0 <0.1>
8 2.7 unlinkat(AT_FDCWD</>, "/d/data/t-0.0123456789abcdef0123456789abcdef-delete", AT_REMOVEDIR) = 0 <0.1>
8 2.8 fsync(4</d/data/t-0/00000000000000000000.log.deleted> (deleted)) = 0 <0.1>
8 2.9 fsync(3</elsewhere/t-0>) = 0 <0.1>
"""


def test_trace_of_strace_output_has_the_successful_calls_on_files_of_the_log_directory(tmp_path: Path) -> None:
    (tmp_path / "strace.out").write_bytes(TRACED + b"8 3.0 fsync(3</d/da")
    events = Trace(tmp_path).read()
    assert counts(events, LOG_DIR) == {
        "create topic .index": 1,
        "msync topic .index": 1,
        "fsync topic .log": 2,
        "fdatasync __consumer_offsets .log": 1,
        "fsync topic leader-epoch-checkpoint": 1,
        "rename topic leader-epoch-checkpoint": 1,
        "fsync topic directory": 1,
        "unlink topic partition.metadata": 1,
        "rmdir topic directory": 1,
    }
    assert next(event.ended for event in events if event.path.endswith("0.log")) == 2.0 + 3.5


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/d", "parent of the log directory"),
        ("/d/data", "log directory"),
        ("/d/data/meta.properties.tmp", "meta.properties"),
        ("/d/data/recovery-point-offset-checkpoint", "recovery-point-offset-checkpoint"),
        ("/d/data/kafkalog.topics.json.tmp", "kafkalog.topics.json"),
        ("/d/data/.kafka_cleanshutdown", ".kafka_cleanshutdown"),
        ("/d/data/a-b-3", "topic directory"),
        ("/d/data/__transaction_state-0/00000000000000000000.timeindex", "__transaction_state .timeindex"),
        ("/d/data/t-0/00000000000000000007.snapshot.tmp.deleted", "topic .snapshot"),
        ("/d/data/__cluster_metadata-0/00000000000000000007-0000000001.checkpoint", "__cluster_metadata .checkpoint"),
        ("/d/database", None),
    ],
)
def test_kind_of_a_path_names_the_owner_and_the_kind_of_file(path: str, kind: str | None) -> None:
    assert kind_of(path, LOG_DIR) == kind


def row(before: dict[str, int], after: dict[str, int] | None = None, order: tuple[str, ...] = ()) -> Row:
    return {"syncs": before | (after or {}), "before": before, "names": {}, "order": list(order)}


@pytest.mark.parametrize(
    ("kafka", "ours", "ways"),
    [
        (row({"fsync topic .log": 1}), row({"fdatasync topic .log": 1}), []),
        (row({"fsync topic .log": 1}), row({}), ["none"]),
        (row({"fsync topic .log": 1}), row({}, {"fsync topic .log": 1}), ["late"]),
        (row({}, {"fsync topic .log": 2}), row({"fsync topic .log": 1}), ["fewer"]),
        (row({}), row({"fsync topic .log": 1}), ["more"]),
        (row({"fsync __cluster_metadata .log": 3}), row({"fsync kafkalog.acls.json": 1}), []),
        (row({}, {"fsync __cluster_metadata .log": 3}), row({}, {"fsync kafkalog.acls.json": 1}), ["late"]),
    ],
)
def test_deviations_of_a_step_tell_how_our_syncs_differ(kafka: Row, ours: Row, ways: list[str]) -> None:
    found = list(deviations("default", "DeleteRecords", kafka, ours))
    assert [deviation.way for deviation in found] == ways
    kinds = tuple(deviation.kind for deviation in found)
    for way in ways:
        explained = Difference(way, kinds, ("DeleteRecords",), "a reason")  # type: ignore[arg-type]
        assert not unexplained("default", "DeleteRecords", kafka, ours, [explained])


def test_deviations_of_an_end_of_a_transaction_need_its_markers_on_disk_before_the_end() -> None:
    syncs = row({"fsync topic .log": 1, "fsync __transaction_state .log": 2})
    marker, state = "topic .log", "__transaction_state .log"
    right, wrong = syncs | {"order": [state, marker, state]}, syncs | {"order": [state, state, marker]}
    assert not list(deviations("default", "EndTxn v5, commit", syncs, right))  # type: ignore[arg-type]
    (found,) = deviations("default", "EndTxn v5, commit", syncs, wrong)  # type: ignore[arg-type]
    assert (found.way, found.kind) == ("order", marker)


@pytest.mark.parametrize("setting", SETTINGS)
def test_recordings_differ_only_where_the_difference_is_explained(setting: str) -> None:
    kafka, ours = load(KAFKA)[setting], load(OURS)[setting]
    assert list(kafka) == list(ours) == list(STEPS)
    problems = [text for step in STEPS for text in unexplained(setting, step, kafka[step], ours[step], DIFFERENCES)]
    assert not problems, "\n".join(map(str, problems))


def test_explained_differences_are_all_in_the_recordings() -> None:
    kafka, ours = load(KAFKA), load(OURS)
    found = [
        deviation for setting in SETTINGS for step in STEPS
        for deviation in deviations(setting, step, kafka[setting][step], ours[setting][step])
    ]  # fmt: skip
    unused = [entry.reason for entry in DIFFERENCES if not any(map(entry.explains, found))]
    assert not unused
    steps = {step for entry in DIFFERENCES for step in entry.steps}
    assert steps <= set(STEPS)


def test_page_of_fsyncs_shows_the_recordings() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.interop.record_fsyncs table`"
