"""Values of Confluent's serializers give the results of its deserializers.

They cover IDs before values and in headers, contexts, references, known types, and both forms of Protobuf schemas.
"""

from __future__ import annotations

import pytest

from tests.typed.confluent_values import Recording, differences, recorded
from tests.typed.record_confluent_values import KINDS, recording_of
from tests.typed.registry_server import RegistryServer


def check(recording: Recording) -> None:
    """With the records of the registry's topic, and with its REST interface."""
    assert differences(recording) == []
    with RegistryServer() as registry:
        registry.load(recording.records())
        assert differences(recording, **{"schema.registry.url": registry.url}) == []


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_values_are_read_as_confluents_deserializers_read_them(kind: str) -> None:
    recording = recorded()[kind]
    assert len(recording.values) >= 200
    check(recording)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_values_are_read_as_confluents_deserializers_read_them(kind: str) -> None:
    for name in ("avro", "json_schema", "protobuf"):
        pytest.importorskip(
            f"confluent_kafka.schema_registry.{name}", reason="confluent-kafka[avro,json,protobuf,schemaregistry]"
        )
    check(recording_of(kind, 2, 10_000))
