"""Random sequences of joins, syncs, heartbeats, leaves, and restarts of members and of the broker.

After every step the group is consistent. Without further events it becomes stable.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from kafkalog_broker.coordinator.coordinator_timer import CoordinatorTimer
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.groups.classic.classic_group import PREVIOUS_STATES, ClassicGroup, ClassicGroupState
from kafkalog_broker.groups.classic.classic_requests import JoinResponse
from tests.broker.groups.helpers.virtual_time import Client, World, subscription
from tests.searches import examples

SESSION_MS = 10_000
REBALANCE_MS = 8_000
PROTOCOLS = {name: subscription(name) for name in ("range", "sticky", "cooperative")}
GENERATION_ENDED = (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation, ErrorCode.unknown_member_id)


class GroupMachine(RuleBasedStateMachine):
    clients = Bundle("clients")

    @initialize(delay=st.sampled_from([0, 3000]), max_size=st.sampled_from([3, 1000]))
    def begin(self, delay: int, max_size: int) -> None:
        self.world = World(group_initial_rebalance_delay_ms=delay, group_max_size=max_size)
        self.all: list[Client] = []
        self.generation = 0

    @rule(
        target=clients,
        version=st.sampled_from([3, 7, 9]),
        instance=st.sampled_from([None, None, "i", "j"]),
        names=st.permutations(["sticky", "cooperative"]),
    )
    def arrive(self, version: int, instance: str | None, names: list[str]) -> Client:
        protocols = tuple((name, PROTOCOLS[name]) for name in (*names, "range"))
        client = Client(
            self.world, client_id=f"c{len(self.all)}", version=version, instance=instance, protocols=protocols,
            session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS,
        )  # fmt: skip
        self.all.append(client)
        client.join()
        return client

    @rule(client=clients, drop=st.booleans())
    def join_again(self, client: Client, drop: bool) -> None:
        if drop and len(client.protocols) > 1:
            client.protocols = client.protocols[1:]  # "range" stays, so all always have one in common
        client.join()

    @rule(client=clients)
    def restart(self, client: Client) -> None:
        client.member_id, client.generation = "", -1
        client.join()

    @rule(client=clients)
    def sync(self, client: Client) -> None:
        if not client.waits and client.joined.error_code is ErrorCode.none:
            client.sync()

    @rule(client=clients)
    def heartbeat(self, client: Client) -> None:
        assert client.heartbeat() in (ErrorCode.none, ErrorCode.fenced_instance_id, *GENERATION_ENDED)

    @rule(client=clients)
    def leave(self, client: Client) -> None:
        client.leave()

    @rule(ms=st.sampled_from([0, 1000, 3000, REBALANCE_MS, SESSION_MS, 400_000]))
    def time_passes(self, ms: int) -> None:
        self.world.time.advance(ms)

    @rule(failing=st.booleans())
    def the_log_breaks_or_is_repaired(self, failing: bool) -> None:
        self.world.log.failure = ErrorCode.kafka_storage_error if failing else None

    @rule()
    def the_broker_crashes(self) -> None:
        before = self.group
        stable = before is not None and before.state is ClassicGroupState.STABLE
        self.world.crash()
        for client in self.all:
            while client.waits:  # its connection is gone, so it knows that nobody will answer
                client.joins.append(JoinResponse(ErrorCode.not_coordinator))
        after = self.group
        if stable and before is not None and self.world.log.failure is None:
            assert after is not None
            assert set(after.members) == set(before.members)
            assert {m.member_id: m.assignment for m in after.members.values()} == {
                m.member_id: m.assignment for m in before.members.values()
            }
        self.generation = 0 if after is None else after.generation  # what was never stable is not in the log

    @rule()
    def left_alone_the_group_settles(self) -> None:
        """The clients do what consumers do, and nobody else comes: in the end all have an assignment."""
        self.world.log.failure = None
        group = self.group
        if group is None:
            return
        for _ in range(12):
            by_id = {client.member_id: client for client in self.all if not client.waits}
            for client in list(by_id.values()):
                group = self.group
                if group is None or client.member_id not in group.members:
                    continue
                if client.heartbeat() is ErrorCode.rebalance_in_progress:
                    client.join()
                if (
                    not client.waits
                    and client.joined.error_code is ErrorCode.none
                    and client.generation == group.generation
                ):
                    client.sync()
            if self.world.state() in ("Stable", "Empty"):
                break
            self.world.time.advance(REBALANCE_MS)
        assert self.world.state() in ("Stable", "Empty")

    @property
    def group(self) -> ClassicGroup | None:
        return self.world.coordinator.shard("g").classic.groups.get("g")

    @invariant()
    def the_group_is_sound(self) -> None:
        if not hasattr(self, "world") or self.group is None:
            return
        group = self.group
        assert group.generation >= self.generation, "a generation went back"
        self.generation = group.generation
        assert (group.leader in group.members) if group.members else group.leader is None
        assert group.awaiting_join_count == sum(m.awaiting_join is not None for m in group.members.values())
        assert group.pending_sync <= group.members.keys()
        assert not group.pending_members & group.members.keys()
        assert sorted(group.static_members.values()) == sorted(
            m.member_id for m in group.members.values() if m.group_instance_id is not None
        )
        assert all(key == member.member_id for key, member in group.members.items())
        if group.state is ClassicGroupState.EMPTY:
            assert not group.members
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            assert group.members
            assert all(group.protocol in m.protocol_names for m in group.members.values())
            assert all(m.awaiting_join is None for m in group.members.values()), "a join waits for nothing"
        if group.state is not ClassicGroupState.COMPLETING_REBALANCE:
            assert all(m.awaiting_sync is None for m in group.members.values()), "a sync waits for nothing"
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            assert self._timer.is_scheduled(("join", "g")), "nothing will ever end the join phase"
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            assert self._timer.is_scheduled(("sync", "g")) or not group.pending_sync
        for member_id in (*group.members, *group.pending_members):
            assert self._timer.is_scheduled(("heartbeat", "g", member_id)) or self._waits(group, member_id)

    @property
    def _timer(self) -> CoordinatorTimer:
        return self.world.coordinator.shard("g").timer

    def _waits(self, group: ClassicGroup, member_id: str) -> bool:
        """Who waits for an answer needs no session: the phase has a time-out of its own."""
        return member_id in group.members and group.members[member_id].has_satisfied_heartbeat


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=examples(150), stateful_step_count=40)


def test_every_state_except_dead_has_a_successor() -> None:
    for state in ClassicGroupState:
        ways = {to for to, sources in PREVIOUS_STATES.items() if state in sources}
        assert ways - {state} if state is not ClassicGroupState.DEAD else ways == {ClassicGroupState.DEAD}
