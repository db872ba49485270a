"""Record tests/golden/kafka-4.3.0-schemas: topics written by Confluent's serializers, and the registry's topic.

    python -m tests.interop.record_schemas

A real Kafka keeps the topics. The serializers are those of confluent-kafka, which register with the registry of our
tests; what a registry would have written into `_schemas` is written by a producer.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.interop.real_kafka import RealKafka
from tests.typed.registry_server import RegistryServer

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-4.3.0-schemas"
FIRST = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
SECOND = {
    **FIRST,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": "double", "default": 0.5},
    ],
}
ORDERS: list[tuple[Any, Any]] = [
    *((FIRST, {"id": i}) for i in range(10)),
    *((SECOND, {"id": i, "user": f"user{i}" if i % 2 else None, "amount": i / 4}) for i in range(10, 30)),
]
CUSTOMERS = [{"name": f"c{i}", "age": i} for i in range(10)]
CUSTOMER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Customer",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
}


def main() -> None:
    """Write the topics, and keep their directories."""
    from confluent_kafka import Producer
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    with tempfile.TemporaryDirectory() as home, RegistryServer() as registry, RealKafka(Path(home)) as kafka:
        client = SchemaRegistryClient({"url": registry.url})
        kafka.create_topic("_schemas", 1, {"cleanup.policy": "compact"})
        for topic in ("orders", "customers"):
            kafka.create_topic(topic, 1, {})
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for topic, values in (("orders", ORDERS), ("customers", [(None, one) for one in CUSTOMERS])):
            context = SerializationContext(topic, MessageField.VALUE)
            for schema, value in values:
                if schema is None:
                    written = JSONSerializer(json.dumps(CUSTOMER), client)(value, context)
                else:
                    written = AvroSerializer(client, json.dumps(schema))(value, context)
                producer.produce(topic, value=written, timestamp=1_700_000_000_000)
        noop = (b'{"keytype":"NOOP","magic":0}', None)
        config = (
            b'{"keytype":"CONFIG","subject":null,"magic":0}',
            b'{"compatibilityLevel":"BACKWARD"}',
        )
        for key, record in (noop, config, *registry.records(), *_deleted()):
            producer.produce("_schemas", key=key, value=record, timestamp=1_700_000_000_000)
        producer.flush()
        kafka.stop()
        shutil.rmtree(GOLDEN, ignore_errors=True)
        (GOLDEN / "data").mkdir(parents=True)
        for name in ("_schemas-0", "orders-0", "customers-0", "meta.properties"):
            source = Path(kafka.data_dir) / name
            if source.is_dir():
                shutil.copytree(source, GOLDEN / "data" / name)
            else:
                shutil.copyfile(source, GOLDEN / "data" / name)


def _deleted() -> list[tuple[bytes, bytes | None]]:
    """A third version of orders-value, deleted; a subject deleted for good."""
    third = {**SECOND, "doc": "deleted"}
    key = {"keytype": "SCHEMA", "subject": "orders-value", "version": 3, "magic": 1}
    value = {"subject": "orders-value", "version": 3, "id": 900, "schema": json.dumps(third), "deleted": True}
    gone = {"keytype": "SCHEMA", "subject": "gone-value", "version": 1, "magic": 1}
    kept = {"subject": "gone-value", "version": 1, "id": 901, "schema": '"string"', "deleted": False}
    subject = {"keytype": "DELETE_SUBJECT", "subject": "gone-value", "magic": 0}
    return [
        (json.dumps(key).encode(), json.dumps(value).encode()),
        (json.dumps(gone).encode(), json.dumps(kept).encode()),
        (json.dumps(subject).encode(), json.dumps({"subject": "gone-value", "version": 1}).encode()),
    ]


if __name__ == "__main__":
    main()
