"""The part of the script about offsets that are committed in a transaction (KIP-447), with epochs of members."""

from __future__ import annotations

from typing import Any

from tests.broker.groups.helpers.consumer_script import Answer, Script

FIND, FETCH, PRODUCER, END, COMMIT = 10, 9, 22, 26, 28
GROUP, NAME = "tx", "a-producer"


def transactional(s: Script) -> None:
    """A member commits in its epoch, in others, as another; and what it loses meanwhile."""
    s.wait(_is_served, FIND, 4, key_type=1, coordinator_keys=[NAME])
    made = s.wait(
        _is_served, PRODUCER, 5, transactional_id=NAME, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
    )
    producer = {name: made[name] for name in ("producer_id", "producer_epoch")}

    def commit(
        label: str, version: int, member: str, epoch: int, partition: int = 0, instance: str | None = None
    ) -> None:
        part = {"partition_index": partition, "committed_offset": 7, "committed_leader_epoch": -1}
        values: dict[str, Any] = {
            "transactional_id": NAME, "group_id": GROUP, **producer,
            "topics": [{"name": "orders", "partitions": [part | {"committed_metadata": ""}]}],
        }  # fmt: skip
        if version >= 3:
            values |= {"generation_id": epoch, "member_id": member, "group_instance_id": instance}
        s.ask(f"transactional: {label}", COMMIT, version, **values)

    s.join("transactional: a joins", GROUP, "a", "orders")
    commit("in its epoch", 5, "a", 2)
    commit("in its epoch, version 4", 4, "a", 2, 1)
    commit("in its epoch, version 3", 3, "a", 2, 1)
    commit("nobody, version 2", 2, "", -1, 2)
    commit("epoch too large", 5, "a", 3)
    commit("old epoch", 5, "a", 1)
    commit("unknown member", 5, "b", 2)
    commit("nobody", 5, "", -1)
    commit("a member without an epoch", 5, "a", -1)
    commit("an epoch without a member", 5, "", 2)
    commit("an instance without a member", 5, "", -1, instance="i")
    commit("as an instance", 5, "a", 2, instance="i")
    s.join("transactional: b joins", GROUP, "b", "orders")
    s.beat("transactional: a gives up", GROUP, "a", 2, owned={"orders": [0, 1, 2, 3, 4, 5]})
    commit("before it has given up", 5, "a", 2, 4)
    s.beat("transactional: a has given up", GROUP, "a", 2, owned={"orders": [0, 1, 2]})
    commit("the epoch before, of what it kept", 5, "a", 2, 1)
    commit("the epoch before, of what it lost", 5, "a", 2, 4)
    s.beat("transactional: a leaves", GROUP, "a", -1)
    commit("who has left", 5, "a", 3)
    topic = {"name": "orders", "topic_id": s._ids["orders"], "partition_indexes": [0, 1, 2, 4]}
    asked = [{"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": [topic]}]
    s.ask("transactional: while it is open", FETCH, 9, groups=asked, require_stable=True)
    s.ask("transactional: before it has ended", FETCH, 9, groups=asked, require_stable=False)
    ended = s._ask(END, 4, {"transactional_id": NAME, **producer, "committed": True})
    assert ended["error_code"] == "none", ended

    def is_stable(answer: dict[str, Any]) -> bool:
        parts = answer["groups"][0]["topics"][0]["partitions"]
        return all(part["error_code"] == "none" for part in parts)

    s.until("transactional: committed", is_stable, FETCH, 9, groups=asked, require_stable=True)
    s.beat("transactional: b leaves", GROUP, "b", -1)


def _is_served(answer: Answer) -> bool:
    """Without an error: a coordinator is found when its topic is there and read."""
    codes = [answer.get("error_code", "none"), *(one["error_code"] for one in answer.get("coordinators", ()))]
    return set(codes) == {"none"}
