"""Dynamic properties of all brokers, which librdkafka's admin client cannot ask for."""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.incremental_alter_configs.v1 import request as schema
from kio.static.primitive import i8

from kafkalog_broker.testing import RunningBroker

_BROKER = 4  # ConfigResource.Type
_SET = 0  # AlterConfigOp.OpType

KAFKAS_OWN = {"min.insync.replicas": "1"}
"""What Kafka's controller sets by itself when it forms a cluster, since 4.1 (KIP-966)."""


def set_for_all_brokers(broker: RunningBroker, configs: Mapping[str, str]) -> None:
    """Raises RuntimeError with the broker's words when it refuses."""
    changes = tuple(
        schema.AlterableConfig(name=name, config_operation=i8(_SET), value=value) for name, value in configs.items()
    )
    resource = schema.AlterConfigsResource(resource_type=i8(_BROKER), resource_name="", configs=changes)
    answer = broker.ask(schema.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    for told in answer.responses:
        if told.error_code:
            raise RuntimeError(f"{configs} cannot be set: {told.error_message}")
