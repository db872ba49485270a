from __future__ import annotations

import asyncio
import socket

import pytest

from kafkalog_broker.net.connection_quotas import limit_to_open_files
from kafkalog_broker.net.creation_rate import UNLIMITED, CreationRate
from kafkalog_broker.net.dispatch import ConnectionClosed
from kafkalog_broker.net.listening_socket import resolve_address
from kafkalog_broker.net.open_files import raise_open_files_limit
from tests.broker.net.helpers.fakes import Handler, Peer, config, framed, in_a_loop, network, run, settle


def move_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now + seconds)


def test_connections_above_max_connections_are_refused_with_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        net = network(Handler(), max_connections=2)
        first, second = Peer(net), Peer(net)
        refused = [Peer(net) for _ in range(5)]
        await settle()
        assert [peer.transport.lost for peer in (first, second, *refused)] == [False] * 2 + [True] * 5
        assert len(net.quotas.open) == 2
        first.transport.abort()
        await settle()
        third = Peer(net)
        third.send(framed(b"there is room"))
        await settle()
        assert third.responses == [b"there is room"]

    run(test)
    assert len(caplog.messages) == 1
    assert "max.connections=2 are open" in caplog.text


@in_a_loop
async def test_max_connections_per_ip_counts_by_address() -> None:
    net = network(Handler(), max_connections_per_ip=1, max_connections_per_ip_overrides="10.0.0.9:2")
    peers = [Peer(net, host) for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.9", "10.0.0.9", "10.0.0.9")]
    await settle()
    assert [peer.transport.lost for peer in peers] == [False, True, False, False, False, True]


@in_a_loop
async def test_host_name_override_limits_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"one.example.org": "10.0.0.1", "two.example.org": "10.0.0.2"}
    monkeypatch.setattr("kafkalog_broker.net.network.resolve_address", addresses.__getitem__)
    net = network(Handler())
    net.update_config(
        config(max_connections_per_ip_overrides="one.example.org:1,2001:DB8::1:1,10.0.0.2:3,two.example.org:1")
    )
    assert net.host_look_up is not None
    await net.host_look_up
    peers = [Peer(net, host) for host in ("10.0.0.1", "10.0.0.1", "2001:db8::1", "2001:db8::1", "10.0.0.2", "10.0.0.2")]
    await settle()
    assert [peer.transport.lost for peer in peers] == [False, True, False, True, False, False]
    await net.stop()


def test_unresolvable_host_name_override_is_named_in_the_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(host: str) -> str:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def test() -> None:
        net = network(Handler())
        net.update_config(config(max_connections_per_ip_overrides="nowhere.invalid:1"))
        assert net.host_look_up is not None
        await net.host_look_up
        assert not Peer(net).transport.lost
        await net.stop()

    monkeypatch.setattr("kafkalog_broker.net.network.resolve_address", fail)
    run(test)
    (line,) = caplog.messages
    assert line == (
        "max.connections.per.ip.overrides: the limit of nowhere.invalid has no effect, its address is not found: "
        "Name or service not known"
    )


def test_host_name_override_prefers_ipv4() -> None:
    assert resolve_address("localhost") == "127.0.0.1"


@in_a_loop
async def test_ipv4_mapped_address_counts_as_ipv4() -> None:
    net = network(Handler(), max_connections_per_ip_overrides="10.0.0.7:1")
    one, other = Peer(net, host="::ffff:10.0.0.7"), Peer(net, host="::ffff:10.0.0.7")
    assert one.connection.info.host == "10.0.0.7"
    assert (one.transport.lost, other.transport.lost) == (False, True)
    assert Peer(net, host="2001:db8::1").connection.info.host == "2001:db8::1"


def test_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        net = network(Handler(), connections_max_idle_ms=10_000)
        idle, mid_frame, active = Peer(net), Peer(net), Peer(net)
        mid_frame.send(framed(b"not whole")[:-1])
        await settle()
        move_time(monkeypatch, 9.9)
        assert net.close_idle() == 0
        active.send(framed(b"hello"))
        await settle()
        move_time(monkeypatch, 0.2)  # 10.1 s since the start
        assert net.close_idle() == 2
        await settle()
        assert [peer.transport.lost for peer in (idle, mid_frame, active)] == [True, True, False]

    with caplog.at_level("INFO"):
        run(test)
    assert len(caplog.messages) == 2
    assert "connections.max.idle.ms" in caplog.text


def test_connection_with_a_request_in_progress_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        handler = Handler(hold=True)
        net = network(handler, connections_max_idle_ms=10_000)
        peer = Peer(net)
        peer.send(framed(b"join group"))
        await settle()
        move_time(monkeypatch, 60)
        assert net.close_idle() == 0
        handler.release()
        await settle()
        assert net.close_idle() == 0
        move_time(monkeypatch, 60)
        assert net.close_idle() == 1

    run(test)


def test_peer_that_reads_nothing_is_idle_and_a_slow_reader_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        handler = Handler()
        handler.answer = lambda frame: [framed(bytes(1 << 20))]
        net = network(handler, connections_max_idle_ms=10_000)
        never, slowly = Peer(net), Peer(net)
        for peer in (never, slowly):
            peer.transport.peer_reads = False
            peer.send(framed(b"fetch"))
        await settle()
        assert net.close_idle() == 0  # looks at what is unsent for the first time
        move_time(monkeypatch, 11)
        slowly.transport.unsent = slowly.transport.unsent[1000:]
        assert net.close_idle() == 1
        await settle()
        assert (never.transport.lost, slowly.transport.lost) == (True, False)

    run(test)


def test_connection_whose_last_response_is_not_read_after_an_error_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        def answer(frame: bytes | memoryview) -> list[bytes]:
            if bytes(frame) == b"bad":
                raise ConnectionClosed("an error")
            return [framed(bytes(1000))]

        handler = Handler()
        handler.answer = answer
        net = network(handler, connections_max_idle_ms=10_000)
        peer = Peer(net)
        peer.transport.peer_reads = False
        peer.send(framed(b"good") + framed(b"bad"))
        await settle()
        assert not peer.transport.lost
        move_time(monkeypatch, 11)
        assert net.close_idle() == 1
        await settle()
        assert peer.transport.lost

    run(test)


def test_draining_connection_that_is_not_read_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        net = network(Handler(), connections_max_idle_ms=10_000)
        peer = Peer(net)
        peer.transport.peer_reads = False
        peer.send(framed(b"hello"))
        peer.connection.eof_received()
        await settle()
        assert (peer.transport.closing, peer.transport.lost) == (True, False)
        move_time(monkeypatch, 11)
        assert net.close_idle() == 1
        await settle()
        assert peer.transport.lost

    run(test)


@in_a_loop
async def test_stop_finishes_the_current_request_and_takes_no_other() -> None:
    handler = Handler(hold=True)
    net = network(handler)
    busy, idle = Peer(net), Peer(net)
    told: list[str] = []
    busy.connection.info.on_close(lambda: told.append("stop waiting"))
    busy.send(framed(b"in work") + framed(b"queued"))
    await settle()
    stopping = asyncio.get_running_loop().create_task(net.stop())
    await settle()
    assert told == ["stop waiting"]
    assert idle.transport.lost
    late = Peer(net)
    await settle()
    assert late.transport.lost
    handler.release()
    await stopping
    assert busy.responses == [b"in work"]
    assert handler.seen == [b"in work"]
    assert len(net.quotas.open) == 0


def test_stop_ends_at_its_timeout(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        handler = Handler(hold=True)
        net = network(handler)
        hanging, deaf = Peer(net), Peer(net)
        hanging.send(framed(b"never answered"))
        await settle()
        handler.holds = lambda frame: False
        handler.answer = lambda frame: [framed(bytes(1 << 20))]
        deaf.transport.peer_reads = False
        deaf.send(framed(b"never read"))
        await settle()
        await net.stop(grace_s=0.01)
        assert handler.waiting[0].cancelled()
        assert len(net.quotas.open) == 0

    run(test)
    assert "closing 2 connections that are still busy" in caplog.text


def test_connections_are_limited_to_keep_descriptors_for_logs() -> None:
    assert limit_to_open_files(1024, 2**31 - 1) == 768
    assert limit_to_open_files(1024, 100) == 100
    assert limit_to_open_files(1, 100) == 1
    assert limit_to_open_files(-1, 100) == 100
    assert raise_open_files_limit() > 0


def test_connections_above_the_creation_rate_are_delayed() -> None:
    rate = CreationRate()
    assert [rate.reserve_start(4, 50, 100.0) for _ in range(7)] == pytest.approx([0, 0, 0, 0, 0.25, 0.5, 0.75])
    assert rate.reserve_start(4, 50, 101.0) == 0.0
    assert rate.reserve_start(4, 50, 200.0) == 0.0
    assert [rate.reserve_start(4, 50, 200.0) for _ in range(4)] == pytest.approx([0, 0, 0, 0.25])
    assert [CreationRate().reserve_start(UNLIMITED, 50, 1.0) for _ in range(3)] == [0.0] * 3


def test_delayed_connections_are_bounded_by_the_backlog() -> None:
    rate = CreationRate()
    assert [rate.reserve_start(2, 3, 100.0) for _ in range(7)] == [0, 0, 0.5, 1.0, 1.5, None, None]
    assert rate.reserve_start(2, 3, 100.5) == 1.5


@in_a_loop
async def test_delayed_connection_is_served_later() -> None:
    net = network(Handler(), max_connection_creation_rate=2)
    peers = [Peer(net) for _ in range(3)]
    for peer in peers:
        peer.send(framed(b"hello"))
    await settle()
    assert [peer.responses for peer in peers] == [[b"hello"], [b"hello"], []]
    end = asyncio.get_running_loop().time() + 20
    while not peers[2].responses and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.01)
    assert peers[2].responses == [b"hello"]


def test_stop_does_not_wait_for_delayed_connections(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        net = network(Handler(), max_connection_creation_rate=1)
        peers = [Peer(net) for _ in range(30)]
        await net.stop(grace_s=20)
        assert [peer.transport.lost for peer in peers] == [True] * 30

    run(test)
    assert "still busy" not in caplog.text


@in_a_loop
async def test_delayed_connection_that_closes_is_removed() -> None:
    net = network(Handler(), max_connection_creation_rate=1, socket_listen_backlog_size=5)
    peers = [Peer(net) for _ in range(7)]
    await settle()
    assert [peer.transport.lost for peer in peers] == [False] * 6 + [True]
    peers[5].transport.abort()
    await settle()
    assert peers[5].connection.task is None
    assert len(net.quotas.open) == 5


@in_a_loop
async def test_changed_limits_apply_to_new_connections() -> None:
    net = network(Handler(), max_connections=3)
    peers = [Peer(net), Peer(net)]
    net.quotas.update_config(config(max_connections=1))
    peers.append(Peer(net))
    net.quotas.update_config(config(max_connections_per_ip=2, max_connections=9))
    peers.append(Peer(net))
    await settle()
    assert [peer.transport.lost for peer in peers] == [False, False, True, True]
