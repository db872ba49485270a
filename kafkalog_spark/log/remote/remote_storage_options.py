"""Properties of remote storage (`rsm.config.*`) to where segments lie and how they are transformed. Parsed once.

The names are those of the plugin whose layout is written: `remote.log.storage.manager.class.name` says which. With
Aiven's `storage.backend.class` says what kind of place; without either it is Aiven's layout in a local folder.

| `storage.backend.class` ends in | place |
|---|---|
| `FileSystemStorage` (default) | `storage.root`, a local folder |
| `S3Storage` | `storage.s3.bucket.name`, with `storage.aws.*` or the keys that the machine has |
| `GcsStorage` | `storage.gcs.bucket.name` |
| `AzureBlobStorage` | `storage.azure.container.name` of `storage.azure.account.name` |
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlsplit

from kafkalog_spark.errors import OptionError
from kafkalog_spark.format.layout import MAX_INT64
from kafkalog_spark.format.meta_properties import format_properties
from kafkalog_spark.log.tiered.remote_names import LOCAL_TIERED_ROOT, Layout
from kafkalog_spark.log.tiered.tier_options import NO_KEYS, KeyRing
from kafkalog_spark.options import (
    OptionSpec,
    Parser,
    boolean,
    choice,
    option,
    parsed_fields,
    plain_text,
    positive,
    specs_of,
    unknown_option,
)
from kafkalog_spark.store.interface import is_local, normalised, parse_path
from kafkalog_spark.store.storage_options import StorageOptions

CLASS_NAME = "remote.log.storage.manager.class.name"
PREFIX_NAME = "remote.log.storage.manager.impl.prefix"
DEFAULT_PREFIX = "rsm.config."

AIVEN_CLASS = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
LOCAL_TIERED_CLASS = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
_BACKENDS = "io.aiven.kafka.tieredstorage.storage."
_FOLDER, _S3, _GCS, _AZURE = (
    f"{_BACKENDS}{name}"
    for name in ("filesystem.FileSystemStorage", "s3.S3Storage", "gcs.GcsStorage", "azure.AzureBlobStorage")
)

CHUNK_SIZE = 4 << 20  # bytes: what the plugin's documentation has
_MOST_OF_CHUNK_SIZE = (1 << 30) - 1
_CHUNK_CACHE = 16 << 20
"""Bytes: four chunks, of which two are fetched at a time."""
_PREFETCH = 8 << 20
"""Bytes read ahead of a consumer: the two chunks that are fetched at a time hide the latency of an object store."""
_CALL_TIMEOUT_S = 30.0
"""Seconds for which a request is tried again. A reader's thread is held for as long; a copy is tried again by
whoever copies."""
CUSTOM_FIELDS = ("REMOTE_SIZE", "OBJECT_PREFIX", "OBJECT_KEY")


def _list(name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _endpoint(name: str, text: str) -> str:
    """URL of a store, by the plugin's rules, without credentials: it is recorded, and shown in errors."""
    url = text.strip()
    if re.search(r"[@?#]", url):
        raise OptionError(
            f"{name} has a user, a query or a fragment in it",
            hint="give the URL alone, and credentials by their own properties or the environment",
        )
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or " " in url:
        raise OptionError(f"{name} is not a URL", hint="http://HOST:PORT or https://HOST")
    return url


def _custom_fields(name: str, text: str) -> frozenset[str]:
    return frozenset(choice(*CUSTOM_FIELDS)(name, part) for part in _list(name, text))


def _cache_bytes(name: str, text: str) -> int:
    """Bytes; -1 is no bound to the plugin, and its default here."""
    return _CHUNK_CACHE if text.strip() == "-1" else positive(MAX_INT64)(name, text)


def _json_object(name: str, text: str) -> str:
    try:
        valid = isinstance(json.loads(text), dict)
    except ValueError:
        valid = False
    if not valid:
        raise OptionError(f"{name} is not a JSON object", hint="the content of the key file of a service account")
    return text


_milliseconds = positive(MAX_INT64)
_BUCKETS: dict[str, tuple[str, str, dict[str, tuple[Parser, str]]]] = {
    _S3: ("s3", "storage.s3.bucket.name", {
        "storage.aws.access.key.id": (plain_text, "fs.s3a.access.key"),
        "storage.aws.secret.access.key": (plain_text, "fs.s3a.secret.key"),
        "storage.s3.endpoint.url": (_endpoint, "fs.s3a.endpoint"),
        "storage.s3.region": (plain_text, "fs.s3a.endpoint.region"),
        "storage.s3.path.style.access.enabled": (boolean, "fs.s3a.path.style.access"),
        "storage.s3.api.call.timeout": (lambda *given: str(_milliseconds(*given) / 1000), "storage.retry_timeout"),
        "storage.s3.api.call.attempt.timeout": (lambda *given: f"{_milliseconds(*given)}ms", "storage.timeout"),
    }),
    _GCS: ("gs", "storage.gcs.bucket.name", {
        "storage.gcs.credentials.json": (_json_object, "storage.service_account_key"),
        "storage.gcs.credentials.path": (plain_text, "storage.application_credentials"),
        "storage.gcs.endpoint.url": (_endpoint, "storage.base_url"),
        "storage.gcs.credentials.default": (boolean, ""),
    }),
    _AZURE: ("az", "storage.azure.container.name", {
        "storage.azure.connection.string": (plain_text, ""),
        "storage.azure.account.name": (plain_text, "storage.account_name"),
        "storage.azure.account.key": (plain_text, "storage.account_key"),
        "storage.azure.sas.token": (plain_text, "storage.sas_key"),
        "storage.azure.endpoint.url": (_endpoint, "storage.endpoint"),
    }),
}  # fmt: skip
"""Scheme, property of the bucket, and the others: their parsers, and the options of StorageOptions that they become."""
_OF_CONNECTION = {
    "AccountName": "storage.account_name", "AccountKey": "storage.account_key",
    "SharedAccessSignature": "storage.sas_key", "BlobEndpoint": "storage.endpoint",
}  # fmt: skip
"""The same of the parts of `storage.azure.connection.string`, which yield to properties of their own."""
_KEY_FILE = "encryption.key.pairs.{}.private.key.file"
_RECORDED = re.compile(
    r"dir|key\.prefix|encryption\.key\.pairs|storage\.(backend\.class|root|s3\.bucket\.name|gcs\.bucket\.name|"
    r"azure\.container\.name|azure\.account\.name|(s3|gcs|azure)\.endpoint\.url|s3\.region|"
    r"s3\.path\.style\.access\.enabled)|" + re.escape(_KEY_FILE).replace(r"\{\}", ".+")
)
"""Properties that say where segments are. Only these are written into a log directory, and read from one: all others
may hold a secret, or are needed by a writer only."""
_WITHOUT_MEANING = (
    "metrics.", "fetch.", "upload.", "segment.manifest.cache.", "segment.indexes.cache.", "key.prefix.mask",
    "storage.overwrite.enabled", "storage.aws.checksum.check.enabled", "storage.s3.multipart.upload.part.size",
    "storage.gcs.resumable.upload.chunk.size", "storage.azure.upload.block.size",
)  # fmt: skip
"""What Aiven's plugin has beyond these: caches and pools of its JVM, how requests are cut."""
_ENCRYPTION = (
    OptionSpec("encryption.enabled", boolean, "false"),
    OptionSpec("encryption.key.pair.id", plain_text),
    OptionSpec("encryption.key.pairs", _list, ""),
)
_PAGE = "docs/tiered_storage.md lists"
_NO_STORAGE = StorageOptions()
_OF_LOCAL_TIERED = ("delete.on.close", "delete.enable", "transferer.class", "broker.id", "storage.wait.interval.ms")


@dataclass(frozen=True)
class RemoteStorageOptions:
    """Where segments lie (layout AIVEN or LOCAL_TIERED; root: an absolute path or a URL), and how they are written.
    key_id: the key pair for new segments, None without encryption. chunk_size, chunk_cache_bytes, prefetch_bytes:
    bytes. recorded: the properties that may be written down, by full name (_RECORDED). store_properties: full
    names of the given properties of a bucket."""

    layout: Layout
    root: str
    key_prefix: str = option("key.prefix", plain_text, "")
    chunk_size: int = option("chunk.size", positive(_MOST_OF_CHUNK_SIZE), str(CHUNK_SIZE))
    compress: bool = option("compression.enabled", boolean, "false")
    compress_by_first_batch: bool = option("compression.heuristic.enabled", boolean, "false")
    custom_fields: frozenset[str] = option("custom.metadata.fields.include", _custom_fields, "")
    chunk_cache_bytes: int = option("fetch.chunk.cache.size", _cache_bytes, str(_CHUNK_CACHE))
    prefetch_bytes: int = option("fetch.chunk.cache.prefetch.max.size", positive(MAX_INT64), str(_PREFETCH))
    storage: StorageOptions = _NO_STORAGE
    key_id: str | None = None
    keys: KeyRing = NO_KEYS
    recorded: tuple[tuple[str, str], ...] = ()
    store_properties: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The local folder that the properties name, or the root of a bucket; LocalTieredStorage's root is below it."""
        return os.path.dirname(self.root) if self.layout is Layout.LOCAL_TIERED else self.root

    @property
    def location(self) -> tuple[Layout, str, str]:
        """Where segments are: equal for options that find the same objects."""
        return self.layout, self.root, self.key_prefix

    def check_account(self) -> None:
        """Raise OptionError for a container of Azure without an account."""
        accounts = ("storage.account_name", "storage.use_emulator")
        is_azure = parse_path(self.root).scheme == "az"
        if is_azure and not (
            any(name in accounts for name, _ in self.storage.values) or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
        ):
            raise OptionError(
                f"nothing names the account of {self.root}",
                hint="give storage.azure.account.name, or storage.azure.connection.string with AccountName",
            )

    @classmethod
    def of(cls, properties: Mapping[str, str], default_root: str | None = None) -> RemoteStorageOptions:
        """Options by a broker's properties, in Kafka's full names; those not of remote storage are left alone.
        default_root: the folder where none is named. Raises OptionError, which names the property; a file with a
        private key is read when a segment needs it."""
        prefix = properties.get(PREFIX_NAME, DEFAULT_PREFIX)
        given = {name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)}
        manager = properties.get(CLASS_NAME, AIVEN_CLASS)
        if manager == LOCAL_TIERED_CLASS:
            _refuse_unknown(given, ("dir", *_OF_LOCAL_TIERED), (), prefix)
            root = os.path.join(_folder(given.get("dir", default_root), prefix + "dir"), LOCAL_TIERED_ROOT)
            made = cls(Layout.LOCAL_TIERED, root, **parsed_fields(cls, {}))
        elif manager == AIVEN_CLASS:
            made = _aiven(given, prefix, default_root)
        else:
            raise OptionError(
                f"{CLASS_NAME} is {manager[:100]}, which runs in a JVM only",
                hint=f"{AIVEN_CLASS} and {LOCAL_TIERED_CLASS} are written here",
            )
        recorded = _recorded(properties, prefix)
        if made.layout is Layout.LOCAL_TIERED:
            recorded[prefix + "dir"] = made.folder
        elif is_local(made.root):
            recorded[prefix + "storage.root"] = made.root
        return replace(made, recorded=tuple(sorted(recorded.items())))

    @classmethod
    def of_recorded(cls, properties: Mapping[str, str]) -> RemoteStorageOptions:
        """Options by the content of REMOTE_STORAGE_FILE, of which only the properties that `recorded_file` writes
        count. Raises OptionError as `of`."""
        return cls.of(_recorded(properties, properties.get(PREFIX_NAME, DEFAULT_PREFIX)))

    def recorded_file(self, date: datetime) -> bytes:
        """Content of REMOTE_STORAGE_FILE: where the segments are, without secrets, for `of_recorded`."""
        return format_properties(dict(self.recorded), date)


def _recorded(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Those of a broker's properties that say where segments are, by full name."""
    return {
        name: text
        for name, text in properties.items()
        if name in (CLASS_NAME, PREFIX_NAME)
        or (name.startswith(prefix) and _RECORDED.fullmatch(name.removeprefix(prefix)))
    }


def _aiven(given: Mapping[str, str], prefix: str, default_root: str | None) -> RemoteStorageOptions:
    backend = given.get("storage.backend.class", _FOLDER)
    if backend != _FOLDER and backend not in _BUCKETS:
        raise OptionError(
            f"{prefix}storage.backend.class is {backend[:100]}", hint=f"known are {', '.join((_FOLDER, *_BUCKETS))}"
        )
    scheme, bucket, others = _BUCKETS.get(backend, ("", "storage.root", {}))
    specs = (*specs_of(RemoteStorageOptions), *_ENCRYPTION)
    names = ["storage.backend.class", *(spec.name for spec in specs), bucket, *others]
    _refuse_unknown(given, names, ("encryption.key.pairs.", *_WITHOUT_MEANING), prefix)
    if backend == _FOLDER:
        root = _folder(given.get("storage.root", default_root), prefix + "storage.root")
        storage = _NO_STORAGE
    else:
        if not given.get(bucket):
            raise OptionError(f"{prefix}{bucket} is missing")
        connection = (part.partition("=")[::2] for part in given.get("storage.azure.connection.string", "").split(";"))
        said = {_OF_CONNECTION[name]: text for name, text in connection if name in _OF_CONNECTION and text}
        said["storage.retry_timeout"] = str(_CALL_TIMEOUT_S)
        for name, (parse, option_name) in others.items():
            text = str(parse(prefix + name, given[name])) if name in given else ""
            if text and option_name:
                said[option_name] = text
        root, storage = f"{scheme}://{given[bucket]}", StorageOptions.of(said)
    values = parsed_fields(RemoteStorageOptions, given, prefix)
    parts = values["key_prefix"].split("/")
    if any(part in (".", "..") for part in parts) or "" in parts[:-1]:
        raise OptionError(
            f"{prefix}key.prefix is {values['key_prefix'][:100]!r}", hint="names between slashes, none at its start"
        )
    keys, key_id = _key_pairs(given, prefix)
    used = tuple(prefix + name for name in given if name in others)
    return RemoteStorageOptions(
        Layout.AIVEN, root, **values, storage=storage, key_id=key_id, keys=keys, store_properties=used
    )


def _refuse_unknown(
    given: Mapping[str, str], names: tuple[str, ...] | list[str], beginnings: tuple[str, ...], prefix: str
) -> None:
    for name in given:
        if name not in names and not name.startswith(beginnings):
            raise unknown_option(prefix + name, [prefix + known for known in names], {}, _PAGE)


def _key_pairs(given: Mapping[str, str], prefix: str) -> tuple[KeyRing, str | None]:
    """The private keys, and the id of the pair for new segments. The public key is the private one's."""
    is_enabled, key_id, ids = (spec.value(given.get(spec.name), prefix) for spec in _ENCRYPTION)
    name = _KEY_FILE
    files = {pair: given.get(name.format(pair)) for pair in ids}
    missing = [pair for pair, file in files.items() if not file]
    if missing:
        raise OptionError(
            f"{prefix}encryption.key.pairs names {missing[0]!r}, without {prefix}{name.format(missing[0])}"
        )
    for pair, file in files.items():
        if file and ("\n" in file or "-----" in file):
            raise OptionError(
                f"{prefix}{name.format(pair)} holds a key", hint="write the key to a file, and give the file's path"
            )
    keys = KeyRing({pair: file for pair, file in files.items() if file}, prefix + name)
    if not is_enabled:
        return keys, None
    if key_id not in files:
        raise OptionError(
            f"{prefix}encryption.key.pair.id is {key_id!r}, which is none of {prefix}encryption.key.pairs: "
            f"{', '.join(ids) or 'none'}"
        )
    return keys, key_id


def _folder(path: str | None, name: str) -> str:
    if not path:
        raise OptionError(f"{name} is missing", hint="the folder that segments are copied to")
    return normalised(path)
