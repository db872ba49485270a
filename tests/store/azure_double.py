"""As much of Azure's Blob service as the reader uses, on loopback: a stand-in, because no server of it runs without
Docker or Node. Written after the service's REST reference: List Blobs (prefix, delimiter, marker; its ETags have
no quotes), Get Blob (range, If-Match), Get Blob Properties."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 3
"""Names of one answer; the service has 5,000."""
DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


class AzureDouble:
    """The account `acc` with one container, `tier`. blobs: bytes by name."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"blobs": self.blobs}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def etag(data: bytes) -> str:
    return f'"0x{hashlib.md5(data).hexdigest()[:15].upper()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    blobs: dict[str, bytes]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        container, _, name = unquote(parts.path).lstrip("/").partition("/")
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if container != "tier":
            self._fail(404, "ContainerNotFound")
        elif query.get("comp") == "list":
            self._send(200, self._listing(query), {"Content-Type": "application/xml"})
        elif name not in self.blobs:
            self._fail(404, "BlobNotFound")
        elif self.headers.get("If-Match", etag(self.blobs[name])) != etag(self.blobs[name]):
            self._fail(412, "ConditionNotMet")
        else:
            self._blob(self.blobs[name])

    do_HEAD = do_GET

    def _blob(self, data: bytes) -> None:
        headers = {"ETag": etag(data), "Last-Modified": DATE, "x-ms-blob-type": "BlockBlob"}
        wanted = self.headers.get("Range")
        if wanted is None:
            self._send(200, data, headers)
            return
        begin, end = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
        headers["Content-Range"] = f"bytes {begin}-{min(end, len(data) - 1)}/{len(data)}"
        self._send(206, data[begin : end + 1], headers)

    def _listing(self, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        entries: dict[str, str] = {}
        for name in sorted(name for name in self.blobs if name.startswith(prefix)):
            rest = name.removeprefix(prefix)
            if delimiter and delimiter in rest:
                below = prefix + rest.partition(delimiter)[0] + delimiter
                entries[below] = f"<BlobPrefix><Name>{escape(below)}</Name></BlobPrefix>"
            else:
                data = self.blobs[name]
                entries[name] = (
                    f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{DATE}</Last-Modified>"
                    f"<Etag>{etag(data).strip(chr(34))}</Etag><Content-Length>{len(data)}</Content-Length>"
                    "<Content-Type>application/octet-stream</Content-Type></Properties></Blob>"
                )
        names = [name for name in entries if name >= query.get("marker", "")]
        following = names[PAGE] if len(names) > PAGE else ""
        blobs = "".join(entries[name] for name in names[:PAGE])
        text = (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="tier"><Blobs>{blobs}</Blobs>'
            f"<NextMarker>{escape(following)}</NextMarker></EnumerationResults>"
        )
        return text.encode()

    def _fail(self, status: int, code: str) -> None:
        text = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>…</Message></Error>'
        self._send(status, text.encode(), {"x-ms-error-code": code})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
