"""kafkalog-mirror --once ends, and its exit code says whether everything was copied."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker.mirror.command import run_mirror
from kafkalog_broker.mirror.mirror_options import MirrorOptions
from kafkalog_broker.mirror.source_address import parse_bootstrap
from kafkalog_broker.mirror.source_connection import SourceUnreachable
from kafkalog_broker.mirror.topic_plan import unmatched_names
from kafkalog_broker.protocol.mirror_messages import METADATA
from kafkalog_spark.errors import UnknownPartition
from kafkalog_spark.exit_codes import FAILED, OK
from tests.broker.mirror.helpers.mirrors import log_data
from tests.broker.mirror.helpers.scripted_source import ScriptedSource, ScriptedTopic
from tests.broker.mirror.test_hostile_source import WAIT_S, batches, honest

NOBODY = "127.0.0.1:1"  # no process listens on this port


async def mirrored(bootstrap: str, directory: Path, topics: str = ".*", **options: Any) -> int:
    made = MirrorOptions(
        bootstrap=parse_bootstrap(bootstrap), directory=directory, topics=re.compile(topics), once=True,
        refresh_s=0.05, **options,
    )  # fmt: skip
    async with asyncio.timeout(WAIT_S):
        return await run_mirror(made)


def copied(source: ScriptedSource, directory: Path, topics: str = ".*", **options: Any) -> int:
    async def run() -> int:
        async with source.serving():
            return await mirrored(source.bootstrap, directory, topics, **options)

    return asyncio.run(run())


def test_unmatched_names_are_the_plain_alternatives_of_a_pattern() -> None:
    def of(pattern: str) -> list[str]:
        return unmatched_names(re.compile(pattern), ["orders", "clicks.eu"])

    assert of("orders") == of("orders|clicks.eu") == of("ord.*|x+") == []
    assert of("oders|clicks.eu|refunds") == ["oders", "refunds"]


def test_once_with_a_misspelt_topic_fails_and_names_similar_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownPartition) as caught:
        copied(ScriptedSource(honest()), tmp_path / "mirror", "oders")
    assert str(caught.value) == (
        "no topic of the cluster matches --topics oders; did you mean orders? The user may see 2 topics: clicks, "
        "orders, internal ones only with --internal"
    )


def test_once_with_one_misspelt_topic_of_two_copies_the_other_and_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert copied(ScriptedSource(honest()), tmp_path / "mirror", "clicks|oders") == FAILED
    assert "oders was not copied completely: the cluster has no such topic" in caplog.text
    assert log_data(tmp_path / "mirror", "clicks") == b"".join(data for _, _, data in batches(0, 3))


def test_once_of_a_cluster_without_topics_succeeds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert copied(ScriptedSource({}), tmp_path / "mirror") == OK
    assert "no topic of the cluster matches --topics .*" in caplog.text


def test_once_of_a_source_that_is_down_fails(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreachable, match="no record was received for 0 s: no node of the source responds: 127"):
        asyncio.run(mirrored(NOBODY, tmp_path / "mirror", give_up_ms=100))


def test_once_of_a_partition_without_a_leader_fails(tmp_path: Path) -> None:
    source = ScriptedSource(honest(lonely=ScriptedTopic([batches(0)])))

    def forget_leader(answer: Any) -> None:
        for topic in answer["topics"]:
            if topic["name"] == "lonely":
                topic["partitions"][0]["leader_id"] = -1

    source.lies[METADATA] = forget_leader
    with pytest.raises(SourceUnreachable, match="no record was received for 2 s: lonely-0: it has no leader"):
        copied(source, tmp_path / "mirror", give_up_ms=2000)
