"""Client of a registry's REST interface: schemas by ID, by GUID, and by version of a subject.

Up to a thousand schemas are cached, because they never change. A missing schema is not cached, because its ID may be
the next one that the registry assigns. A request is sent to each URL, up to three times if there is no response or a
5xx or 429; HttpClient limits its duration and refuses redirects to other hosts.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.http_client import HttpClient, Response
from kafkalog_spark.options import option, plain_text
from kafkalog_spark.typed.registry.contexts import DEFAULT_CONTEXT, QualifiedSubject
from kafkalog_spark.typed.registry.schemas import AVRO, RegisteredSchema

_CONTENT = "application/vnd.schemaregistry.v1+json"
_TRIES, _PAUSE_S = 3, 0.5
_MOST_BYTES = 16 << 20
_KEPT = 1000
_NOT_FOUND = (404, 422)  # 422: such an id, subject or version cannot be


def _urls(name: str, text: str) -> tuple[str, ...]:
    return tuple(url.strip() for url in text.split(",") if url.strip())


@dataclass(frozen=True)
class RegistryOptions:
    """How a registry is reached. Secrets are not shown."""

    urls: tuple[str, ...] = option("schema.registry.url", _urls)
    user_info: str | None = option("schema.registry.basic.auth.user.info", plain_text, secret=True)
    token: str | None = option("schema.registry.bearer.auth.token", plain_text, secret=True)
    ca: str | None = option("schema.registry.ssl.ca.location", plain_text)
    certificate: str | None = option("schema.registry.ssl.certificate.location", plain_text)
    key: str | None = option("schema.registry.ssl.key.location", plain_text)
    key_password: str | None = option("schema.registry.ssl.key.password", plain_text, secret=True)


class RegistryClient:
    """Asks a registry. sleep: how it waits before another try."""

    def __init__(self, options: RegistryOptions, sleep: Callable[[float], None] = time.sleep) -> None:
        """Raises OptionError for a URL or a certificate that cannot be used."""
        for url in options.urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
                raise OptionError(f"option 'schema.registry.url' has '{url}': expected http:// or https:// and a host")
        self._options, self._sleep = options, sleep
        tls = _tls(options) if any(url.startswith("https") for url in options.urls) else None
        headers = {"Accept": f"{_CONTENT}, application/json", **_authorization(options)}
        self._http = HttpClient(_MOST_BYTES, headers, tls)
        self._kept: dict[str, RegisteredSchema] = {}
        self.described = f"the schema registry {', '.join(map(_without_user, options.urls))}"

    def by_id(self, id_: int, subject: str = "") -> RegisteredSchema | None:
        """The schema of an id in the context of a subject, like `SchemaRecords.by_id`."""
        path, wanted = f"/schemas/ids/{id_}", QualifiedSubject.of(subject)
        found = self._schema(f"{path}?subject={quote(subject, safe='')}" if subject else path, id_, subject)
        if found is None and wanted.name and wanted.context != DEFAULT_CONTEXT:
            return self.by_id(id_, str(wanted._replace(name="")))
        return found

    def by_guid(self, guid: str) -> RegisteredSchema | None:
        return self._schema(f"/schemas/guids/{quote(guid, safe='')}", 0)

    def by_version(self, subject: str, version: int | None) -> RegisteredSchema | None:
        """version: None for the latest. A version that is deleted, but not permanently, is found too."""
        path = f"/subjects/{quote(subject, safe='')}/versions/"
        if version is not None:
            return self._schema(f"{path}{version}?deleted=true", None, subject)
        path += "latest"
        self._kept.pop(path, None)  # the latest is another one tomorrow
        return self._schema(path, None, subject)

    def register(self, subject: str, schema: str, kind: str = AVRO) -> int:
        """Register a schema, unless it is there; its id. Raises SchemaRegistryError if incompatible, or not allowed."""
        body = {"schema": schema, **({} if kind == AVRO else {"schemaType": kind})}
        answer = self._json(f"/subjects/{quote(subject, safe='')}/versions", body)
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), int):
            raise SchemaRegistryError(f"{self.described} answered the registration of {subject} without an id")
        return int(answer["id"])

    def _schema(self, path: str, id_: int | None, subject: str = "") -> RegisteredSchema | None:
        """subject: the subject of the request, for an answer that does not name one."""
        if path in self._kept:
            return self._kept[path]
        answer = self._json(path)
        if answer is None:
            return None
        try:
            schema = RegisteredSchema.of_json({"subject": subject, **answer}, id_)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchemaRegistryError(f"{self.described} answered {path} with no schema: {error}") from error
        self._kept[path] = schema
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return schema

    def _json(self, path: str, body: Any = None) -> Any:
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
        try:
            sent = () if body is None else (json.dumps(body).encode(), _CONTENT)
            answer = self._http.send(url, *sent)
        except OSError as error:
            raise _TryAgain(str(error)) from error
        except ValueError as error:
            raise SchemaRegistryError(f"the answer of {_without_user(url)} is not taken: {error}") from error
        status = answer.status
        if status in _NOT_FOUND and body is None:
            return None
        if status >= 500 or status == 429:
            raise _TryAgain(f"HTTP {status}: {_message(answer)}")
        if not 200 <= status < 300:
            raise SchemaRegistryError(
                f"{self.described} refused {urlsplit(url).path}: HTTP {status}: {_message(answer)}",
                hint="schema.registry.basic.auth.user.info is user:password, schema.registry.bearer.auth.token a token"
                if status in (401, 403)
                else "its message says why",
            )
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError) as error:
            raise SchemaRegistryError(f"{self.described} answered with something else than JSON: {error}") from error


class _TryAgain(Exception):
    """Another try, or another URL, may answer."""


def _authorization(options: RegistryOptions) -> dict[str, str]:
    if options.token is not None and options.user_info is not None:
        raise OptionError("a bearer token and a basic user are both given for the schema registry", hint="give one")
    if options.token is not None:
        if not (options.token.isascii() and options.token.isprintable()):
            raise OptionError("option 'schema.registry.bearer.auth.token' has what no token has")  # and is not shown
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


def _message(answer: Response) -> str:
    try:
        return str(json.loads(answer.content)["message"])[:500]
    except (ValueError, KeyError, TypeError, RecursionError):
        return answer.content[:200].decode("utf-8", "replace") or answer.reason or "no reason given"
