"""Properties of remote storage (`rsm.config.*`): the location of segments, and how they are transformed.

`remote.log.storage.manager.class.name` names the plugin whose properties and layout are used. Without it, it is Aiven's
plugin with a local folder. `storage.backend.class` of Aiven's plugin names the kind of location.

| `storage.backend.class` ends in | location |
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
from kafkalog_spark.log.tiered.key_ring import NO_KEYS, KeyRing
from kafkalog_spark.log.tiered.object_keys import LOCAL_TIERED_ROOT, Layout
from kafkalog_spark.options import (
    OptionSpec,
    Parser,
    boolean,
    choice,
    option,
    parse_fields,
    plain_text,
    positive,
    specs_of,
    unknown_option,
)
from kafkalog_spark.store.paths import is_local, normalised, parse_path
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
"""Seconds for which a request is retried, while it blocks the reader's thread. Failed copies are retried later."""
CUSTOM_FIELDS = ("REMOTE_SIZE", "OBJECT_PREFIX", "OBJECT_KEY")


def _list(name: str, text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _endpoint(name: str, text: str) -> str:
    """Parse the URL of a store by the plugin's rules, without credentials: it is recorded and shown in errors."""
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
    """Parse bytes. -1, which is no limit in the plugin, is the default here."""
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
"""By backend: scheme, property of the bucket, and its other properties with their parsers and storage options."""
_OF_CONNECTION = {
    "AccountName": "storage.account_name", "AccountKey": "storage.account_key",
    "SharedAccessSignature": "storage.sas_key", "BlobEndpoint": "storage.endpoint",
}  # fmt: skip
"""Parts of `storage.azure.connection.string` with their storage options. Single properties override them."""
_KEY_FILE = "encryption.key.pairs.{}.private.key.file"
_RECORDED = re.compile(
    r"dir|key\.prefix|encryption\.key\.pairs|storage\.(backend\.class|root|s3\.bucket\.name|gcs\.bucket\.name|"
    r"azure\.container\.name|azure\.account\.name|(s3|gcs|azure)\.endpoint\.url|s3\.region|"
    r"s3\.path\.style\.access\.enabled)|" + re.escape(_KEY_FILE).replace(r"\{\}", ".+")
)
"""Properties of the location of segments. Only these are recorded in a log directory: all others may hold a secret, or
are needed by a writer only."""
_WITHOUT_MEANING = (
    "metrics.", "fetch.", "upload.", "segment.manifest.cache.", "segment.indexes.cache.", "key.prefix.mask",
    "storage.overwrite.enabled", "storage.aws.checksum.check.enabled", "storage.s3.multipart.upload.part.size",
    "storage.gcs.resumable.upload.chunk.size", "storage.azure.upload.block.size",
)  # fmt: skip
"""Properties of Aiven's plugin without effect here: caches and pools of its JVM, sizes of requests."""
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
    """Location of segments, and how they are written.

    Attributes:
        layout: AIVEN or LOCAL_TIERED.
        root: Absolute path or URL.
        chunk_size, chunk_cache_bytes, prefetch_bytes: Bytes.
        key_id: Key pair for new segments; None without encryption.
        recorded: Properties that may be recorded in a log directory, by full name (_RECORDED).
        store_properties: Full names of the given properties of a bucket.
    """

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
        """Local folder that the properties name, or root of a bucket. LocalTieredStorage's root is below it."""
        return os.path.dirname(self.root) if self.layout is Layout.LOCAL_TIERED else self.root

    @property
    def location(self) -> tuple[Layout, str, str]:
        """Location of segments, equal for options that find the same objects."""
        return self.layout, self.root, self.key_prefix

    def check_account(self) -> None:
        """Raise OptionError if the root is a container of Azure without an account."""
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
        """Parse a broker's properties, by Kafka's full names. Properties of other things are ignored.

        Files with private keys are read when a segment needs them.

        Args:
            default_root: Folder to use if the properties name none.

        Raises:
            OptionError: With the name of the property.
        """
        prefix = properties.get(PREFIX_NAME, DEFAULT_PREFIX)
        given = {name.removeprefix(prefix): text for name, text in properties.items() if name.startswith(prefix)}
        manager = properties.get(CLASS_NAME, AIVEN_CLASS)
        if manager == LOCAL_TIERED_CLASS:
            _refuse_unknown(given, ("dir", *_OF_LOCAL_TIERED), (), prefix)
            root = os.path.join(_folder(given.get("dir", default_root), prefix + "dir"), LOCAL_TIERED_ROOT)
            made = cls(Layout.LOCAL_TIERED, root, **parse_fields(cls, {}))
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
        """Parse the content of REMOTE_STORAGE_FILE; properties that `recorded_file` does not write are ignored.

        Raises OptionError as `of`.
        """
        return cls.of(_recorded(properties, properties.get(PREFIX_NAME, DEFAULT_PREFIX)))

    def recorded_file(self, date: datetime) -> bytes:
        """Return the content of REMOTE_STORAGE_FILE, for `of_recorded`: the location of segments, without secrets."""
        return format_properties(dict(self.recorded), date)


def _recorded(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return a broker's properties of the location of segments, by full name."""
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
    values = parse_fields(RemoteStorageOptions, given, prefix)
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
    """Return the private keys, and the id of the pair for new segments. Public keys are derived from them."""
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
