"""A schema registry for tests: Confluent's REST interface on loopback, with authentication and failures.

    with RegistryServer(users={"alice": "secret"}) as registry:
        id_ = registry.register("orders-value", '{"type": ...}')
        registry.url, registry.requests, registry.records()       # what it would have written to _schemas

Contexts are those of Confluent's registry (`AbstractSchemaRegistry`): IDs begin at 1 in each, and an ID or a subject
without a context is searched in all of them, in the same order.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import NAMESPACE_OID, uuid5

from kafkalog_spark.typed.registry.contexts import DEFAULT_CONTEXT, QualifiedSubject

Json = Any
_CONTENT = "application/vnd.schemaregistry.v1+json"


class RegistryServer:
    """failing: how many requests are answered with HTTP 503 before one succeeds; tls: what HTTPS is served with;
    kept_as: makes the text that the registry keeps of a schema; requests with `format=serialized` get the original."""

    def __init__(
        self,
        users: Mapping[str, str] | None = None,
        token: str | None = None,
        failing: int = 0,
        tls: ssl.SSLContext | None = None,
        kept_as: Callable[[str], str] = str,
    ) -> None:
        self._kept_as = kept_as
        self.users, self.token, self.failing = dict(users or {}), token, failing
        self.requests: list[str] = []
        self.moved: dict[str, str] = {}
        """Paths that are somewhere else."""
        self._schemas: dict[tuple[str, int], Json] = {}
        """By context and id."""
        self._versions: dict[QualifiedSubject, list[int]] = {}
        self._registered: list[tuple[QualifiedSubject, int]] = []
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path in server.moved:
                    self.send_response(301)
                    self.send_header("Location", server.moved[self.path])
                    self.send_header("Content-Length", "0")
                    return self.end_headers()
                self._answer(*server.answer("GET", self.path, None, self.headers.get("Authorization")))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(*server.answer("POST", self.path, body, self.headers.get("Authorization")))

            def _answer(self, status: int, body: Json) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", _CONTENT)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def register(self, subject: str, schema: str, kind: str = "AVRO", references: Json = ()) -> int:
        """The id of a schema: in a context the same for the same text, whatever the subject."""
        with self._lock:
            made = _schema(schema, kind, references)
            at = QualifiedSubject.of(subject)
            ids = {id_: known for (context, id_), known in self._schemas.items() if context == at.context}
            id_ = next((one for one, known in ids.items() if known == made), len(ids) + 1)
            self._schemas[at.context, id_] = made
            versions = self._versions.setdefault(at, [])
            if id_ not in versions:
                versions.append(id_)
                self._registered.append((at, len(versions)))
            return id_

    def load(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Register the `records` of another registry, with their ids and GUIDs."""
        for _, content in records:
            told = json.loads(content)
            at = QualifiedSubject.of(told["subject"])
            schema = {"schema": told["schema"], "schemaType": told.get("schemaType", "AVRO"), "guid": told["guid"]}
            self._schemas[at.context, told["id"]] = {**schema, "references": told.get("references", [])}
            self._versions.setdefault(at, []).append(told["id"])
            self._registered.append((at, told["version"]))

    def guid(self, id_: int, context: str = DEFAULT_CONTEXT) -> str:
        return _guid(self._schemas[context, id_])

    def records(self) -> list[tuple[bytes, bytes]]:
        """Key and value of the records that a registry keeps of what is registered here."""
        found = []
        for at, version in self._registered:
            key = {"keytype": "SCHEMA", "subject": str(at), "version": version, "magic": 1}
            told = self._told(at, version)
            value = {**told, "schema": self._kept_as(told["schema"]), "deleted": False}
            found.append((json.dumps(key).encode(), json.dumps(value).encode()))
        return found

    def answer(self, method: str, path: str, body: Json, authorization: str | None) -> tuple[int, Json]:
        """(HTTP status, JSON)."""
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        query = parse_qs(urlsplit(path).query)
        with self._lock:
            self.requests.append(f"{method} {path}")
            if self.failing > 0:
                self.failing -= 1
                return 503, {"error_code": 50003, "message": "Error while forwarding the request to the primary"}
        if not self._is_allowed(authorization):
            return 401, {"error_code": 401, "message": "Unauthorized"}
        status, told = self._found(method, parts, body, query.get("subject", [""])[0])
        if method == "GET" and "schema" in told and query.get("format") != ["serialized"]:
            told = {**told, "schema": self._kept_as(told["schema"])}
        return status, told

    def _found(self, method: str, parts: list[str], body: Json, subject_of_id: str) -> tuple[int, Json]:
        match method, parts:
            case "GET", ["schemas", "ids", id_]:
                return self._by_id(int(id_), QualifiedSubject.of(subject_of_id))
            case "GET", ["schemas", "guids", guid]:
                found = [one for one in self._registered if _guid(self._schema_of(*one)) == guid]
                return (200, self._told(*found[0])) if found else _NO_SCHEMA
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                kind = body.get("schemaType", "AVRO")
                if kind == "AVRO" and "type" not in body["schema"] and not body["schema"].startswith('"'):
                    return 422, {"error_code": 42201, "message": "Invalid schema"}
                self.register(subject, body["schema"], kind, body.get("references") or ())
                return self._lookup(subject, body)
            case "POST", ["subjects", subject]:
                return self._lookup(subject, body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _by_id(self, id_: int, wanted: QualifiedSubject) -> tuple[int, Json]:
        """Confluent's `getSchemaKeyUsingContexts`."""
        others = self._contexts() if wanted.name and wanted.context == DEFAULT_CONTEXT else []
        for context in (wanted.context, *others):
            at = wanted._replace(context=context)
            if id_ in self._versions.get(at, ()):
                return 200, self._told_by_id(at, id_)
        holders = [at for at, ids in self._versions.items() if at.context == wanted.context and id_ in ids]
        if not holders or (wanted.name and wanted.context != DEFAULT_CONTEXT):
            return _NO_SCHEMA
        return 200, self._told_by_id(holders[0], id_)

    def _version(self, subject: str, version: str) -> tuple[int, Json]:
        """Confluent's `getUsingContexts`."""
        at = QualifiedSubject.of(subject)
        for context in self._contexts() if at.context == DEFAULT_CONTEXT and at not in self._versions else []:
            if at._replace(context=context) in self._versions:
                at = at._replace(context=context)
                break
        ids = self._versions.get(at)
        if ids is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(ids) if version == "latest" else int(version)
        if not 1 <= number <= len(ids):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        return 200, self._told(at, number)

    def _lookup(self, subject: str, body: Json) -> tuple[int, Json]:
        made = _schema(body["schema"], body.get("schemaType", "AVRO"), body.get("references") or ())
        at = QualifiedSubject.of(subject)
        for version in range(1, len(self._versions.get(at, ())) + 1):
            if self._schema_of(at, version) == made:
                return 200, self._told(at, version)
        return _NO_SCHEMA

    def _contexts(self) -> list[str]:
        return sorted({at.context for at in self._versions} - {DEFAULT_CONTEXT})

    def _schema_of(self, at: QualifiedSubject, version: int) -> Json:
        return self._schemas[at.context, self._versions[at][version - 1]]

    def _told(self, at: QualifiedSubject, version: int) -> Json:
        """What a registry says of a schema: not that it is Avro, and no references where there are none."""
        schema = self._schema_of(at, version)
        told = {name: value for name, value in schema.items() if value and value != "AVRO"}
        id_ = self._versions[at][version - 1]
        return {"subject": str(at), "version": version, "id": id_, **told, "guid": _guid(schema)}

    def _told_by_id(self, at: QualifiedSubject, id_: int) -> Json:
        return self._told(at, self._versions[at].index(id_) + 1)

    def _is_allowed(self, authorization: str | None) -> bool:
        if self.token is not None:
            return authorization == f"Bearer {self.token}"
        if not self.users:
            return True
        said = base64.b64decode((authorization or "Basic ").removeprefix("Basic ")).decode()
        user, _, password = said.partition(":")
        return self.users.get(user) == password


_NO_SCHEMA = 404, {"error_code": 40403, "message": "Schema not found"}


def _schema(text: str, kind: str, references: Iterable[Json]) -> Json:
    return {"schema": text, "schemaType": kind, "references": list(references)}


def _guid(schema: Json) -> str:
    return schema.get("guid") or str(uuid5(NAMESPACE_OID, json.dumps(schema)))
