"""Members of groups: classic (JoinGroup), consumer (KIP-848) and share (KIP-932), noted in a session's ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.crash_states.ledger import Partition
from tests.crash_states.session import OFFSET_COMMIT, Session, codes_of

JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, OFFSET_DELETE, CONSUMER_HEARTBEAT = 11, 13, 14, 47, 68
SHARE_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79
ACCEPT = 1
SHARE_STATE_KEY = 2
"""Type of a coordinator's key, in FindCoordinator."""
SETTLE_ROUNDS = 300


def commit_offset(session: Session, group: str, partition: Partition, offset: int, generation: int = -1,
                  member: str = "", version: int = 8) -> None:  # fmt: skip
    """Commit an offset: without a member, or as a member of generation or member epoch `generation`."""
    wanted = {"partition_index": partition[1], "committed_offset": offset, "committed_leader_epoch": -1,
              "committed_metadata": ""}  # fmt: skip
    answer = session.checked(
        f"OffsetCommit {group}", lambda body: codes_of(body["topics"]), OFFSET_COMMIT, version, group_id=group,
        generation_id_or_member_epoch=generation, member_id=member, group_instance_id=None,
        topics=[{"name": partition[0], "partitions": [wanted]}],
    )  # fmt: skip
    session.ledger.set(("offset", group, *partition), offset, answer.sent_at, answer.acked_at)


def delete_offset(session: Session, group: str, partition: Partition) -> None:
    """Delete the committed offset of one partition."""
    answer = session.checked(
        f"OffsetDelete {group}", lambda body: [body["error_code"], *codes_of(body["topics"])], OFFSET_DELETE, 0,
        group_id=group, topics=[{"name": partition[0], "partitions": [{"partition_index": partition[1]}]}],
    )  # fmt: skip
    session.ledger.set(("offset", group, *partition), None, answer.sent_at, answer.acked_at)


class ClassicMember:
    """The only member of a classic group."""

    def __init__(self, session: Session, group: str) -> None:
        self.session, self.group = session, group
        session.find_coordinator(group, of_group=True)
        joined = session.checked(
            f"JoinGroup {group}", lambda body: [body["error_code"]], JOIN_GROUP, 3, group_id=group,
            session_timeout=45_000, rebalance_timeout=45_000, member_id="", protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        ).body  # fmt: skip
        self.member, self.generation = joined["member_id"], joined["generation_id"]
        session.checked(
            f"SyncGroup {group}", lambda body: [body["error_code"]], SYNC_GROUP, 2, group_id=group,
            generation_id=self.generation, member_id=self.member,
            assignments=[{"member_id": self.member, "assignment": b""}],
        )  # fmt: skip

    def commit(self, partition: Partition, offset: int) -> None:
        commit_offset(self.session, self.group, partition, offset, self.generation, self.member, 7)

    def leave(self) -> None:
        self.session.checked(
            f"LeaveGroup {self.group}", lambda body: [body["error_code"]], LEAVE_GROUP, 2, group_id=self.group,
            member_id=self.member,
        )  # fmt: skip


def _settled(beat: Callable[[], Any], pause: Callable[[], None]) -> None:
    for _ in range(SETTLE_ROUNDS):
        if beat():
            return
        pause()
    raise AssertionError("the group gave its member no partitions")


class ConsumerMember:
    """The only member of a consumer group (KIP-848), which is subscribed to one topic."""

    def __init__(self, session: Session, group: str, topic: str) -> None:
        self.session, self.group, self.epoch = session, group, 0
        self.member = f"member-of-{group}"
        session.find_coordinator(group, of_group=True)
        _settled(lambda: self._beat(subscribed_topic_names=[topic], topic_partitions=[], rebalance_timeout=60_000),
                 session.pause)  # fmt: skip

    def _beat(self, **fields: Any) -> Any:
        values = {"subscribed_topic_names": None, "topic_partitions": None, "rebalance_timeout": -1, **fields}
        body = self.session.checked(
            f"ConsumerGroupHeartbeat {self.group}", lambda body: [body["error_code"]], CONSUMER_HEARTBEAT, 1,
            group_id=self.group, member_id=self.member, member_epoch=self.epoch, instance_id=None, rack_id=None,
            subscribed_topic_regex=None, server_assignor=None, **values,
        ).body  # fmt: skip
        self.epoch = body["member_epoch"]
        return body["assignment"]

    def commit(self, partition: Partition, offset: int) -> None:
        commit_offset(self.session, self.group, partition, offset, self.epoch, self.member, 9)

    def leave(self) -> None:
        self.epoch = -1
        self._beat()


class ShareMember:
    """The only member of a share group (KIP-932), subscribed to one topic; it accepts what it is given.

    The register ("share", group, topic id, partition) is the offset before which all records were accepted.
    """

    def __init__(self, session: Session, group: str, topic: str, topic_id: str) -> None:
        self.session, self.group, self.topic_id, self.epoch = session, group, topic_id, 0
        self.member, self._share_epoch = f"member-of-{group}", 0
        session.find_coordinator(group, of_group=True)
        _settled(lambda: self._beat([topic]), session.pause)

    def _beat(self, topics: list[str] | None = None) -> Any:
        body = self.session.checked(
            f"ShareGroupHeartbeat {self.group}", lambda body: [body["error_code"]], SHARE_HEARTBEAT, 1,
            group_id=self.group, member_id=self.member, member_epoch=self.epoch, rack_id=None,
            subscribed_topic_names=topics,
        ).body  # fmt: skip
        self.epoch = body["member_epoch"]
        assignment = body["assignment"]
        return assignment is not None and assignment["topic_partitions"]

    def fetch(self, partition: int) -> list[tuple[int, int]]:
        """Acquire records; returns their (first offset, last offset)."""
        topics = [{"topic_id": self.topic_id, "partitions": [
            {"partition_index": partition, "acknowledgement_batches": []}]}]  # fmt: skip
        body = self.session.checked(
            f"ShareFetch {self.group}", lambda body: [body["error_code"], *_share_codes(body)], SHARE_FETCH, 1,
            group_id=self.group, member_id=self.member, share_session_epoch=self._share_epoch, max_wait=500,
            min_bytes=1, max_bytes=1 << 20, max_records=100, batch_size=100, topics=topics, forgotten_topics_data=[],
        ).body  # fmt: skip
        self._share_epoch += 1
        return [
            (one["first_offset"], one["last_offset"])
            for topic in body["responses"]
            for part in topic["partitions"]
            for one in part["acquired_records"]
        ]

    def accept(self, partition: int, first: int, last: int) -> None:
        """Accept records; all before them were accepted."""
        batches = [{"first_offset": first, "last_offset": last, "acknowledge_types": [ACCEPT]}]
        answer = self.session.checked(
            f"ShareAcknowledge {self.group}", lambda body: [body["error_code"], *_share_codes(body)],
            SHARE_ACKNOWLEDGE, 1, group_id=self.group, member_id=self.member, share_session_epoch=self._share_epoch,
            topics=[{"topic_id": self.topic_id, "partitions": [
                {"partition_index": partition, "acknowledgement_batches": batches}]}],
        )  # fmt: skip
        self._share_epoch += 1
        self.session.ledger.set(
            ("share", self.group, self.topic_id, partition), last + 1, answer.sent_at, answer.acked_at
        )


def _share_codes(body: Any) -> list[str]:
    return [one["error_code"] for topic in body["responses"] for one in topic["partitions"]]
