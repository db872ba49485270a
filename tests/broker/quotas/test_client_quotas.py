"""Which quota applies to a client, and how it is throttled; the clock is passed in."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog_broker.quotas import client_quotas
from kafkalog_broker.quotas.client_quotas import Client, ClientQuotas
from kafkalog_broker.quotas.quota_entity import CONNECTION, CONSUMER, DEFAULT, MUTATION, PRODUCER, REQUEST, Entity
from kafkalog_broker.quotas.quota_filter import FilterComponent, MatchType, matching_entities
from kafkalog_broker.quotas.rates import Windows
from tests.broker.manual_clock import ManualClock

KAFKAS = Windows(11, 1000)
MB = 1 << 20
LEVELS = [
    Entity("alice", "app"),
    Entity("alice", DEFAULT),
    Entity("alice"),
    Entity(DEFAULT, "app"),
    Entity(DEFAULT, DEFAULT),
    Entity(DEFAULT),
    Entity(None, "app"),
    Entity(None, DEFAULT),
]
"""Kafka's order of precedence (ClientQuotaManager)."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def quotas_of(clock: ManualClock, values: dict[Entity, dict[str, float]]) -> ClientQuotas:
    made = ClientQuotas(KAFKAS, KAFKAS, clock.monotonic_ms)
    made.replace_all(values)
    return made


def test_most_specific_quota_applies(clock: ManualClock) -> None:
    alice = Client("alice", "app")
    for first in range(len(LEVELS)):
        given = {entity: {PRODUCER: float(number)} for number, entity in enumerate(LEVELS) if number >= first}
        found = quotas_of(clock, given).quota_of(PRODUCER, alice)
        assert found is not None
        assert found.limit == first
    others = quotas_of(clock, {Entity("bob", "app"): {PRODUCER: 1.0}, Entity(None, "other"): {PRODUCER: 1.0}})
    assert others.quota_of(PRODUCER, alice) is None
    assert quotas_of(clock, {Entity("alice"): {CONSUMER: 1.0}}).quota_of(PRODUCER, alice) is None


@pytest.mark.parametrize(
    ("entity", "shared", "apart"),
    [
        (Entity("alice"), ("alice", "other"), ("bob", "app")),
        (Entity(DEFAULT), ("alice", "other"), ("bob", "app")),
        (Entity(None, DEFAULT), ("bob", "app"), ("alice", "other")),
        (Entity(DEFAULT, DEFAULT), ("alice", "app"), ("alice", "other")),
    ],
)
def test_clients_of_one_entity_share_a_rate(clock: ManualClock, entity: Entity, shared: Any, apart: Any) -> None:
    quotas = quotas_of(clock, {entity: {PRODUCER: 1000.0}})
    assert quotas.record(PRODUCER, Client("alice", "app"), 10_000) == 0
    assert quotas.record(PRODUCER, Client(*apart), 10_000) == 0
    assert quotas.record(PRODUCER, Client(*shared), 10_000) == 10_000
    assert quotas.throttled == {PRODUCER: 1}
    assert quotas.throttle_ms == {PRODUCER: 10_000}


def sent_in(quotas: ClientQuotas, clock: ManualClock, client: Client, seconds: int, size: int, took_ms: int) -> int:
    """Return the bytes that a client sends in sequential requests of `size`, each of which takes some time."""
    end, sent = clock.monotonic_ms() + seconds * 1000, 0
    while clock.monotonic_ms() < end:
        wait_ms = quotas.record(PRODUCER, client, size)
        sent += size
        clock.advance(took_ms + wait_ms)
    return sent


@pytest.mark.parametrize("size", [16 << 10, 200_000, MB])
def test_client_that_obeys_throttle_times_reaches_its_quota(clock: ManualClock, size: int) -> None:
    quotas = quotas_of(clock, {Entity("slow"): {PRODUCER: float(MB)}})
    sent = [sent_in(quotas, clock, Client("slow", "x"), 20, size, 2) for _ in range(9)]
    assert 0.95 <= sum(sent) / (180 * MB) <= 1.05
    # With Kafka's windows an idle client may use the quota of ten seconds in a burst: spans of 20 s differ more.
    assert min(sent) / (20 * MB) >= 0.65
    assert max(sent) / (20 * MB) <= 1.3
    assert quotas.record(PRODUCER, Client("fast", "x"), 1 << 40) == 0


def test_throttled_fetch_response_is_not_recorded(clock: ManualClock) -> None:
    quotas, client = quotas_of(clock, {Entity("slow"): {CONSUMER: 1000.0}}), Client("slow", "")
    largest = quotas.fetch_bytes(client)
    assert largest == 10_000
    assert quotas.record_fetch(client, largest) == 0
    waits = [quotas.record_fetch(client, 5000) for _ in range(3)]
    assert waits == [5000] * 3
    clock.advance(5000)
    assert quotas.record_fetch(client, 0) == 0
    assert quotas.fetch_bytes(Client("fast", "")) is None
    assert quotas.record_fetch(Client("fast", ""), 1 << 30) == 0


def test_request_quota_throttles_for_at_most_one_window(clock: ManualClock) -> None:
    quotas = quotas_of(clock, {Entity(DEFAULT): {REQUEST: 1.0}})
    assert quotas.record(REQUEST, Client("a", ""), 5.0) == 0
    assert quotas.record(REQUEST, Client("a", ""), 500.0) == 1000


def test_mutation_quota_can_be_exceeded_once(clock: ManualClock) -> None:
    quotas, client = quotas_of(clock, {Entity("a"): {MUTATION: 2.0}}), Client("a", "")
    assert quotas.charge_mutation(client, 22)  # what came together in all windows
    assert quotas.mutation_wait_ms(client) == 0
    assert quotas.charge_mutation(client, 10)
    assert not quotas.charge_mutation(client, 1)
    assert quotas.mutation_wait_ms(client) == 5000
    clock.advance(5000)
    assert quotas.mutation_wait_ms(client) == 0
    assert quotas.charge_mutation(client, 1)
    quotas.charge_mutation(client, 3, may_refuse=False)
    assert quotas.mutation_wait_ms(client) == 2000
    assert quotas.charge_mutation(Client("b", ""), 1_000_000)


def test_connections_beyond_the_quota_of_an_address_are_held(clock: ManualClock) -> None:
    quotas = quotas_of(clock, {Entity(ip=DEFAULT): {CONNECTION: 1.0}, Entity(ip="::1"): {CONNECTION: 100.0}})
    waits = [quotas.record_connection("127.0.0.1") for _ in range(12)]
    assert waits[:10] == [0] * 10
    assert waits[10:] == [1000, 1000]
    assert [quotas.record_connection("::1") for _ in range(12)] == [0] * 12
    clock.advance(11_000)
    assert quotas.record_connection("127.0.0.1") == 0


def test_new_quotas_count_values_recorded_before(clock: ManualClock) -> None:
    quotas, client = quotas_of(clock, {Entity("a"): {PRODUCER: 1000.0}}), Client("a", "")
    assert quotas.record(PRODUCER, client, 8000) == 0
    quotas.replace_all({Entity("a"): {PRODUCER: 100.0}})
    assert quotas.record(PRODUCER, client, 0) == 70_000
    quotas.replace_all({})
    assert quotas.in_use == frozenset()
    assert quotas.record(PRODUCER, client, 8000) == 0


def test_caches_of_clients_are_bounded(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "MAX_CACHED_CLIENTS", 10)
    quotas = quotas_of(clock, {Entity(None, DEFAULT): {PRODUCER: 1000.0, MUTATION: 1.0}})
    for number in range(100):
        client = Client("u", str(number))
        quotas.record(PRODUCER, client, 1)
        quotas.charge_mutation(client, 1, may_refuse=False)
        clock.advance(2000)
        caches = quotas._rates["client"], quotas._find_cached, quotas._buckets["client"]
        assert max(cache.cache_info().currsize for cache in caches) <= 10


def test_other_client_ids_do_not_evict_a_throttled_client(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "MAX_CACHED_CLIENTS", 10)
    limits = {PRODUCER: 1000.0, MUTATION: 1.0}
    quotas = quotas_of(clock, {Entity(None, DEFAULT): limits, Entity("alice"): limits})
    debtors = [Client("alice", "app"), Client("bob", "app")]
    for debtor in debtors:
        quotas.record(PRODUCER, debtor, 20_000)
        quotas.charge_mutation(debtor, 21, may_refuse=False)
    for number in range(40):
        quotas.record(PRODUCER, Client("eve", str(number)), 1)
        quotas.charge_mutation(Client("eve", str(number)), 1, may_refuse=False)
        if number % 5 == 0:
            quotas.record(PRODUCER, debtors[1], 0)
            quotas.charge_mutation(debtors[1], 0, may_refuse=False)
    assert [quotas.record(PRODUCER, debtor, 0) for debtor in debtors] == [10_000] * 2
    assert [quotas.mutation_wait_ms(debtor) for debtor in debtors] == [10_000] * 2


def test_long_client_ids_are_cached_as_digests(clock: ManualClock) -> None:
    name = "x" * 32_000
    quotas = quotas_of(clock, {Entity(None, name + "1"): {PRODUCER: 100.0}, Entity(None, DEFAULT): {PRODUCER: 1000.0}})
    waits = [quotas.record(PRODUCER, Client("u", name + last), 20_000) for last in "123"]
    assert waits == [190_000, 10_000, 10_000], "each long client id has its own rate"
    assert quotas._find_cached.cache_info().currsize == 0
    holders = [quotas.quota_of(PRODUCER, Client("u", name + last)) for last in "123"]
    assert quotas._rates["client"].cache_info().currsize == len(set(holders)) == 3, "by holder"
    assert max(map(len, map(repr, holders))) < 300


def test_has_any_is_true_for_clients_with_a_quota(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "MAX_CACHED_CLIENTS", 3)
    quotas = quotas_of(clock, {Entity(client_id="slow"): {PRODUCER: 10.0}, Entity(ip=DEFAULT): {CONNECTION: 1.0}})
    for _ in range(2):
        assert quotas.has_any("User:alice", "slow")
        assert not quotas.has_any("User:alice", "fast")
        assert not quotas.has_any("User:alice", None)
    quotas.change(Entity(user="alice"), {CONSUMER: 5.0})
    assert quotas.has_any("User:alice", "fast")
    assert not quotas.has_any("User:bob", "fast")
    quotas.change(Entity(user="alice"), {})
    assert not quotas.has_any("User:alice", "fast")
    for number in range(10):
        assert not quotas.has_any("User:bob", f"{number}")
        assert not quotas.has_any("User:bob", f"{number}" * 1000)
    assert quotas._has_any_cached.cache_info().currsize == 3


def test_change_replaces_the_quotas_of_one_entity(clock: ManualClock) -> None:
    quotas = quotas_of(clock, {Entity("a"): {PRODUCER: 100.0}, Entity("b"): {PRODUCER: 100.0}})
    kept = quotas.quotas[Entity("b")]
    assert quotas.quota_of(PRODUCER, Client("a", "")) == (("a", None), 100.0)
    quotas.change(Entity("a"), {CONSUMER: 5.0})
    assert quotas.quota_of(PRODUCER, Client("a", "")) is None
    assert quotas.in_use == {PRODUCER, CONSUMER}
    assert quotas.quotas[Entity("b")] is kept
    quotas.change(Entity("b"), {})
    assert quotas.quotas == {Entity("a"): {CONSUMER: 5.0}}
    assert quotas.in_use == {CONSUMER}


def test_matching_entities_are_in_order() -> None:
    quotas = {
        Entity(user, client): {PRODUCER: 1.0}
        for number in range(1100)
        for user, client in [(f"u{number * 7919 % 1100:04}", None), (f"u{number:04}", DEFAULT)]
    }
    found = matching_entities(quotas, [], strict=False)
    names = [f"u{number:04}" for number in range(1100)]
    assert found == [Entity(name, client) for name in names for client in (DEFAULT, None)]
    found = matching_entities(quotas, [FilterComponent("user", MatchType.SPECIFIED, None)], strict=True)
    assert found == [Entity(name) for name in names]
