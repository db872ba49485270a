"""Schemas of a registry, with their ids, the subjects and versions that they are, and what they refer to: by the
records of its topic, and by its REST interface, as Confluent documents it."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlsplit

from kafkalog_spark.errors import OptionError, SchemaRegistryError
from kafkalog_spark.http_client import Answer, HttpClient
from kafkalog_spark.options import option, plain_text
from kafkalog_spark.typed.registry.contexts import DEFAULT_CONTEXT, QualifiedSubject

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"


@dataclass(frozen=True)
class Reference:
    """Schema that another one names, as `name` (Avro type, .proto file): a registered version of a subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class RegisteredSchema:
    """Schema of a registry. `kind`: AVRO, PROTOBUF or JSON; `guid`: its id of newer registries, in small letters."""

    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    subject: str = ""
    version: int = 0
    guid: str = ""

    @classmethod
    def of_json(cls, answer: Mapping[str, Any], id_: int | None = None) -> RegisteredSchema:
        """From a registry's answer, or its topic, which leave AVRO out. Raises KeyError, TypeError, ValueError."""
        references = tuple(
            Reference(str(reference["name"]), str(reference["subject"]), int(reference["version"]))
            for reference in answer.get("references") or ()
        )
        return cls(
            int(answer["id"]) if id_ is None else id_,
            str(answer.get("schemaType") or AVRO),
            str(answer["schema"]),
            references,
            str(answer.get("subject") or ""),
            int(answer.get("version") or 0),
            str(answer.get("guid") or "").lower(),
        )


# Schemas by the records of a registry's own topic, `_schemas`, which is a table: the last record of a key counts.
#
# Keys are JSON with a `keytype`. SCHEMA is one version of a subject (value null: deleted for good; `deleted`: for
# those who ask for the latest); DELETE_SUBJECT deletes all versions up to one; CONFIG, MODE, NOOP, CONTEXT and
# CLEAR_SUBJECT say nothing of schemas. What is deleted is found by its id all the same, as in a registry.

Record = tuple[bytes | None, bytes | None]


class SchemaRecords:
    """The schemas that some records leave. `described`: where these are from, for messages. `unused`: one text for each
    record that Confluent's registry skips (`KafkaStoreReaderThread.doWork`), with the reason."""

    def __init__(self, records: Iterable[Record], described: str) -> None:
        """Raises SchemaRegistryError if there are records and a registry wrote none of them."""
        self.described = described
        self.unused: list[str] = []
        self._versions: dict[str, dict[int, RegisteredSchema]] = {}
        """The schemas of each subject, by version."""
        self._deleted: set[tuple[str, int]] = set()
        self._ids: dict[tuple[str, int], dict[str, RegisteredSchema]] = {}
        """The schemas of each context and id, by subject."""
        count = 0
        for key, value in records:
            try:
                self._take(json.loads(_given(key)), None if value is None else json.loads(value))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                self.unused.append(f"record {count}: {type(error).__name__}: {error}")
            count += 1
        if self.unused and len(self.unused) == count:
            raise SchemaRegistryError(
                f"{described} has no record of a schema registry; {self.unused[0]}",
                hint="the topic of a registry has JSON keys with a keytype",
            )
        self._contexts = sorted({context for context, _ in self._ids} - {DEFAULT_CONTEXT})
        self._guids: dict[str, RegisteredSchema] = {}
        for subject in sorted(self._versions, key=QualifiedSubject.of):  # those of the default context come first
            for schema in self._versions[subject].values():
                if schema.guid:
                    self._guids.setdefault(schema.guid, schema)

    def _take(self, key: Any, value: Any) -> None:
        kind = key["keytype"]
        if kind == "SCHEMA":
            subject, version = str(QualifiedSubject.of(str(key["subject"]))), int(key["version"])
            if value is None:
                self._remove(subject, version)
                return
            schema = replace(RegisteredSchema.of_json(value), subject=subject, version=version)
            self._check_id(schema)
            self._remove(subject, version)
            self._versions.setdefault(subject, {})[version] = schema
            self._ids.setdefault(_context_and_id(schema), {})[subject] = schema
            if value.get("deleted"):
                self._deleted.add((subject, version))
        elif kind == "DELETE_SUBJECT" and value is not None:
            subject, last = str(QualifiedSubject.of(str(value["subject"]))), int(value["version"])
            self._deleted |= {(subject, version) for version in self._versions.get(subject, ()) if version <= last}

    def _check_id(self, schema: RegisteredSchema) -> None:
        """Raise ValueError if the id belongs to another schema: the first registration of an id in a context counts
        (`KafkaStoreMessageHandler.validateUpdate`)."""
        for known in self._ids.get(_context_and_id(schema), {}).values():
            if known.text != schema.text:
                raise ValueError(
                    f"version {schema.version} of {schema.subject} has id {schema.id}, which is version "
                    f"{known.version} of {known.subject} already"
                )

    def _remove(self, subject: str, version: int) -> None:
        self._deleted.discard((subject, version))
        schema = self._versions.get(subject, {}).pop(version, None)
        if schema is not None:
            holders = self._ids[_context_and_id(schema)]
            if holders.get(subject) is schema:
                del holders[subject]
            if not holders:
                del self._ids[_context_and_id(schema)]

    def by_id(self, id_: int, subject: str = "") -> RegisteredSchema | None:
        """The schema of an id, found as in Confluent's registry (`getSchemaKeyUsingContexts`).

        The subject's own schema comes first. Then follow, for a subject without a context, the schemas of its name in
        other contexts, and last those of other subjects in the subject's context.
        """
        wanted = QualifiedSubject.of(subject)
        others = self._contexts if wanted.name and wanted.context == DEFAULT_CONTEXT else []
        for context in (wanted.context, *others):
            found = self._ids.get((context, id_), {}).get(str(wanted._replace(context=context)))
            if found is not None:
                return found
        return next(iter(self._ids.get((wanted.context, id_), {}).values()), None)

    def by_guid(self, guid: str) -> RegisteredSchema | None:
        return self._guids.get(guid)

    def by_version(self, subject: str, version: int | None) -> RegisteredSchema | None:
        """version: None for the latest. A subject without a context is also looked for in the others if the default
        one does not have it, as in Confluent's registry (`getUsingContexts`)."""
        wanted = QualifiedSubject.of(subject)
        for context in (wanted.context, *(self._contexts if wanted.context == DEFAULT_CONTEXT else [])):
            found = self._version_of(str(wanted._replace(context=context)), version)
            if found is not None:
                return found
        return None

    def _version_of(self, subject: str, version: int | None) -> RegisteredSchema | None:
        schemas = self._versions.get(subject, {})
        if version is None:
            version = max((one for one in schemas if (subject, one) not in self._deleted), default=0)
        return schemas.get(version)


def _given(key: bytes | None) -> bytes:
    if key is None:
        raise ValueError("it has no key")
    return key


def _context_and_id(schema: RegisteredSchema) -> tuple[str, int]:
    return QualifiedSubject.of(schema.subject).context, schema.id


def listed_records(text: str, place: str) -> list[Record]:
    """The records of a file: a list of schemas as a registry answers `GET /schemas`, or one record of `_schemas` a
    line, {"key": ..., "value": ...}, or its key and value with a tab between them. Raises SchemaRegistryError."""
    try:
        if text.lstrip()[:1] == "[":
            keys = ("subject", "version")
            return [
                (_bytes({"keytype": "SCHEMA", **{key: listed[key] for key in keys}}), _bytes(listed))
                for listed in json.loads(text)
            ]
        records: list[Record] = []
        for line in filter(str.strip, text.splitlines()):
            if "\t" in line:
                key, _, value = line.partition("\t")
                records.append((key.encode(), None if value.strip() in ("", "null") else value.encode()))
            else:
                record = json.loads(line)
                value_json = record["value"]
                records.append((_bytes(record["key"]), None if value_json is None else _bytes(value_json)))
        return records
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SchemaRegistryError(
            f"{place} is no list of schemas: {type(error).__name__}: {error}",
            hint="it is what a registry answers to GET /schemas, or the records of its topic, one a line",
        ) from error


def _bytes(value: Any) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value)).encode()


# The REST interface: schemas by id, by GUID and by version of a subject.
#
# They are kept, a thousand at most: they never change. That there is none is not kept: its id may be the next one to be
# given. A request is tried on every URL, three times where there is no answer or a 5xx or 429; HttpClient says how long
# it may take, and that it goes nowhere else.

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


def _message(answer: Answer) -> str:
    try:
        return str(json.loads(answer.content)["message"])[:500]
    except (ValueError, KeyError, TypeError, RecursionError):
        return answer.content[:200].decode("utf-8", "replace") or answer.reason or "no reason given"
