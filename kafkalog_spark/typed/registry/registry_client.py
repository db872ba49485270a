"""Client of a registry's REST interface: schemas by ID, by GUID, and by version of a subject.

Schemas are cached, because they never change. A missing schema is not cached, because its ID may be the next one that
the registry assigns. A request is sent to one URL after the other until one responds. If each fails, or responds with
5xx or 429, all are tried again. HttpClient limits the duration of a request and refuses redirects to other hosts.
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

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_TRIES, _PAUSE_S = 3, 0.5  # the pause before a retry is _PAUSE_S times the number of tries before it
_MAX_BYTES = 16 << 20
_MAX_CACHED = 1000
_NOT_FOUND = (404, 422)  # 422: the ID, subject or version is invalid


def _parse_urls(name: str, text: str) -> tuple[str, ...]:
    return tuple(url.strip() for url in text.split(",") if url.strip())


@dataclass(frozen=True)
class RegistryOptions:
    """Parsed options of the connection to a registry. The repr does not contain secrets."""

    urls: tuple[str, ...] = option("schema.registry.url", _parse_urls)
    user_info: str | None = option("schema.registry.basic.auth.user.info", plain_text, secret=True)
    token: str | None = option("schema.registry.bearer.auth.token", plain_text, secret=True)
    ca: str | None = option("schema.registry.ssl.ca.location", plain_text)
    certificate: str | None = option("schema.registry.ssl.certificate.location", plain_text)
    key: str | None = option("schema.registry.ssl.key.location", plain_text)
    key_password: str | None = option("schema.registry.ssl.key.password", plain_text, secret=True)


class RegistryClient:
    """Client of one registry, which may have several URLs.

    Attributes:
        described: Name of the registry in messages.
    """

    def __init__(self, options: RegistryOptions, sleep: Callable[[float], None] = time.sleep) -> None:
        """Create a client, without sending a request.

        Args:
            options: URLs, credentials and certificates.
            sleep: Wait a number of seconds, before a retry.

        Raises:
            OptionError: If a URL is invalid or a certificate cannot be read.
        """
        for url in options.urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
                raise OptionError(f"option 'schema.registry.url' has '{url}': expected http:// or https:// and a host")
        self._options, self._sleep = options, sleep
        tls = _tls(options) if any(url.startswith("https") for url in options.urls) else None
        headers = {"Accept": f"{_CONTENT_TYPE}, application/json", **_authorization(options)}
        self._http = HttpClient(_MAX_BYTES, headers, tls)
        self._cache: dict[str, RegisteredSchema] = {}
        self.described = f"the schema registry {', '.join(map(_without_user, options.urls))}"

    def by_id(self, id_: int, subject: str = "") -> RegisteredSchema | None:
        """Return the schema with an ID in the context of a subject, like `SchemaRecords.by_id`.

        Raises:
            SchemaRegistryError: If the registry does not answer.
        """
        path, qualified = f"/schemas/ids/{id_}", QualifiedSubject.of(subject)
        schema = self._schema(f"{path}?subject={quote(subject, safe='')}" if subject else path, id_, subject)
        if schema is None and qualified.name and qualified.context != DEFAULT_CONTEXT:
            return self.by_id(id_, str(qualified._replace(name="")))
        return schema

    def by_guid(self, guid: str) -> RegisteredSchema | None:
        """Return the schema with a GUID. Raises SchemaRegistryError if the registry does not answer."""
        return self._schema(f"/schemas/guids/{quote(guid, safe='')}", 0)

    def by_version(self, subject: str, version: int | None) -> RegisteredSchema | None:
        """Return a version of a subject. Versions that are not permanently deleted are found, too.

        Args:
            subject: The subject.
            version: The version; None for the latest.

        Raises:
            SchemaRegistryError: If the registry does not answer.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions/"
        if version is not None:
            return self._schema(f"{path}{version}?deleted=true", None, subject)
        path += "latest"
        self._cache.pop(path, None)  # the latest version changes
        return self._schema(path, None, subject)

    def register(self, subject: str, schema: str, schema_type: str = AVRO) -> int:
        """Register a schema, unless it exists already, and return its ID.

        Args:
            subject: The subject.
            schema: Text of the schema.
            schema_type: AVRO, PROTOBUF or JSON.

        Raises:
            SchemaRegistryError: If the registry does not answer or does not accept the schema.
        """
        body = {"schema": schema, **({} if schema_type == AVRO else {"schemaType": schema_type})}
        response = self._json(f"/subjects/{quote(subject, safe='')}/versions", body)
        if not isinstance(response, dict) or not isinstance(response.get("id"), int):
            raise SchemaRegistryError(f"{self.described} answered the registration of {subject} without an id")
        return int(response["id"])

    def _schema(self, path: str, id_: int | None, subject: str = "") -> RegisteredSchema | None:
        """Return the schema at a path, from the cache if possible.

        Args:
            path: Path of the request.
            id_: ID of the schema; None if the response contains it.
            subject: Subject of the schema if the response does not contain one.
        """
        if path in self._cache:
            return self._cache[path]
        response = self._json(path)
        if response is None:
            return None
        try:
            schema = RegisteredSchema.of_json({"subject": subject, **response}, id_)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchemaRegistryError(f"{self.described} answered {path} without a valid schema: {error}") from error
        self._cache[path] = schema
        if len(self._cache) > _MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        return schema

    def _json(self, path: str, body: Any = None) -> Any:
        """Send a request, with retries; return the parsed response, or None if there is no such schema."""
        last_error = ""
        for attempt in range(_TRIES):
            if attempt:
                self._sleep(_PAUSE_S * attempt)
            for url in self._options.urls:
                try:
                    return self._request(url.rstrip("/") + path, body)
                except _Retriable as error:
                    last_error = str(error)
        raise SchemaRegistryError(
            f"{self.described} failed to answer {path}: {last_error}",
            hint="check that the URL is correct and reachable from the driver and the executors",
        )

    def _request(self, url: str, body: Any) -> Any:
        try:
            content = () if body is None else (json.dumps(body).encode(), _CONTENT_TYPE)
            response = self._http.send(url, *content)
        except OSError as error:
            raise _Retriable(str(error)) from error
        except ValueError as error:
            raise SchemaRegistryError(f"the response of {_without_user(url)} is not accepted: {error}") from error
        status = response.status
        if status in _NOT_FOUND and body is None:
            return None
        if status >= 500 or status == 429:
            raise _Retriable(f"HTTP {status}: {_message(response)}")
        if not 200 <= status < 300:
            raise SchemaRegistryError(
                f"{self.described} refused {urlsplit(url).path}: HTTP {status}: {_message(response)}",
                hint="schema.registry.basic.auth.user.info is user:password, schema.registry.bearer.auth.token a token"
                if status in (401, 403)
                else "its message says why",
            )
        try:
            return json.loads(response.content)
        except (ValueError, RecursionError) as error:
            raise SchemaRegistryError(f"{self.described} answered with a text that is not JSON: {error}") from error


class _Retriable(Exception):
    """A request failed that may succeed with another URL or later."""


def _authorization(options: RegistryOptions) -> dict[str, str]:
    if options.token is not None and options.user_info is not None:
        raise OptionError("a bearer token and a basic user are both given for the schema registry", hint="give one")
    if options.token is not None:
        if not (options.token.isascii() and options.token.isprintable()):
            raise OptionError(
                "option 'schema.registry.bearer.auth.token' has characters that a token cannot have"
            )  # without the token
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


def _message(response: Response) -> str:
    try:
        return str(json.loads(response.content)["message"])[:500]
    except (ValueError, KeyError, TypeError, RecursionError):
        return response.content[:200].decode("utf-8", "replace") or response.reason or "no reason given"
