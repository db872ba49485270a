"""A cluster of real Kafkas on loopback: one controller, which stays, and brokers that are killed and started again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop.real_kafka import RealKafka, free_ports

CONTROLLER = 100


class Node(RealKafka):
    """One node; `role`: broker or controller."""

    def __init__(self, directory: Path, role: str, node_id: int, quorum: str, properties: Mapping[str, object]) -> None:
        super().__init__(directory, properties, short_lived=True, cluster_id="a2Fma2Fsb2cgdGVzdHMgIQ")
        self.node_id = node_id
        self._role = role
        self._quorum = quorum
        self._java_options[0] = "-Xmx256m"

    def use_port(self, port: int) -> None:
        """Instead of any that is free."""
        self._ports = (port, free_ports(self)[1])

    def _all_properties(self) -> dict[str, object]:
        assert self._ports is not None
        listener = "CONTROLLER" if self._role == "controller" else "PLAINTEXT"
        settings = super()._all_properties() | {
            "process.roles": self._role,
            "node.id": self.node_id,
            "controller.quorum.voters": f"{CONTROLLER}@{self._quorum}",
            "listeners": f"{listener}://127.0.0.1:{self._ports[0]}",
        }
        if self._role == "controller":
            del settings["advertised.listeners"]
        return settings


class ThreeKafkas:
    """Three brokers, `brokers` by node id, and their controller. properties: of all of them."""

    def __init__(self, home: Path, properties: Mapping[str, object]) -> None:
        port, _ = free_ports(self)
        quorum = f"127.0.0.1:{port}"
        self.controller = Node(home / "controller", "controller", CONTROLLER, quorum, properties)
        self.controller.use_port(port)
        self.brokers = {number: Node(home / f"b{number}", "broker", number, quorum, properties) for number in (1, 2, 3)}

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def __enter__(self) -> Self:
        self.controller.start()
        for broker in self.brokers.values():
            broker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for node in (*self.brokers.values(), self.controller):
            node.kill()
