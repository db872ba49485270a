"""Members that leave or are put out, and the time-outs that put them out (KIP-848).

| timer | begins | ends with |
|---|---|---|
| session | each heartbeat | the next |
| rebalance | partitions are to be given up | they are, or a later epoch |
| join | a classic member was told to join again | it has joined |
| sync | a classic member has joined | it has its assignment |
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafkalog_broker.groups.modern.changes import EpochValue, Kind
from kafkalog_broker.groups.modern.consumer_group import ConsumerGroup
from kafkalog_broker.groups.modern.conversion import downgrade, may_downgrade
from kafkalog_broker.groups.modern.draft import Draft
from kafkalog_broker.groups.modern.group_store import GroupStore
from kafkalog_broker.groups.modern.member_changes import remove_member
from kafkalog_broker.groups.modern.values import ConsumerMember, MemberState

log = logging.getLogger(__name__)

_TIMERS = ("session", "rebalance", "join-again", "sync-again")


class Sessions:
    """Who is a member for how long."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store

    # ---- time-outs

    def begin(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """A member was heard of. timeout_ms: None for the group's."""
        if timeout_ms is None:
            timeout_ms = self._store.settings(group_id).session_timeout_ms
        self._put_out_after("session", group_id, member_id, timeout_ms, "the member session expired")

    def expect_join(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member is to join again; the time runs since it was first told."""
        self._put_out_after(
            "join-again", group_id, member.member_id, member.rebalance_timeout_ms,
            "the classic member failed to join within the rebalance timeout", if_absent=True,
        )  # fmt: skip

    def has_joined(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """A classic member has joined and is to ask for its assignment."""
        self._store.timers.cancel(("join-again", group_id, member_id))
        self._put_out_after("sync-again", group_id, member_id, timeout_ms, "the member failed to sync within timeout")

    def has_synced(self, group_id: str, member_id: str) -> None:
        self._store.timers.cancel(("sync-again", group_id, member_id))

    def _put_out_after(
        self, timer: str, group_id: str, member_id: str, delay_ms: int, why: str, *, if_absent: bool = False
    ) -> None:
        key = (timer, group_id, member_id)
        self._store.after(key, delay_ms, lambda: self._put_out(group_id, member_id, why), if_absent=if_absent)

    def _put_out(self, group_id: str, member_id: str, why: str) -> None:
        group = self._store.groups.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None:
            log.info("group %.200r: member %.200r is put out because %s", group_id, member_id, why)
            self.remove(group, [member])

    def expect_revocation(self, group_id: str, member: ConsumerMember) -> None:
        """A member that has to give partitions up does so within its rebalance timeout; others have no such timer."""
        key = ("rebalance", group_id, member.member_id)
        if member.classic is not None:
            return
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._store.timers.cancel(key)
            return
        member_id, epoch = member.member_id, member.epoch

        def check() -> None:
            group = self._store.groups.get(group_id)
            current = None if group is None else group.members.get(member_id)
            if current is not None and current.epoch == epoch:
                self._put_out(
                    group_id, member_id,
                    f"it failed to transition from epoch {epoch} within {member.rebalance_timeout_ms}ms",
                )  # fmt: skip

        self._store.after(key, member.rebalance_timeout_ms, check)

    def forget(self, group_id: str, member_ids: Sequence[str]) -> None:
        for member_id in member_ids:
            for timer in _TIMERS:
                self._store.timers.cancel((timer, group_id, member_id))

    def begin_all(self, group: ConsumerGroup) -> None:
        """After a start: everybody gets the time of a session to be heard of."""
        for member in group.members.values():
            self.begin(group.group_id, member.member_id)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self.expect_revocation(group.group_id, member)

    # ---- the end of a membership

    def remove(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Members are no longer. Where only classic ones are left, the group becomes a classic one. Raises
        BrokerError."""
        if not members:
            return
        draft = Draft(group.group_id)
        gone = {member.member_id for member in members}
        if may_downgrade(group, gone, self._store.config):
            reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
            downgrade(self._store, draft, group, leaving=gone, reason=reason)
        else:
            for member in members:
                remove_member(draft, member.member_id)
            deleted = _regexes_of_nobody(group, members)
            for regex in deleted:
                draft.change(Kind.REGEX, regex, None)
            metadata_hash = self._store.hashes.of_group(_names_without(group, members, deleted))
            draft.change(Kind.EPOCH, "", EpochValue(group.epoch + 1, metadata_hash))
        draft.then(lambda: self.forget(group.group_id, sorted(gone)))
        self._store.commit(draft)


def _regexes_of_nobody(group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> list[str]:
    """Expressions that only those who leave subscribe to."""
    counts: dict[str, int] = {}
    for member in leaving:
        if member.regex:
            counts[member.regex] = counts.get(member.regex, 0) + 1
    return [regex for regex, count in counts.items() if group.subscribed_regexes[regex] == count]


def _names_without(group: ConsumerGroup, leaving: Sequence[ConsumerMember], regexes: Sequence[str]) -> set[str]:
    names, regex_names = group.names.copy(), group.regex_names.copy()
    for member in leaving:
        names.subtract(member.topics)
    for regex in regexes:
        resolved = group.regexes.get(regex)
        regex_names.subtract(resolved.topics if resolved is not None else ())
    return {*(+names), *(+regex_names)}
