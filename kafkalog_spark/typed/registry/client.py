"""A schema registry by its REST interface, as Confluent documents it: schemas by id, by GUID and by version of a
subject.

Answers are kept, a thousand at most: a schema never changes. Each request has 10 s, and is tried on every URL; a 5xx or
429 is tried three times in all.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.typed.registry.schemas import AVRO, RegisteredSchema

_CONTENT = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S, _TRIES, _PAUSE_S = 10.0, 3, 0.5
_MOST_BYTES = 16 << 20
_KEPT = 1000
_NOT_FOUND = (404,)


@dataclass(frozen=True)
class RegistryOptions:
    """How a registry is reached. Secrets are not shown."""

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)


class RegistryClient:
    """Asks a registry. sleep: how it waits before another try."""

    def __init__(self, options: RegistryOptions, sleep: Callable[[float], None] = time.sleep) -> None:
        """Raises OptionError for a URL or a certificate that cannot be used."""
        for url in options.urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
                raise OptionError(f"option 'schema.registry.url' has '{url}': expected http:// or https:// and a host")
        self._options, self._sleep = options, sleep
        self._headers = {"Accept": f"{_CONTENT}, application/json", **_authorization(options)}
        self._tls = _tls(options) if any(url.startswith("https") for url in options.urls) else None
        self._kept: OrderedDict[str, RegisteredSchema | None] = OrderedDict()

    @property
    def described(self) -> str:
        return f"the schema registry {', '.join(map(_without_user, self._options.urls))}"

    def by_id(self, id_: int) -> RegisteredSchema | None:
        return self._asked(f"/schemas/ids/{id_}", id_)

    def by_guid(self, guid: str) -> RegisteredSchema | None:
        return self._asked(f"/schemas/guids/{quote(guid, safe='')}", 0)

    def by_version(self, subject: str, version: int | None) -> RegisteredSchema | None:
        asked = "latest" if version is None else str(version)
        path = f"/subjects/{quote(subject, safe='')}/versions/{asked}"
        if version is None:
            self._kept.pop(path, None)  # the latest is another one tomorrow
        return self._asked(path, None)

    def register(self, subject: str, schema: str, kind: str = AVRO) -> int:
        """Register a schema under a subject, unless it is there; its id. Raises SchemaRegistryError when it is refused:
        not compatible, or not allowed."""
        body = {"schema": schema, **({} if kind == AVRO else {"schemaType": kind})}
        found = self._json(f"/subjects/{quote(subject, safe='')}/versions", body)
        if not isinstance(found, dict) or not isinstance(found.get("id"), int):
            raise SchemaRegistryError(f"{self.described} answered the registration of {subject} without an id")
        return int(found["id"])

    def _asked(self, path: str, id_: int | None) -> RegisteredSchema | None:
        if path in self._kept:
            self._kept.move_to_end(path)
            return self._kept[path]
        found = self._json(path)
        try:
            schema = None if found is None else RegisteredSchema.of_json(found, id_)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchemaRegistryError(f"{self.described} answered {path} with no schema: {error}") from error
        self._kept[path] = schema
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return schema

    def _json(self, path: str, body: Any = None) -> Any:
        """The answer; None: there is no such thing."""
        last = ""
        for attempt in range(_TRIES):
            if attempt:
                self._sleep(_PAUSE_S * attempt)
            for url in self._options.urls:
                try:
                    return self._request(url.rstrip("/") + path, body)
                except _TryAgain as again:
                    last = str(again)
        raise SchemaRegistryError(
            f"{self.described} could not be asked for {path}: {last}",
            hint="see that the URL is right and reachable from driver and executors",
        )

    def _request(self, url: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if body is None else {**self._headers, "Content-Type": _CONTENT}
        request = urllib.request.Request(url, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as answer:
                content = answer.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                said = _message(error.read(1 << 16))
            if error.code in _NOT_FOUND and body is None:
                return None
            if error.code >= 500 or error.code == 429:
                raise _TryAgain(f"HTTP {error.code}: {said}") from error
            raise SchemaRegistryError(
                f"{self.described} refused {urlsplit(url).path}: HTTP {error.code}: {said}", hint=_cure(error.code)
            ) from error
        except (urllib.error.URLError, OSError) as error:
            raise _TryAgain(str(getattr(error, "reason", error))) from error
        if len(content) > _MOST_BYTES:
            raise SchemaRegistryError(f"{self.described} answered with more than {_MOST_BYTES >> 20} MB")
        try:
            return json.loads(content)
        except ValueError as error:
            raise SchemaRegistryError(f"{self.described} answered with something else than JSON: {error}") from error


class _TryAgain(Exception):
    """Another try, or another URL, may answer."""


def _authorization(options: RegistryOptions) -> dict[str, str]:
    if options.token is not None and options.user_info is not None:
        raise OptionError("a bearer token and a basic user are both given for the schema registry", hint="give one")
    if options.token is not None:
        return {"Authorization": f"Bearer {options.token}"}
    if options.user_info is not None:
        return {"Authorization": "Basic " + base64.b64encode(options.user_info.encode()).decode()}
    return {}


def _tls(options: RegistryOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca)
        if options.certificate is not None:
            context.load_cert_chain(options.certificate, options.key, options.key_password)
    except (OSError, ssl.SSLError) as error:
        raise OptionError(
            f"the certificates of the schema registry cannot be read: {error}",
            hint="schema.registry.ssl.ca.location, .certificate.location and .key.location name PEM files",
        ) from error
    return context


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _message(content: bytes) -> str:
    try:
        return str(json.loads(content)["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return content[:200].decode("utf-8", "replace") or "no reason given"


def _cure(status: int) -> str:
    if status in (401, 403):
        return "schema.registry.basic.auth.user.info is user:password, schema.registry.bearer.auth.token a token"
    return "its message says why"
