"""kafkalog-check on tiers: golden ones are without an error, and of each damage in a table the report tells."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkalog_spark.cli.check import main
from kafkalog_spark.exit_codes import FAILED, OK
from kafkalog_spark.log.check.log_dir_check import check_log_dirs
from kafkalog_spark.log.tiered.tier_options import TierOptions
from tests.log.helpers.batch_builder import sealed
from tests.log.tiered.aiven_writer import KEY_ID, KEYS, AivenMode
from tests.log.tiered.golden_tiered import CLEAN, CLUSTERS, KILLED, GoldenCluster
from tests.log.tiered.reading import WITH_KEY, aiven_tree, readable

pytestmark = pytest.mark.local_only("tiers in a bucket are those of tests/log/remote/test_tiers.py")

KEY_OPTION_PREFIX = f"tiered.encryption.key.{KEY_ID}"


def told(*roots: Path, tier: TierOptions = WITH_KEY) -> list[str]:
    return [str(finding) for finding in check_log_dirs(roots, tier=tier).findings.kept]


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster.name)
@pytest.mark.parametrize("with_local", [False, True])
def test_golden_tiers_have_no_error(cluster: GoldenCluster, with_local: bool) -> None:
    roots = [cluster.data, cluster.remote] if with_local else [cluster.remote]
    result = check_log_dirs(roots, decode_records=True)
    assert result.findings.errors == 0
    assert sum(of.segments for of in result.partitions.values()) >= len(readable(cluster))
    assert sum(of.records for of in result.partitions.values()) > 0
    notes = [str(finding) for finding in result.findings.kept]
    if cluster is CLEAN:
        assert all("it belongs to a topic of the same name with another topic ID" in note for note in notes)
        assert notes
    elif cluster is KILLED:
        (note,) = notes
        assert re.search(r"the segment has no \S+(, \S+)*: its upload or its deletion did not complete", note)
    else:
        assert notes == []


@pytest.mark.parametrize("mode", AivenMode)
def test_aiven_trees_have_no_error(mode: AivenMode, tmp_path: Path) -> None:
    root = aiven_tree(CLEAN, tmp_path, mode, 3000, topic="transactions")
    result = check_log_dirs([CLEAN.data, root], tier=WITH_KEY)
    assert (result.findings.errors, result.findings.notes) == (0, 0)


class Damage(NamedTuple):
    """`says`: a part of one line of the report, which begins with `severity: ` and names a path that ends in `path`."""

    name: str
    do: Callable[[list[Path]], object]
    path: str
    says: str
    severity: str = "error"
    mode: AivenMode = AivenMode.ZSTD_ENCRYPTED


def changed(path: Path, at: int, new: bytes) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:at] + new + data[at + len(new) :])


def manifest(path: Path, **fields: Any) -> None:
    """Change fields of a manifest; of remoteLogSegmentMetadata those that it has."""
    said = json.loads(path.read_bytes())
    for name, value in fields.items():
        (said["remoteLogSegmentMetadata"] if name in said["remoteLogSegmentMetadata"] else said)[name] = value
    path.write_bytes(json.dumps(said).encode())


def of(path: Path, suffix: str) -> Path:
    return path.with_suffix(suffix)


def repeat_with_other_batches(manifests: list[Path]) -> None:
    """A segment of the same offsets and epochs, one batch of which is another."""
    first = manifests[0]
    twin = "A" * 22
    for suffix in (".rsm-manifest", ".log", ".indexes"):
        path = of(first, suffix)
        path.with_name(path.name.replace(first.stem[-22:], twin)).write_bytes(path.read_bytes())
    copied = first.with_name(first.name.replace(first.stem[-22:], twin))
    text = copied.read_text().replace(first.stem[-22:], twin)
    copied.write_text(text)
    log = of(copied, ".log")
    data = log.read_bytes()
    size = 12 + int.from_bytes(data[8:12], "big")
    log.write_bytes(sealed(data[: size - 1] + bytes([data[size - 1] ^ 1])) + data[size:])


TABLE = [
    Damage("a manifest without its log", lambda m: of(m[1], ".log").unlink(), ".rsm-", "the segment has no .log"),
    Damage("what that leaves", lambda m: of(m[1], ".log").unlink(), "/0", "no segment has offsets"),
    Damage(
        "a log without a manifest", lambda m: m[-1].unlink(), ".log", "the segment has no manifest, so readers", "note"
    ),
    Damage("a file of nobody", lambda m: m[0].with_name("x.tmp").touch(), "x.tmp", "not an object of a tiered", "note"),
    Damage(
        "a log that was cut short",
        lambda m: of(m[0], ".log").write_bytes(of(m[0], ".log").read_bytes()[:-1]),
        ".log",
        "bytes, its manifest says",
    ),
    Damage(
        "a chunk that does not decrypt", lambda m: changed(of(m[0], ".log"), 100, b"\xee\xee"), ".log",
        "chunk 0: its authentication tag does not match",
    ),
    Damage(
        "a chunk that does not decompress", lambda m: changed(of(m[0], ".log"), 0, b"\xee\xee"), ".log",
        "chunk 0: cannot be decompressed (zstd)", mode=AivenMode.ZSTD,
    ),
    Damage(
        "indexes that do not decrypt", lambda m: changed(of(m[0], ".indexes"), 20, b"\xee\xee"), "",
        "an index: its authentication tag does not match",
    ),
    Damage(
        "an indexes object that was lost", lambda m: of(m[0], ".indexes").unlink(), ".log",
        "the manifest has indexes, but there is no .indexes object",
    ),
    Damage(
        "an indexes object that is too long",
        lambda m: of(m[0], ".indexes").write_bytes(of(m[0], ".indexes").read_bytes() + b"\0"),
        ".indexes",
        "the size of the object: expected",
    ),
    Damage(
        "a flipped bit in a plain log", lambda m: changed(of(m[0], ".log"), 200, b"\xee\xee"), ".log",
        "CRC-32C does not match", mode=AivenMode.PLAIN,
    ),
    Damage("a manifest that is no JSON", lambda m: m[0].write_bytes(b"{"), ".rsm-manifest", "not JSON in UTF-8"),
    Damage(
        "a manifest of another segment", lambda m: m[0].write_bytes(m[1].read_bytes()), ".rsm-manifest",
        "the manifest is that of another segment",
    ),
    Damage("an end that lies", lambda m: manifest(m[0], endOffset=9999), ".log", "the segment's last offset: expected"),
    Damage(
        "a largest timestamp that lies", lambda m: manifest(m[0], maxTimestampMs=5), ".log",
        "the segment's largest timestamp: expected 5 ms, got 17",
    ),
    Damage(
        "epochs out of line", lambda m: manifest(m[0], segmentLeaderEpochs={"7": 0}), ".log",
        "the leader epochs of the segment: expected 0 from 0 by its leader-epoch checkpoint, got 7 from 0",
    ),
    Damage(
        "a segment of a leader that was put aside", lambda m: manifest(m[0], segmentLeaderEpochs={"7": 0}), "",
        "the segment is not read: its last leader epoch is outside the log's epochs", "note",
    ),
    Damage(
        "segments of one lineage that do not agree", repeat_with_other_batches, ".log",
        "the batch differs from that of another segment with the same offsets", mode=AivenMode.PLAIN,
    ),
    Damage(
        "a segment that others cover", repeat_with_other_batches, "",
        "the segment is not read: other remote segments contain its offsets", "note", mode=AivenMode.PLAIN,
    ),
]  # fmt: skip


@pytest.mark.parametrize("damage", TABLE, ids=lambda damage: damage.name)
def test_damage_of_a_tier_is_reported_with_its_path(damage: Damage, tmp_path: Path) -> None:
    root = aiven_tree(CLEAN, tmp_path / "tier", damage.mode, 3000, topic="headers")
    assert told(root) == []
    damage.do(sorted(root.rglob("*.rsm-manifest")))
    lines = told(root)
    found = [line for line in lines if line.startswith(f"{damage.severity}: headers-0 {root}/headers-")]
    assert [line for line in found if damage.says in line and f"{damage.path}" in line], lines


def test_missing_key_is_reported_once_per_segment(tmp_path: Path) -> None:
    root = aiven_tree(CLEAN, tmp_path, AivenMode.ENCRYPTED, 3000, topic="headers")
    lines = told(root, tier=TierOptions())
    assert lines
    assert all(f"its private key '{KEY_ID}' is not configured" in line for line in lines)
    assert len(lines) <= 2 * len(list(root.rglob("*.rsm-manifest")))


def test_check_command_reports_damage_of_a_tier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = aiven_tree(CLEAN, tmp_path, AivenMode.ENCRYPTED, 3000, topic="headers")
    option = ["--option", f"{KEY_OPTION_PREFIX}={KEYS / 'one.pem'}"]
    assert main([*option, "--option", "layout=aiven", str(root)]) == OK
    assert "1 partitions, " in capsys.readouterr().out
    changed(next(root.rglob("*.log")), 50, b"\xee\xee")
    assert main([*option, str(root)]) == FAILED
    assert "its authentication tag does not match" in capsys.readouterr().out
