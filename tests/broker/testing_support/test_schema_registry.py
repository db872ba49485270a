"""Karapace beside a broker: schemas that serializers register are found by the reader, by URL and in `_schemas`."""

from __future__ import annotations

import io
import json
import urllib.request
from pathlib import Path
from typing import Any

import fastavro
import pytest

from kafkalog_broker.testing import running_broker
from kafkalog_broker.testing_support.schema_registry import INTERPRETER, karapace_interpreter

FIELDS = [{"name": "id", "type": "long"}, {"name": "user", "type": "string"}]
SCHEMA = {"type": "record", "name": "Order", "fields": FIELDS}


def post(url: str, body: Any) -> Any:
    content = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), content), timeout=30) as answer:
        return json.load(answer)


@pytest.mark.end_to_end
@pytest.mark.skipif(karapace_interpreter() is None, reason="there is no Karapace")
def test_schemas_in_karapace_are_found_by_url_and_in_the_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka import Producer

    from kafkalog_spark.cli.cat import main as cat

    with running_broker(topics={"orders": 1}, log_dir=tmp_path / "data", schema_registry=True) as broker:
        url = broker.schema_registry_url
        number = post(f"{url}/subjects/orders-value/versions", {"schema": json.dumps(SCHEMA)})["id"]
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for index in range(10):
            value = io.BytesIO()
            fastavro.schemaless_writer(value, SCHEMA, {"id": index, "user": f"u{index}"})
            producer.produce("orders", b"\0" + number.to_bytes(4, "big") + value.getvalue())
        assert producer.flush(30) == 0
        for registry in ([], [f"--option=value.schema.registry.url={url}"]):
            command = [str(broker.log_dir), "-t", "orders", "-f", "json", "-s", "value=confluent-avro", *registry]
            assert cat(command) == 0
            records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert [record["payload"] for record in records] == [{"id": i, "user": f"u{i}"} for i in range(10)]
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{url}/subjects", timeout=5)


def test_missing_karapace_raises_an_error_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(INTERPRETER, str(tmp_path / "karapace"))
    with (
        pytest.raises(RuntimeError, match=r"KAFKALOG_KARAPACE_PYTHON.*pip install"),
        running_broker(schema_registry=True),
    ):
        pass


def test_registry_that_does_not_start_reports_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = tmp_path / "karapace"
    command.write_text("#!/bin/sh\necho no such setting\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setenv(INTERPRETER, str(command))
    with pytest.raises(RuntimeError, match="no such setting"), running_broker(schema_registry=True):
        pass
