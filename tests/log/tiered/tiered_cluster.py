"""Three Kafka nodes with one remote directory, so that leaders can change.

Node 1 is controller and broker, and is alone when `__remote_log_metadata` is made: it has all of it. Nodes 2 and 3 are
brokers that come and go.
"""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

from tests.interop.real_kafka import run_tool
from tests.log.tiered.tiered_kafka import TieredKafka, tiered_properties


class TieredNode(TieredKafka):
    """Node `number` of a cluster; `first` is node 1, which is started before any other."""

    def __init__(self, directory: Path, number: int, first: TieredNode | None = None) -> None:
        super().__init__(directory / f"node-{number}")
        self.number = number
        self.first = first or self
        self.remote = directory / "remote"
        self.properties.update(tiered_properties(self.remote))
        self.cluster: str = (
            first.cluster if first else base64.urlsafe_b64encode(b"k" + uuid.uuid4().bytes[1:]).decode()[:22]
        )

    def _all_properties(self) -> dict[str, object]:
        assert self._ports is not None
        assert self.first._ports is not None
        found = super()._all_properties()
        found["node.id"] = self.number
        found["controller.quorum.voters"] = f"1@127.0.0.1:{self.first._ports[1]}"
        found["auto.leader.rebalance.enable"] = "false"
        # Smaller than a segment: a follower refuses to append more at once.
        found["replica.fetch.max.bytes"] = 9_000
        found["replica.fetch.wait.max.ms"] = 200
        if self.first is not self:
            found["process.roles"] = "broker"
            found["listeners"] = f"PLAINTEXT://127.0.0.1:{self._ports[0]}"
        return found

    def format(self) -> None:
        """Make the log directory one of the cluster's, which `start` would make one of its own."""
        if self._ports is None:
            from tests.interop.real_kafka import free_ports

            self._ports = free_ports(self)
        self.directory.mkdir(parents=True)
        config = self.directory / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self._all_properties().items()))
        run_tool("StorageTool", "format", "-t", self.cluster, "-c", config, version=self.version)

    def leader_of(self, topic: str) -> int:
        """The node that leads partition 0, as this node knows; -1 for none."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return int(admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader)

    def in_sync(self, topic: str) -> set[int]:
        """The replicas of partition 0 that are in sync."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return set(admin.list_topics(topic, timeout=30).topics[topic].partitions[0].isrs)
