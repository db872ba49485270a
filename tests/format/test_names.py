"""Names in a log directory, and which files of a listing are the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog_spark.format.names import (
    DirKind,
    PartitionDir,
    SegmentFileName,
    SegmentFiles,
    is_internal,
    live_segments,
    parse_partition_dir,
    parse_segment_file,
    producer_snapshots,
    segment_name,
    valid_topic_name,
)
from tests import golden_data
from tests.searches import examples

HEX = "0123456789abcdef0123456789abcdef"
TOPICS = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(lambda topic: topic not in (".", ".."))
PARTITIONS = st.integers(0, 2**31 - 1)


@pytest.mark.parametrize("release", golden_data.RELEASES)
def test_every_partition_of_a_golden_directory_is_found(release):
    names = [entry.name for entry in golden_data.data_dir(release).iterdir()]
    found = {name: parse_partition_dir(name) for name in names}
    assert {name for name, parsed in found.items() if parsed} == {
        entry.name for entry in golden_data.data_dir(release).iterdir() if entry.is_dir()
    }
    for name, parsed in found.items():
        if parsed:
            assert f"{parsed.topic}-{parsed.partition}" == name
            assert parsed.kind is DirKind.LIVE


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", ("orders", 0, DirKind.LIVE)),
        ("a-1-2", ("a-1", 2, DirKind.LIVE)),
        ("a.b_c-d-10", ("a.b_c-d", 10, DirKind.LIVE)),
        ("a-delete-3", ("a-delete", 3, DirKind.LIVE)),
        ("--0", ("-", 0, DirKind.LIVE)),
        (f"orders-1.{HEX}-delete", ("orders", 1, DirKind.DELETE)),
        (f"orders-1.{HEX}-future", ("orders", 1, DirKind.FUTURE)),
        (f"orders-1.{HEX}-stray", ("orders", 1, DirKind.STRAY)),
        (f"a.b-c-1.{HEX}-delete", ("a.b-c", 1, DirKind.DELETE)),
        (f"a-1.{HEX}-delete-2", (f"a-1.{HEX}-delete", 2, DirKind.LIVE)),
        ("__cluster_metadata-0", ("__cluster_metadata", 0, DirKind.METADATA)),
        ("__consumer_offsets-49", ("__consumer_offsets", 49, DirKind.LIVE)),
        ("orders-2147483647", ("orders", 2147483647, DirKind.LIVE)),
    ],
)
def test_partition_directory_name_is_parsed_as_in_kafka(name, expected):
    assert parse_partition_dir(name) == PartitionDir(*expected)


@pytest.mark.parametrize(
    "name",
    [
        "", "-", "orders", "orders-", "-0", "orders-x", "orders-01", "orders--1x", "orders-+1", "orders-1 ",
        "or ders-1",
        "orders-2147483648", "orders-99999999999999999999", "..-0", ".-0", "orders-\u0661", "orders-0\n", "a/b-0",
        "orders-0-delete", "orders-0.-delete", f"orders.{HEX}-delete", f"orders-0.{HEX}-deleted", f"{'x' * 250}-0",
        "lost+found", "meta.properties", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown",
    ],
)  # fmt: skip
def test_other_directory_names_are_no_partitions(name):
    assert parse_partition_dir(name) is None


@given(TOPICS, PARTITIONS, st.sampled_from(["", f".{HEX}-delete", f".{HEX}-future", f".{HEX}-stray"]))
def test_partition_directory_name_round_trips(topic, partition, suffix):
    parsed = parse_partition_dir(f"{topic}-{partition}{suffix}")
    assert parsed is not None
    assert parsed[:2] == (topic, partition)
    assert parsed.kind.value == (suffix[suffix.rindex("-") + 1 :] if suffix else "live")


@pytest.mark.parametrize("topic", ["a", "A.b_c-9", "x" * 249, "..."])
def test_valid_topic_name_is_accepted(topic):
    assert valid_topic_name(topic)


@pytest.mark.parametrize("topic", ["", ".", "..", "x" * 250, "a b", "a/b", "\u00fc", "a\n"])
def test_invalid_topic_name_is_rejected(topic):
    assert not valid_topic_name(topic)


def test_internal_topics_are_recognized():
    internal = ["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"]
    assert all(map(is_internal, internal))
    assert not any(map(is_internal, ["orders", "__mine", "_schemas"]))


@pytest.mark.parametrize("release", golden_data.RELEASES)
def test_golden_partition_files_are_segment_or_text_files(release):
    files = [path.name for path in golden_data.data_dir(release).glob("*-*/*")]
    others = {name for name in files if parse_segment_file(name) is None}
    assert others == {"leader-epoch-checkpoint"} | (
        {"partition.metadata"} if release == golden_data.KAFKA_4_3 else set()
    )
    for name in set(files) - others:
        parsed = parse_segment_file(name)
        assert parsed is not None
        assert f"{segment_name(parsed.base_offset)}{parsed.suffix}{parsed.transient_suffix or ''}" == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000000.log", (0, ".log", None)),
        ("00000000000000000042.timeindex.deleted", (42, ".timeindex", ".deleted")),
        ("00000000000000000042.index.cleaned", (42, ".index", ".cleaned")),
        ("09223372036854775807.txnindex.swap", (2**63 - 1, ".txnindex", ".swap")),
        ("00000000000000000007.snapshot", (7, ".snapshot", None)),
    ],
)
def test_segment_file_name_is_parsed(name, expected):
    assert parse_segment_file(name) == SegmentFileName(*expected)


@pytest.mark.parametrize(
    "name",
    [
        "0.log", "00000000000000000000", "00000000000000000000.log.bak", "000000000000000000000.log", ".log",
        "99999999999999999999.log", "00000000000000000000.LOG", "00000000000000000000.log\n",
        "0000000000000000000\u0661.log", "00000000000000000000-0000000000.checkpoint",
        "00000000000000000000.log.swap.swap",
        "-0000000000000000001.log", "leader-epoch-checkpoint",
    ],
)  # fmt: skip
def test_other_file_names_are_no_segment_files(name):
    assert parse_segment_file(name) is None


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_base_offset_is_a_positive_i64(offset):
    with pytest.raises(ValueError, match="between 0 and"):
        segment_name(offset)


def _fail(name: str) -> int:
    raise AssertionError(f"{name} was opened")


@pytest.mark.parametrize("log", golden_data.golden_logs(), ids=str)
def test_golden_partition_has_the_segments_that_kafka_dumped(log):
    names = [path.name for path in log.directory.iterdir()]
    segments = live_segments(names, _fail)
    assert [segment.log for segment in segments] == [path.name for path in log.segments()]
    for segment in segments:
        stem = segment_name(segment.base_offset)
        assert segment.offset_index == f"{stem}.index"
        assert segment.time_index == f"{stem}.timeindex"
        assert segment.transaction_index == (f"{stem}.txnindex" if f"{stem}.txnindex" in names else None)
    assert [name for _, name in producer_snapshots(names)] == sorted(n for n in names if n.endswith(".snapshot"))


INDEXES = (".index", ".timeindex", ".txnindex")
SUFFIXES = (".log", *INDEXES)


def _replacing(old: list[int], new: list[int]) -> Iterator[dict[str, str]]:
    """The directory {name: "old" or "new"} after every single rename of LocalLog.replaceSegments."""
    files = {f"{segment_name(base)}{suffix}": "old" for base in old for suffix in SUFFIXES}
    for base in new:
        for suffix in SUFFIXES:
            files[f"{segment_name(base)}{suffix}.cleaned"] = "new"
            yield dict(files)
    renames = [(base, ".cleaned", ".swap") for base in sorted(new, reverse=True)]
    renames += [(base, "", ".deleted") for base in sorted(old)]
    renames += [(base, ".swap", "") for base in sorted(new)]
    for base, before, after in renames:
        for suffix in SUFFIXES:
            name = segment_name(base) + suffix
            files[name + after] = files.pop(name + before)
            yield dict(files)


@pytest.mark.parametrize(
    ("old", "new"),
    [([0, 600, 1200], [0]), ([600], [600]), ([0], [0, 300, 600]), ([600, 1200], [600, 900, 1500])],
    ids=["cleaning", "cleaning one", "splitting", "regrouping"],
)
def test_log_is_all_old_or_all_new_at_every_step_of_a_replacement(old, new):
    # The new segments reach to where the next segment, untouched, begins.
    ends = dict(zip(new, [*new[1:], 1800], strict=True))
    untouched = {f"{segment_name(1800)}{suffix}": "untouched" for suffix in SUFFIXES}
    seen = []
    for files in _replacing(old, new):
        files |= untouched
        segments = live_segments(files, lambda name: ends[int(name[:20])])
        assert segments[-1] == SegmentFiles(1800, *(f"{segment_name(1800)}{suffix}" for suffix in SUFFIXES))
        state = {files[segment.log] for segment in segments[:-1]}
        assert len(state) == 1, files
        generation = state.pop()
        assert [segment.base_offset for segment in segments[:-1]] == (old if generation == "old" else new)
        for segment in segments[:-1]:
            indexes = [segment.offset_index, segment.time_index, segment.transaction_index]
            assert {files[index] for index in indexes if index is not None} == {generation}, files
        seen.append(generation)
    assert seen == sorted(seen, reverse=True), "once new, never old again"
    assert {"old", "new"} == set(seen)


def test_swap_log_replaces_only_what_its_content_covers():
    names = ["00000000000000000000.log.swap", "00000000000000000600.log", "00000000000000001200.log"]
    assert [s.log for s in live_segments(names, lambda name: 1200)] == [names[0], names[2]]
    assert [s.log for s in live_segments(names, lambda name: 1201)] == [names[0]]


def test_empty_swap_log_replaces_the_segment_of_its_own_base_offset():
    names = ["00000000000000000005.log", "00000000000000000005.index", "00000000000000000005.log.swap"]
    assert live_segments(names, lambda name: 5) == [SegmentFiles(5, "00000000000000000005.log.swap")]


def test_swap_log_above_a_cleaned_file_is_not_opened():
    names = ["00000000000000000000.log", "00000000000000000300.log.swap", "00000000000000000000.timeindex.cleaned"]
    assert live_segments(names, _fail) == [SegmentFiles(0, "00000000000000000000.log")]


def test_swap_index_belongs_to_a_log_already_renamed():
    names = ["00000000000000000005.log", "00000000000000000005.index", "00000000000000000005.index.swap"]
    assert live_segments(names, _fail) == [SegmentFiles(5, names[0], names[2])]


def test_index_without_a_log_is_no_segment():
    assert live_segments(["00000000000000000000.index", "00000000000000000009.txnindex.swap", "junk"], _fail) == []


def test_file_deleted_during_its_lookup_raises_to_the_caller():
    def gone(name: str) -> int:
        raise FileNotFoundError(name)

    with pytest.raises(FileNotFoundError):
        live_segments(["00000000000000000000.log.swap"], gone)


def _load_as_kafka(names: set[str], next_offset: dict[int, int]) -> dict[str, str]:
    """LogLoader.load, pass by pass, on a set of names; answers {name after loading: name before}."""
    base = {name: int(name[:20]) for name in names}
    files = {name: name for name in names if not name.endswith(".deleted")}
    cleaned = [name for name in files if name.endswith(".cleaned")]
    least = min((base[name] for name in cleaned), default=2**63)
    for name in [*cleaned, *(n for n in files if n.endswith(".swap") and base[n] >= least)]:
        del files[name]
    swapped = [base[name] for name in files if name.endswith(".log.swap")]
    low, high = min(swapped, default=2**63), max((next_offset[b] for b in swapped), default=-1)
    for name in [n for n in files if not n.endswith(".swap") and low <= base[n] < high]:
        del files[name]
    for name in [n for n in files if n.endswith(".swap")]:
        files[name.removesuffix(".swap")] = files.pop(name)
    return files


BASES = [0, 3, 5, 9]
LISTINGS = st.sets(
    st.builds(
        lambda base, suffix, transient: segment_name(base) + suffix + transient,
        st.sampled_from(BASES),
        st.sampled_from([".log", ".log", ".index", ".timeindex", ".txnindex", ".snapshot"]),
        st.sampled_from(["", "", ".swap", ".swap", ".cleaned", ".deleted"]),
    )
)


@settings(max_examples=examples(500))
@given(LISTINGS, st.lists(st.integers(0, 6), min_size=4, max_size=4))
def test_segments_of_any_listing_equal_kafkas_log_loader(names, lengths):
    ends = {base: base + length for base, length in zip(BASES, lengths, strict=True)}
    kafka = _load_as_kafka(names, ends)
    segments = live_segments(sorted(names), lambda name: ends[int(name[:20])])
    assert {segment.base_offset: segment.log for segment in segments} == {
        int(name[:20]): before for name, before in kafka.items() if name.endswith(".log")
    }
    for segment in segments:
        for suffix, index in zip(
            INDEXES, (segment.offset_index, segment.time_index, segment.transaction_index), strict=True
        ):
            expected = kafka.get(segment_name(segment.base_offset) + suffix)
            if segment.log.endswith(".swap") and expected and not expected.endswith(".swap"):
                expected = None  # Kafka would give a new log an old index; we know better
            assert index == expected
