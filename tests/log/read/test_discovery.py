"""Which layout a path has, told by the names below it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog_spark.errors import NotALogDirectory, OptionError
from kafkalog_spark.format.partition_metadata import uuid_to_text
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.tiered.key_ring import KeyRing
from kafkalog_spark.log.tiered.manifest import SegmentEncryption
from kafkalog_spark.log.tiered.object_keys import parse_aiven_topic_dir, parse_local_tiered_dir
from kafkalog_spark.log.tiered.tier_options import TierOptions
from tests.log.tiered.aiven_writer import KEYS
from tests.log.tiered.made_segments import PARTITION

pytestmark = pytest.mark.local_only("tiers in a bucket are those of tests/log/remote/test_tiers.py")

ID = uuid_to_text(PARTITION.topic_id)


def made(root: Path, *names: str) -> Path:
    """Directories; with a `.` at their end files."""
    for name in names:
        if name.endswith("."):
            (root / name[:-1]).touch()
        else:
            (root / name).mkdir(parents=True)
    return root


def topics(root: Path, **options: str) -> dict[str, tuple[int, ...]]:
    return LogDirs.open(root, tier=TierOptions.of(options)).topics


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["orders-0", "orders-1"], {"orders": (0, 1)}),
        ([f"orders-{ID}/0", f"orders-{ID}/12", f"orders-{ID}/x"], {"orders": (0, 12)}),
        ([f"orders-0-{ID}", f"orders-1-{ID}"], {"orders": (0, 1)}),
        ([f"kafka-tiered-storage/orders-3-{ID}"], {"orders": (3,)}),
        ([f"orders-0-{ID}/7"], {"orders-0": (7,)}),  # a topic of Aiven's whose name ends like a partition's
        ([f"orders-0-{ID}/7", f"other-{ID}/1"], {"orders-0": (7,), "other": (1,)}),
        ([f"a.b_c-{ID}/0", f"a.b_c--0-{ID}/0"], {"a.b_c": (0,), "a.b_c--0": (0,)}),
        (["orders-0", f"orders-{ID}."], {"orders": (0,)}),  # a file is no topic
        ([f"orders-{'a' * 20}-0"], {f"orders-{'a' * 20}": (0,)}),  # as long as an id, and ends as none does
    ],
)
def test_layout_is_detected_from_the_names(
    names: list[str], expected: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    root = made(tmp_path, *names)
    assert topics(root) == topics(root, layout="auto") == expected


def test_several_layouts_below_one_path_are_detected(tmp_path: Path) -> None:
    root = made(tmp_path, "orders-0", f"tiered-{ID}/4")
    with pytest.raises(NotALogDirectory, match=r"several layouts: broker \(orders-0\), aiven \(tiered-.*option layout"):
        topics(root)
    assert topics(root, layout="AIVEN") == {"tiered": (4,)}
    assert topics(root, layout="broker") == topics(root, Layout="local-tiered") == {"orders": (0,)}


def test_layout_option_does_not_change_log_directories(tmp_path: Path) -> None:
    made(tmp_path, "local/orders-0", f"tier/orders-{ID}/0", f"tier/orders-{ID}/1")
    roots = [tmp_path / "local", tmp_path / "tier"]
    assert LogDirs.open(roots, tier=TierOptions.of({"layout": "aiven"})).topics == {"orders": (0, 1)}
    with pytest.raises(NotALogDirectory, match="is not a Kafka log directory"):
        LogDirs.open(tmp_path / "tier", tier=TierOptions.of({"layout": "broker"}))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"layout": "aven"}, "option 'layout' must be one of auto, broker, aiven, local-tiered, got 'aven'"),
        ({"tiered.key.prefix": "a/b-"}, "contains a slash: 'a/b-'; the part before the last slash"),
        ({"tiered.encryption.key.": "x"}, "lacks the ID of the key pair"),
    ],
)
def test_unusable_tier_options_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        TierOptions.of(options)


def test_topic_id_in_a_key_is_accepted_in_any_case() -> None:
    """Spark takes names of options in any case, and so may have changed it."""
    wrapped = (KEYS / "data.key.one").read_bytes()
    ring = TierOptions.of({"tiered.encryption.key.prod-one": str(KEYS / "one.pem")}).keys
    assert len(ring.unwrap_data_key(SegmentEncryption("Prod-One", wrapped, b""))) == 32
    both = KeyRing({"A": str(KEYS / "two.pem"), "a": str(KEYS / "one.pem")})
    assert len(both.unwrap_data_key(SegmentEncryption("a", wrapped, b""))) == 32


def test_encoded_topic_ids_must_end_with_four_zero_bits() -> None:
    assert parse_aiven_topic_dir(f"orders-{ID}") == ("orders", PARTITION.topic_id)
    assert parse_local_tiered_dir(f"orders-3-{ID}") == PARTITION
    for last in "BCDEFhijx019-_":
        assert parse_aiven_topic_dir(f"orders-{ID[:-1]}{last}") is None
        assert parse_local_tiered_dir(f"orders-3-{ID[:-1]}{last}") is None
    assert parse_local_tiered_dir(f"orders-03-{ID}") is None
    assert parse_local_tiered_dir(f"orders-{2**31}-{ID}") is None
