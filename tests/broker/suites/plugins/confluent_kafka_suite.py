"""confluent-kafka-python: without trivup, which downloads a Kafka, and without a Schema Registry."""

from __future__ import annotations

import stand_ins

stand_ins.install(  # at import: the suite's conftest is imported before pytest_configure is called
    "trivup", "confluent_kafka.schema_registry", "confluent_kafka.avro"
)
