"""A schema registry for tests: the REST answers that Confluent documents, on loopback, with auth and with failures.

with RegistryServer(users={"alice": "secret"}) as registry:
    id_ = registry.register("orders-value", '{"type": ...}')
    registry.url, registry.requests, registry.records()       # what it would have put into _schemas
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit
from uuid import NAMESPACE_OID, uuid5

Json = Any
_CONTENT = "application/vnd.schemaregistry.v1+json"


class RegistryServer:
    """failing: how many requests are answered with HTTP 503 before one succeeds; tls: what HTTPS is served with."""

    def __init__(
        self,
        users: Mapping[str, str] | None = None,
        token: str | None = None,
        failing: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.users, self.token, self.failing = dict(users or {}), token, failing
        self.requests: list[str] = []
        self.moved: dict[str, str] = {}
        """Paths that are somewhere else."""
        self._schemas: dict[int, Json] = {}
        self._versions: dict[str, list[int]] = {}
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
        """The id of a schema: the same for the same text, whatever the subject."""
        with self._lock:
            made = {"schema": schema, "schemaType": kind, "references": list(references)}
            id_ = next((one for one, known in self._schemas.items() if known == made), len(self._schemas) + 1)
            self._schemas[id_] = made
            versions = self._versions.setdefault(subject, [])
            if id_ not in versions:
                versions.append(id_)
            return id_

    def guid(self, id_: int) -> str:
        return str(uuid5(NAMESPACE_OID, json.dumps(self._schemas[id_])))

    def records(self) -> list[tuple[bytes, bytes]]:
        """Key and value of the records that a registry keeps of what is registered here."""
        found = []
        for subject, ids in self._versions.items():
            for version, id_ in enumerate(ids, 1):
                key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
                value = {"subject": subject, "version": version, "id": id_, **self._told(id_), "deleted": False}
                found.append((id_, json.dumps(key).encode(), json.dumps(value).encode()))
        return [(key, value) for _, key, value in sorted(found)]

    def answer(self, method: str, path: str, body: Json, authorization: str | None) -> tuple[int, Json]:
        """(HTTP status, JSON)."""
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        with self._lock:
            self.requests.append(f"{method} {path}")
            if self.failing > 0:
                self.failing -= 1
                return 503, {"error_code": 50003, "message": "Error while forwarding the request to the primary"}
        if not self._is_allowed(authorization):
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match method, parts:
            case "GET", ["schemas", "ids", id_] if int(id_) in self._schemas:
                return 200, self._told(int(id_))
            case "GET", ["schemas", "ids", _]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case "GET", ["schemas", "guids", guid]:
                found = [id_ for id_ in self._schemas if self.guid(id_) == guid]
                return (200, self._told(found[0])) if found else (404, {"error_code": 40403, "message": "not found"})
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject, "versions"]:
                kind = body.get("schemaType", "AVRO")
                if kind == "AVRO" and "type" not in body["schema"] and not body["schema"].startswith('"'):
                    return 422, {"error_code": 42201, "message": "Invalid schema"}
                return 200, {"id": self.register(subject, body["schema"], kind, body.get("references", ()))}
            case "POST", ["subjects", subject]:
                number = self.register(
                    subject, body["schema"], body.get("schemaType", "AVRO"), body.get("references", ())
                )
                return self._version(subject, str(self._versions[subject].index(number) + 1))
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _version(self, subject: str, version: str) -> tuple[int, Json]:
        ids = self._versions.get(subject)
        if ids is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(ids) if version == "latest" else int(version)
        if not 1 <= number <= len(ids):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        id_ = ids[number - 1]
        return 200, {"subject": subject, "version": number, "id": id_, **self._told(id_)}

    def _told(self, id_: int) -> Json:
        """What a registry says of a schema: not that it is Avro, and no references where there are none."""
        told = {name: value for name, value in self._schemas[id_].items() if value and value != "AVRO"}
        return {**told, "guid": self.guid(id_)}

    def _is_allowed(self, authorization: str | None) -> bool:
        if self.token is not None:
            return authorization == f"Bearer {self.token}"
        if not self.users:
            return True
        said = base64.b64decode((authorization or "Basic ").removeprefix("Basic ")).decode()
        user, _, password = said.partition(":")
        return self.users.get(user) == password
