"""Schema registries: framing, the REST interface, and `_schemas` as recorded from a real Kafka."""

from __future__ import annotations

import json
import logging
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from kafkalog_broker.testing_support.certificate_authority import Authority
from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.http_client import TIMEOUT_S, HttpClient
from kafkalog_spark.log.log_dir import LogDirs
from kafkalog_spark.log.write.record_encoder import BatchParams
from kafkalog_spark.sink.columns import SinkColumns
from kafkalog_spark.typed.decoder import Decoded
from kafkalog_spark.typed.formats import ResolvedFormat, SchemaSources, format_of
from kafkalog_spark.typed.registry.registry_client import RegistryClient, RegistryOptions
from kafkalog_spark.typed.registry.schema_listing import listed_records
from kafkalog_spark.typed.registry.schema_records import SchemaRecords
from tests.broker.security.test_jwks import serving
from tests.golden_data import GOLDEN
from tests.interop.record_schemas import CUSTOMERS, FIRST, ORDERS, SECOND
from tests.log.helpers.encoded_batches import encode_batches
from tests.log.helpers.log_writer import LogWriter
from tests.source.helpers.made_logs import MadeBatch, write_batches
from tests.typed.registry_server import RegistryServer

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DATA = GOLDEN / "kafka-4.3.0-schemas" / "data"
PROTO = (
    'syntax = "proto3"; package p; import "b.proto"; message A { int64 id = 1; o.B b = 2; message C { string s = 1; } }'
)
PROTO_B = 'syntax = "proto3"; package o; message B { string x = 1; }'


def no_records(topic: str) -> list[Any]:
    raise AssertionError(f"nobody asked for {topic}")


def read(
    name: str, values: Sequence[bytes | None], sources: SchemaSources, headers: Any = None, **given: str
) -> Decoded:
    format = ResolvedFormat.of(name, given, sources)
    decoder: Any = format.decoder(format.schema())
    return decoder.decode(pa.array(values, pa.binary()), headers)  # type: ignore[no-any-return]


def golden_values(topic: str) -> list[bytes | None]:
    batches = LogDirs.open(DATA).scan(topic, columns=("value",))
    return [value for batch in batches for value in batch["value"].to_pylist()]


def golden_records(topic: str) -> list[tuple[bytes | None, bytes | None]]:
    found = []
    for batch in LogDirs.open(DATA).scan(topic, columns=("key", "value")):
        found += list(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
    return found


def test_values_of_confluents_serializers_are_read_with_the_registrys_topic() -> None:
    """Written by confluent-kafka's AvroSerializer into a real Kafka, under two schemas; the latest is the reader's, and
    what is deleted is not the latest."""
    found = read("confluent-avro", golden_values("orders"), SchemaSources("value", ("orders",), golden_records))
    assert found.bad is None
    expected = [{"id": v["id"], "user": v.get("user"), "amount": v.get("amount", 0.5)} for _, v in ORDERS]
    assert found.columns.to_pylist() == expected


def test_a_scan_without_spark_finds_the_registrys_topic() -> None:
    from kafkalog_spark import LogDirs as TypedLogDirs

    batches = list(TypedLogDirs.open(DATA).scan("orders", value_format="confluent-avro"))
    rows = [row for batch in batches for row in batch["value"].to_pylist()]
    assert [row["id"] for row in rows] == [value["id"] for _, value in ORDERS]
    named = TypedLogDirs.open(DATA).scan(
        "orders", value_format="confluent-avro", value_schema="id bigint", columns=("value", "headers")
    )
    assert next(iter(named))["value"].to_pylist()[0] == {"id": 0}


def test_json_of_confluents_serializer_is_read_without_its_schema() -> None:
    format = ResolvedFormat.of("confluent-json", {}, SchemaSources("value", ("customers",), no_records))
    wanted = pa.schema([("name", pa.string()), ("age", pa.int64())])
    found = format.decoder(wanted).decode(pa.array(golden_values("customers"), pa.binary()))
    assert found.columns.to_pylist() == CUSTOMERS
    without = format.decoder(wanted).decode(pa.array([b'{"age": 1}', None], pa.binary()))
    assert without.bad is not None
    assert without.bad.tolist() == [True, False]
    assert "does not begin with a schema's id" in without.why(0)


def test_last_record_of_each_key_in_a_registrys_topic_counts() -> None:
    store = SchemaRecords(golden_records("_schemas"), "the topic _schemas")
    latest = store.by_version("orders-value", None)
    assert latest is not None
    assert json.loads(latest.text) == SECOND
    assert latest.version == 2
    assert store.by_version("gone-value", None) is None  # deleted
    assert store.by_id(901) is not None  # and found by its id all the same
    first = store.by_version("orders-value", 1)
    assert first is not None
    assert store.by_guid(first.guid) == first


def test_a_topic_without_a_record_of_a_registry_is_refused_with_its_first_record() -> None:
    foreign: list[tuple[bytes | None, bytes | None]] = [(None, b"v"), (b"plain", b"text"), (b"5", None)]
    with pytest.raises(
        SchemaRegistryError, match=r"the topic t has no record of a schema registry; record 0: .*no key"
    ):
        SchemaRecords(foreign, "the topic t")
    assert SchemaRecords([], "the topic t").by_id(1) is None


def test_foreign_records_in_a_registrys_topic_are_ignored_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in Confluent's KafkaStoreReaderThread, which logs each and goes on."""
    version_4 = b'{"keytype":"SCHEMA","subject":"orders-value","version":4,"magic":1}'
    foreign: list[tuple[bytes | None, bytes | None]] = [
        (b"plain", b"text"),
        (None, b"{}"),
        (b"[]", b"{}"),
        (version_4, b'{"id": 12}'),
        (version_4, b"\xff"),
    ]
    records = [foreign[0], *golden_records("_schemas"), *foreign[1:]]
    with caplog.at_level(logging.WARNING):
        found = read("confluent-avro", golden_values("orders"), SchemaSources("value", ("orders",), lambda _: records))
    assert found.bad is None
    assert len(found.columns) == len(ORDERS)
    (line,) = caplog.messages
    assert line.startswith("the topic _schemas: 5 records are ignored")
    assert "The first: record 0: " in line


AB, BA = (
    json.dumps({"type": "record", "name": "R", "fields": [{"name": name, "type": "int"} for name in names]})
    for names in ("ab", "ba")
)


@contextmanager
def either_store(registry: RegistryServer, offline: bool) -> Iterator[tuple[SchemaSources, dict[str, str]]]:
    """Sources and options that lead to the registry's REST interface, or to the records of its topic."""
    if offline:
        yield SchemaSources("value", ("t",), lambda topic: list(registry.records())), {}
    else:
        yield SchemaSources("value", ("t",), no_records), {"schema.registry.url": registry.url}


@pytest.mark.parametrize("offline", [True, False])
def test_an_id_of_two_contexts_is_the_schema_of_the_subjects_context(offline: bool) -> None:
    with RegistryServer() as registry:
        assert [registry.register(subject, text) for subject, text in (("t-value", AB), (":.prod:t-value", BA))] == [
            1,
            1,
        ]
        registry.register(":.prod:shop.Other", AB)
        value = b"\0\0\0\0\x01\x02\x04"
        with either_store(registry, offline) as (sources, given):
            assert read("confluent-avro", [value], sources, **given).columns.to_pylist() == [{"a": 1, "b": 2}]
            for subject, expected in {
                ":.prod:t-value": {"b": 1, "a": 2},
                ":.:t-value": {"a": 1, "b": 2},
            }.items():
                found = read("confluent-avro", [value], sources, **given, subject=subject)
                assert found.columns.to_pylist() == [expected]
            other = b"\0\0\0\0\x02\x02\x04"  # of another subject of the context, and in no other one
            found = read("confluent-avro", [other], sources, **given, subject=":.prod:t-value")
            assert found.columns.to_pylist() == [{"b": 2, "a": 1}]
            unknown = read("confluent-avro", [other], sources, **given)
            assert unknown.bad is not None
            assert unknown.bad.tolist() == [True]


@pytest.mark.parametrize("offline", [True, False])
def test_a_subject_of_another_context_is_found_and_its_ids_are_of_that_context(offline: bool) -> None:
    """As Confluent's registry does for a subject without a context (`getUsingContexts`)."""
    with RegistryServer() as registry:
        registry.register("u-value", AB)
        registry.register(":.prod:t-value", BA)
        with either_store(registry, offline) as (sources, given):
            found = read("confluent-avro", [b"\0\0\0\0\x01\x02\x04"], sources, **given)
        assert found.columns.to_pylist() == [{"b": 1, "a": 2}]


@pytest.mark.parametrize("offline", [True, False])
def test_references_are_looked_up_in_the_context_of_the_schema_that_has_them(offline: bool) -> None:
    outer = json.dumps({"type": "record", "name": "O", "fields": [{"name": "r", "type": "R"}]})
    with RegistryServer() as registry:
        for context, inner in (("", AB), (":.prod:", BA)):
            registry.register(f"{context}inner", inner)
            registry.register(f"{context}t-value", outer, references=[{"name": "R", "subject": "inner", "version": 1}])
        crossed = [{"name": "R", "subject": ":.prod:inner", "version": 1}]
        registry.register("crossed-value", outer, references=crossed)
        with either_store(registry, offline) as (sources, given):
            for subject, id_, expected in (
                ("t-value", 2, {"a": 1, "b": 2}),
                (":.prod:t-value", 2, {"b": 1, "a": 2}),
                ("crossed-value", 3, {"b": 1, "a": 2}),
            ):
                value = b"\0" + id_.to_bytes(4, "big") + b"\x02\x04"
                found = read("confluent-avro", [value], sources, **given, subject=subject)
                assert found.columns.to_pylist() == [{"r": expected}]


def test_the_first_registration_of_an_id_counts() -> None:
    """As in Confluent's KafkaStoreMessageHandler; a schema that is deleted for good gives its id up."""

    def record(subject: str, version: int, id_: int, text: str | None) -> tuple[bytes, bytes | None]:
        key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
        value = {"subject": subject, "version": version, "id": id_, "schema": text}
        return json.dumps(key).encode(), None if text is None else json.dumps(value).encode()

    records = [record("t-value", 1, 1, AB), record("u-value", 1, 1, BA), record("v-value", 1, 1, AB)]
    store = SchemaRecords(records, "s")
    found = store.by_id(1)
    assert found is not None
    assert found.text == AB
    assert store.by_version("u-value", 1) is None
    assert store.ignored == [
        "record 1: ValueError: version 1 of u-value has id 1, which is version 1 of t-value already"
    ]
    again = [record("t-value", 1, 1, None), record("v-value", 1, 1, None), record("u-value", 1, 1, BA)]
    found = SchemaRecords([*records, *again], "s").by_id(1)
    assert found is not None
    assert found.text == BA


def test_values_of_a_strategy_that_names_records_are_of_the_subjects_context() -> None:
    """RecordNameStrategy: the subject of the reader is one of several, and its name in another context says nothing."""
    with RegistryServer() as registry:
        registry.register("shop.Order", AB)
        registry.register("shop.Payment", BA)
        registry.register(":.prod:other", json.dumps("string"))
        registry.register(":.prod:shop.Order", AB)
        sources = SchemaSources("value", ("t",), lambda topic: list(registry.records()))
        found = read("confluent-avro", [b"\0\0\0\0\x02\x02\x04"], sources, subject="shop.Order")
        assert found.columns.to_pylist() == [{"a": 2, "b": 1}]


@pytest.mark.parametrize("form", ["list", "lines", "tabs"])
def test_values_are_read_with_a_file_of_schemas(form: str, tmp_path: Path) -> None:
    records = [(key, value) for key, value in golden_records("_schemas") if key is not None]
    if form == "list":
        kept = [json.loads(value) for key, value in records if b'"SCHEMA"' in key and value is not None][:2]
        text = json.dumps([one for one in kept if one["subject"] == "orders-value"])
    elif form == "lines":
        lines = [{"key": json.loads(key), "value": value and json.loads(value)} for key, value in records]
        text = "\n".join(map(json.dumps, lines))
    else:
        text = "\n".join(f"{key.decode()}\t{'null' if value is None else value.decode()}" for key, value in records)
    path = tmp_path / "schemas"
    path.write_text(text)
    assert SchemaRecords(listed_records(text, str(path)), str(path)).by_version("orders-value", 2) is not None
    given = {"schema.registry.file": str(path), "subject": "orders-value"}
    found = read("confluent-avro", golden_values("orders"), SchemaSources("value", (), no_records), **given)
    assert found.bad is None


def test_each_schema_is_requested_once() -> None:
    with RegistryServer(users={"alice": "se:cret"}) as registry:
        ids = [registry.register("orders-value", json.dumps(schema)) for schema in (FIRST, SECOND)]
        values = [
            b"\0" + ids[0].to_bytes(4, "big") + b"\x02",
            b"\0" + ids[1].to_bytes(4, "big") + b"\x04\x02\x02a" + bytes(8),
        ]
        given = {"schema.registry.url": registry.url, "schema.registry.basic.auth.user.info": "alice:se:cret"}
        sources = SchemaSources("value", ("orders",), no_records)
        for _ in range(2):
            found = read("confluent-avro", values * 1000, sources, **given)
        assert found.bad is None
        assert found.columns[1].as_py() == {"id": 2, "user": "a", "amount": 0.0}
        asked = [one for one in registry.requests if "/schemas/ids/" in one]
        assert sorted(asked) == [f"GET /schemas/ids/{id_}?subject=orders-value" for id_ in ids]


def test_guid_in_the_value_or_a_header_names_the_schema() -> None:
    with RegistryServer(token="abc") as registry:
        id_ = registry.register("orders-value", json.dumps(FIRST))
        guid = UUID(registry.guid(id_)).bytes
        given = {"schema.registry.url": registry.url, "schema.registry.bearer.auth.token": "abc"}
        named = [{"key": "other", "value": b"x"}, {"key": "__value_schema_id", "value": b"\x01" + guid}]
        wrong = [{"key": "__key_schema_id", "value": b"\x01" + guid}]
        headers = pa.array(
            [None, named, wrong, [{"key": "__value_schema_id", "value": b"\x00\x00\x00\x00\x01"}]], HEADERS
        )
        values: list[bytes | None] = [b"\x01" + guid + b"\x02", b"\x04", b"\x06", b"\x08"]
        found = read("confluent-avro", values, SchemaSources("value", ("orders",), no_records), headers, **given)
        assert found.columns.to_pylist() == [{"id": 1}, {"id": 2}, {"id": None}, {"id": 4}]


def test_unknown_schema_id_makes_the_value_malformed() -> None:
    with RegistryServer() as registry:
        registry.register("orders-value", json.dumps(FIRST))
        registry.register("text", "{}", "JSON")
        given = {"schema.registry.url": registry.url}
        values = [b"\0\0\0\0\x01\x02", b"\0\0\0\0\x63\x02", b"\0\0\0\0\x02\x02", b"\0\0", None]
        found = read("confluent-avro", values, SchemaSources("value", ("orders",), no_records), **given)
        assert found.bad is not None
        assert found.bad.tolist() == [False, True, True, True, False]
        assert "names schema 99, which the schema registry http" in found.why(1)
        assert "one of JSON" in found.why(2)


def test_failing_registry_is_retried_and_then_named() -> None:
    waits: list[float] = []
    with RegistryServer(failing=2) as registry:
        registry.register("s", '"int"')
        client = RegistryClient(RegistryOptions((registry.url,)), waits.append)
        assert client.by_id(1) is not None
        assert waits == [0.5, 1.0]
        registry.failing = 10
        with pytest.raises(SchemaRegistryError, match=r"failed to answer /schemas/ids/5: HTTP 503"):
            client.by_id(5)
    with pytest.raises(SchemaRegistryError, match="failed to answer"):
        client.by_id(6)


def moved(to: str) -> bytes:
    return f"HTTP/1.1 307 Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("credentials", [{"user_info": "alice:secret"}, {"token": "abc"}])
def test_credentials_are_not_sent_to_another_server(
    credentials: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with RegistryServer() as other:
        other.register("s", '"int"')
        for there in (other.url, other.url.replace("http:", "https:"), "ftp://127.0.0.1", "file:///etc/hostname"):
            with serving(moved(f"{there}/schemas/ids/1"), moved(f"{there}/subjects")) as url:
                client = RegistryClient(RegistryOptions((url,), **credentials))
                with pytest.raises(SchemaRegistryError, match="redirects to another server"):
                    client.by_id(1)
                with pytest.raises(SchemaRegistryError, match="redirects to another server"):
                    client.register("s", '"int"')
        monkeypatch.setenv("http_proxy", other.url)
        assert other.requests == []
    with RegistryServer(users={"alice": "secret"}) as registry:  # a path that moved on the same server
        registry.register("s", '"int"')
        monkeypatch.setattr(registry, "moved", {"/old/schemas/ids/1": "/schemas/ids/1"})
        found = RegistryClient(RegistryOptions((f"{registry.url}/old",), user_info="alice:secret")).by_id(1)
        assert found is not None


@pytest.mark.parametrize(
    ("answer", "why", "again"),
    [
        (b"garbage\r\n\r\n", "does not speak HTTP: BadStatusLine", True),
        (b"", "does not speak HTTP: RemoteDisconnected", True),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 200_000, "a text that is not JSON", False),
        (b"HTTP/1.1 400 No\r\n\r\n" + b"[" * 60_000, r"refused /keys/schemas/ids/1: HTTP 400: \[\[", False),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes((16 << 20) + 1), "larger than 16777216 bytes", False),
        (
            b'HTTP/1.1 200 OK\r\n\r\n{"schema": "x", "references": 7}',
            "answered /schemas/ids/1 without a valid schema",
            False,
        ),
    ],
)
def test_invalid_response_is_an_error_or_tries_the_next_url(answer: bytes, why: str, again: bool) -> None:
    waits: list[float] = []
    with (
        serving(*[answer] * (3 if again else 1)) as url,
        pytest.raises(SchemaRegistryError, match=why),
    ):
        RegistryClient(RegistryOptions((url,)), waits.append).by_id(1)
    assert len(waits) == (2 if again else 0)
    with RegistryServer() as good, serving(answer) as url:
        good.register("s", '"int"')
        client = RegistryClient(RegistryOptions((url, good.url)))
        if again:
            assert client.by_id(1) is not None


def test_slow_response_ends_at_the_deadline() -> None:
    now = [0.0]

    def drips(client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n{")
        now[0] += TIMEOUT_S
        client.sendall(b" ")
        client.settimeout(30)
        client.recv(1)  # until it is closed

    with serving(drips) as url, pytest.raises(TimeoutError, match="did not send the whole response within 10 s"):
        HttpClient(100, {}, clock=lambda: now[0]).send(url)


def test_schema_registered_after_a_failed_look_up_is_found() -> None:
    with RegistryServer() as registry:
        client = RegistryClient(RegistryOptions((registry.url,)))
        assert client.by_id(1) is None
        registry.register("s", '"int"')
        assert client.by_id(1) is not None


def test_unauthorized_request_names_the_options_for_credentials() -> None:
    with RegistryServer(users={"alice": "secret"}) as registry:
        options = RegistryOptions((registry.url,), user_info="alice:wrong")
        assert "wrong" not in repr(options)
        with pytest.raises(SchemaRegistryError, match=r"HTTP 401: Unauthorized; schema.registry.basic.auth.user.info"):
            RegistryClient(options).by_id(1)
    with pytest.raises(OptionError, match="expected http:// or https://"):
        RegistryClient(RegistryOptions(("ftp://x",)))
    with pytest.raises(OptionError, match="has characters that a token cannot have") as refused:
        RegistryClient(RegistryOptions(("http://x",), token="abc\n"))
    assert "abc" not in str(refused.value)
    with pytest.raises(OptionError, match="both given"):
        RegistryClient(RegistryOptions(("http://x",), "a:b", "t"))


def test_registry_with_mutual_tls_is_read(tmp_path: Path) -> None:
    authority = Authority()
    for name in ("server", "client"):
        issued = authority.issue("localhost", ("127.0.0.1",))
        (tmp_path / f"{name}.key").write_text(issued.key)
        (tmp_path / f"{name}.pem").write_text(issued.chain)
    (tmp_path / "ca.pem").write_text(authority.certificate)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.pem"))
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    with RegistryServer(tls=tls) as registry:
        registry.register("s", '"int"')
        own = RegistryOptions(
            (registry.url,),
            ca=str(tmp_path / "ca.pem"),
            certificate=str(tmp_path / "client.pem"),
            key=str(tmp_path / "client.key"),
        )
        found = RegistryClient(own).by_id(1)
        assert found is not None
        assert found.text == '"int"'
        with pytest.raises(SchemaRegistryError, match="failed to answer"):
            RegistryClient(RegistryOptions((registry.url,)), lambda seconds: None).by_id(1)
    with pytest.raises(OptionError, match=r"certificates of the schema registry cannot be read.*ssl.ca.location"):
        RegistryClient(RegistryOptions(("https://127.0.0.1",), ca=str(tmp_path / "none")))


def test_schemas_are_read_with_their_references() -> None:
    address = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
    order = {"type": "record", "name": "O", "fields": [{"name": "to", "type": "shop.Address"}]}
    reference = [{"name": "shop.Address", "subject": "address", "version": 1}]
    with RegistryServer() as registry:
        registry.register("address", json.dumps(address))
        id_ = registry.register("orders-value", json.dumps(order), references=reference)
        given = {"schema.registry.url": registry.url}
        value = b"\0" + id_.to_bytes(4, "big") + b"\x04ab"
        found = read("confluent-avro", [value], SchemaSources("value", ("orders",), no_records), **given)
        assert found.columns.to_pylist() == [{"to": {"city": "ab"}}]


def test_message_indexes_select_the_protobuf_message() -> None:
    with RegistryServer() as registry:
        registry.register("b", PROTO_B, "PROTOBUF")
        reference = [{"name": "b.proto", "subject": "b", "version": 1}]
        id_ = registry.register("orders-value", PROTO, "PROTOBUF", reference).to_bytes(4, "big")
        given = {"schema.registry.url": registry.url}
        values = [
            b"\0" + id_ + b"\0\x08\x05\x12\x03\x0a\x01z",
            b"\0" + id_ + b"\x02\x00\x08\x06",
            b"\0" + id_ + b"\x04\x00\x00\x0a\x01s",  # C inside A, which has none of the columns
            b"\0" + id_ + b"\x02\x08\x08\x06",
            b"\0" + id_,
        ]
        found = read("confluent-protobuf", values, SchemaSources("value", ("orders",), no_records), **given)
        assert found.columns.to_pylist()[:3] == [
            {"id": 5, "b": {"x": "z"}},
            {"id": 6, "b": None},
            {"id": None, "b": None},
        ]
        assert found.bad is not None
        assert found.bad.tolist() == [False, False, False, True, True]
        assert "no message at indexes [4]" in found.why(3)


def in_header(*ids: bytes | None) -> Any:
    """The headers of one record for each: the id of its value's schema, or none at all."""
    return pa.array([None if id_ is None else [{"key": "__value_schema_id", "value": id_}] for id_ in ids], HEADERS)


def test_message_indexes_follow_the_id_in_a_header() -> None:
    """As Confluent's HeaderSchemaIdSerializer writes them; what no deserializer takes is bad."""
    with RegistryServer() as registry:
        registry.register("b", PROTO_B, "PROTOBUF")
        id_ = registry.register("t-value", PROTO, "PROTOBUF", [{"name": "b.proto", "subject": "b", "version": 1}])
        guid = b"\1" + UUID(registry.guid(id_)).bytes
        values: list[bytes | None] = [b"\x08\x05", b"", None, b"\x0a\x01s", b"\x08\x06", b"\0\x08\x07", b"\x08\x08"]
        headers = in_header(
            guid + b"\0", guid + b"\x02\x00", guid + b"\0", guid + b"\x04\0\0", b"\0\0\0\0\x02\0", guid, guid[:5]
        )
        sources = SchemaSources("value", ("t",), no_records)
        found = read("confluent-protobuf", values, sources, headers, **{"schema.registry.url": registry.url})
        assert [row and row["id"] for row in found.columns.to_pylist()] == [5, None, None, None, 6, None, None]
        assert found.bad is not None
        assert found.bad.tolist() == [False] * 5 + [True, True]
        assert found.why(5) == "the indexes of its message do not end"
        assert "nor is one in its header" in found.why(6)


def test_empty_values_with_ids_in_headers_are_read() -> None:
    with RegistryServer() as registry:
        id_ = registry.register("t-value", PROTO_B, "PROTOBUF")
        named = b"\1" + UUID(registry.guid(id_)).bytes + b"\0"
        sources = SchemaSources("value", ("t",), no_records)
        given = {"schema.registry.url": registry.url}
        found = read("confluent-protobuf", [b"", b""], sources, in_header(named, named), **given)
        assert found.bad is None
        assert found.columns.to_pylist() == [{"x": None}] * 2


def test_last_header_with_a_schema_id_counts() -> None:
    """As in Confluent's DualSchemaIdDeserializer: a null one is none, and one that is no id makes the value bad."""
    with RegistryServer() as registry:
        for text in (AB, BA):
            registry.register("t-value", text)
        first, second = (b"\0\0\0\0" + bytes([id_]) for id_ in (1, 2))
        lists: list[list[bytes | None]] = [[first, second], [second, b"\x07"], [second, None]]
        headers = pa.array([[{"key": "__value_schema_id", "value": one} for one in each] for each in lists], HEADERS)
        values: list[bytes | None] = [b"\x02\x04", first + b"\x02\x04", first + b"\x02\x04"]
        sources = SchemaSources("value", ("t",), no_records)
        found = read("confluent-avro", values, sources, headers, **{"schema.registry.url": registry.url})
        assert found.columns.to_pylist() == [{"b": 1, "a": 2}, {"b": None, "a": None}, {"b": 2, "a": 1}]
        assert found.bad is not None
        assert found.bad.tolist() == [False, True, False]


def test_long_message_indexes_are_read_to_their_end() -> None:
    """Two messages whose indexes are equal in the first eight bytes, and one value that ends within them."""
    inner = "message E { string b = 1; } message F { string a = 1; } string a = 1;"
    for name in "DCBA":
        inner = f"message {name}2 {{ message {name}1 {{ {inner} }} }}"
    with RegistryServer() as registry:
        id_ = registry.register("t-value", 'syntax = "proto3"; message M { string a = 1; } ' + inner, "PROTOBUF")
        prefix, path = b"\0" + id_.to_bytes(4, "big"), b"\x12\x02" + bytes(7)
        values: list[bytes | None] = [
            prefix + path[:8],
            *(prefix + path + bytes([2 * i]) + b"\x0a\x01z" for i in (0, 1)),
        ]
        sources = SchemaSources("value", ("t",), no_records)
        found = read("confluent-protobuf", values, sources, **{"schema.registry.url": registry.url})
        assert found.columns.to_pylist() == [None, {"a": None}, {"a": "z"}]


def test_written_schema_is_registered_and_values_are_read_back() -> None:
    given_columns = pa.schema([("id", pa.int64()), ("user", pa.string())])
    rows = pa.array([{"id": 1, "user": None}, None, {"id": 2, "user": "u"}], pa.struct(list(given_columns)))
    with RegistryServer() as registry:
        options = {"schema.registry.url": registry.url, "subject": "t-value"}
        values = format_of("confluent-avro").encoder(options, given_columns).encode(rows)
        found = read("confluent-avro", values.to_pylist(), SchemaSources("value", ("t",), no_records), **options)
        assert found.columns.to_pylist() == rows.to_pylist()
    with pytest.raises(OptionError, match=r"schema.registry.url and value.subject are needed"):
        format_of("confluent-avro").encoder({}, given_columns)


def test_json_is_written_after_the_id_of_the_subjects_schema() -> None:
    with RegistryServer() as registry:
        id_ = registry.register("t-value", '{"type": "object"}', "JSON")
        options = {"schema.registry.url": registry.url, "subject": "t-value"}
        column = ResolvedFormat("confluent-json", options)
        batch = pa.record_batch({"value": ['{"a":1}', None], "topic": ["t", "t"]})
        (written,) = SinkColumns(("value",), True, False, (column,)).rows([batch])
        assert written["value"].to_pylist() == [b"\0" + id_.to_bytes(4, "big") + b'{"a":1}', None]
    struct = pa.schema([("value", pa.struct([("a", pa.string())]))])
    for given, packed in ((struct, ()), (pa.schema([("a", pa.string())]), ("a",))):
        with pytest.raises(OptionError, match=r"write to_json\(struct\(...\)\) AS value"):
            SinkColumns(("value",), False, False, (column,), packed).encoders(given)


def test_scan_without_the_column_headers_reads_ids_in_headers(tmp_path: Path) -> None:
    from kafkalog_spark import LogDirs as TypedLogDirs
    from kafkalog_spark.log.decode.scan_request import ScanRequest

    with RegistryServer() as registry:
        named = b"\1" + UUID(registry.guid(registry.register("t-value", AB))).bytes
        schemas = [MadeBatch([value], [0], [key]) for key, value in registry.records()]
    write_batches(tmp_path, "_schemas", 0, schemas)
    columns: dict[str, Any] = {
        "value": pa.array([b"\x02\x04"], pa.binary()),
        "timestamp": pa.array([0], pa.int64()),
        "headers": in_header(named),
    }
    with LogWriter(tmp_path / "t-0") as writer:
        writer.append_all(encode_batches(pa.RecordBatch.from_pydict(columns), 0, BatchParams()))
    dirs = TypedLogDirs.open(tmp_path)
    for given in ({}, {"columns": ("value", "offset")}, {"request": ScanRequest(columns=("value",))}):
        (batch,) = dirs.scan("t", value_format="confluent-avro", **given)  # type: ignore[arg-type]
        assert batch["value"].to_pylist() == [{"a": 1, "b": 2}]
        assert "headers" not in batch.schema.names
