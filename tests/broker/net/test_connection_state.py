"""The tables of states and transitions, in code and in the documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import pytest

from kafkalog_broker.net import connection_state, sasl_gate, tls_transport
from kafkalog_broker.net.connection_state import ConnectionState
from kafkalog_broker.runtime.state_machine import next_state
from kafkalog_broker.security import sasl_exchange
from tests.broker.net.helpers.fakes import Handler, Peer, framed, in_a_loop, network, settle

PAGE = Path(__file__).parents[3] / "docs/architecture.md"
_TABLE = re.compile(r"\| from \| to \| when \|\n(.*?)\n\n", re.DOTALL)
_ROW = re.compile(r"^\| ([A-Z_]+) \| ([A-Z_]+) \|", re.MULTILINE)


@pytest.mark.parametrize(
    "transitions",
    [
        connection_state.TRANSITIONS,
        sasl_exchange.TRANSITIONS,
        sasl_gate.TRANSITIONS,
        tls_transport.TRANSITIONS,
    ],
    ids=["connection", "SASL exchange", "SASL gate", "TLS"],
)
def test_transitions_name_every_state(transitions: Mapping[Enum, frozenset[Enum]]) -> None:
    (states,) = {type(state) for state in transitions}
    assert set(transitions) == set(states)


@pytest.mark.parametrize(("number", "transitions"), [(0, connection_state.TRANSITIONS), (1, sasl_exchange.TRANSITIONS)])
def test_transitions_are_those_of_the_documentation(number: int, transitions: Mapping[Enum, frozenset[Enum]]) -> None:
    rows = _ROW.findall(_TABLE.findall(PAGE.read_text(encoding="utf-8"))[number])
    assert len(rows) == len(set(rows))
    assert set(rows) == {(before.name, after.name) for before, following in transitions.items() for after in following}


def test_forbidden_transition_raises() -> None:
    with pytest.raises(RuntimeError, match="ConnectionState cannot go from CLOSED to SERVING"):
        next_state(connection_state.TRANSITIONS, ConnectionState.CLOSED, ConnectionState.SERVING)


@in_a_loop
async def test_connection_is_served_until_its_peer_closes_and_then_drains() -> None:
    handler = Handler(hold=True)
    peer = Peer(network(handler))
    peer.send(framed(b"one"))
    await settle()
    states = [peer.connection.state]
    peer.connection.eof_received()
    states.append(peer.connection.state)
    handler.release()
    await settle()
    states.append(peer.connection.state)
    assert peer.responses == [b"one"]
    assert states == [ConnectionState.SERVING, ConnectionState.DRAINING, ConnectionState.CLOSED]


@in_a_loop
async def test_connection_above_a_limit_is_refused_and_closed() -> None:
    limited = network(Handler(), max_connections=1)
    Peer(limited)
    refused = Peer(limited).connection
    states = [refused.state]
    await settle()
    states.append(refused.state)
    assert states == [ConnectionState.REFUSED, ConnectionState.CLOSED]
