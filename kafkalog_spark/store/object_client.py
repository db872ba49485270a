"""Client of a bucket: requests with retries, their counts, and what is said of their failures.

Failures become OSErrors with a plain sentence. The library's own texts are never shown: they hold what the server sent
back, which for a wrong signature includes the key's id and what was signed.

The library (obstore) is imported when the first request is made. Clients are shared by all stores of a process that
are equal, so that tasks of one worker go on with open connections.
"""

from __future__ import annotations

import errno
import os
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from kafkalog_spark.errors import OptionError, install_hint
from kafkalog_spark.store.paths import AZURE_SCHEMES, GCS_SCHEMES, S3_SCHEMES
from kafkalog_spark.store.storage_options import (
    AZURE_NAMES,
    GCS_NAMES,
    ClientSettings,
    RetryPolicy,
    StorageOptions,
)

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*([A-Za-z0-9.]+)\s*</Code>|\\?\"code\\?\":\s*\\?\"([A-Za-z0-9.]+)\\?\"")
_KIND = re.compile(r"kind: (Connect|Request|Timeout|Interrupted|Decode|Unknown)\b")


@dataclass(frozen=True)
class Failure:
    """Failed try of a request. errno: of the OSError it becomes. transient: trying again may help. answered: a server
    did answer, so the endpoint is not wrong."""

    errno: int
    sentence: str
    transient: bool = False
    answered: bool = True

    def error(self, path: str, tries: int = 1) -> OSError:
        """The OSError (of errno's own class: PermissionError, FileNotFoundError, ...) with the sentence as strerror."""
        said = f" ({tries} tries)" if tries > 1 else ""
        return OSError(self.errno, f"{self.sentence}{said}", path)


Words = dict[str, str]


def words_of(bucket: str, endpoint: str = "", vendor: str = "s3") -> Words:
    """Words that fill in the sentences below. endpoint: host and port, as they may be shown; '' for the vendor's."""
    keys, region, allowed = _ADVICE[vendor]
    return {
        "bucket": bucket, "place": endpoint or "the store", "keys": keys, "region": region, "allowed": allowed,
    }  # fmt: skip


_ADVICE = {
    "s3": (
        "give fs.s3a.access.key and fs.s3a.secret.key, or set the environment or profile that the workers see",
        "give it as fs.s3a.endpoint.region",
        "s3:ListBucket and s3:GetObject",
    ),
    "gs": (
        "give storage.service_account or storage.application_credentials, a path that the workers can read",
        "look at storage.base_url",
        "storage.objects.list and storage.objects.get",
    ),
    "abfss": (
        "give storage.account_key, storage.sas_key, or storage.client_id with .client_secret and .tenant_id",
        "look at storage.endpoint",
        "the role Storage Blob Data Reader",
    ),
}
"""By the vendor's scheme: how to give credentials, the region, and which permissions reading needs."""
_NONE = "there is no such object"
_REPLACED = "the object was replaced since it was listed"
_CANNOT = "{place} cannot do that"
_REGION = "the bucket {bucket} lies in another region: {region}"
_UNKNOWN_KEY = "{place} does not know the access key: {keys}"
_NO_CONTAINER = "there is no container {bucket} at {place}: look at its name and the account's"
_ACCOUNT_KEY = "{place} does not take the account's key or token: look at storage.account_key and storage.sas_key"
_HEADER = "the bucket {bucket} lies in another region, or the access key is cut short: {region}"
_DENIED = "access to {bucket} is denied: the credentials that were found do not allow it (reading needs {allowed})"
_BAD_REQUEST = "{place} does not understand the request: look at the region ({region}) and the session token"
_UNREACHABLE = "{place} cannot be reached: look at the endpoint, the region and the network"
_STRANGE_KEY = (
    "a key here has an empty name between two slashes, a `.` or a control character in it, which cannot be read: "
    "rename that object"
)

_BY_CODE: dict[str, tuple[int, str]] = {
    "NoSuchKey": (errno.ENOENT, _NONE),
    "BlobNotFound": (errno.ENOENT, _NONE),
    "NoSuchBucket": (errno.ENOENT, "there is no bucket {bucket} at {place}: look at its name, and at the endpoint"),
    "ContainerNotFound": (errno.ENOENT, _NO_CONTAINER),
    "InvalidBucketName": (errno.EINVAL, "{bucket} cannot be the name of a bucket"),
    "AccessDenied": (errno.EACCES, _DENIED),
    "InvalidAccessKeyId": (errno.EACCES, _UNKNOWN_KEY),
    "XAdminUserNotFound": (errno.EACCES, _UNKNOWN_KEY),  # versitygw's, with status 404
    "SignatureDoesNotMatch": (errno.EACCES, "the secret key does not belong to the access key: {keys}"),
    "AuthenticationFailed": (errno.EACCES, _ACCOUNT_KEY),
    "ExpiredToken": (errno.EACCES, "the session token has expired: give a new one as fs.s3a.session.token"),
    "InvalidToken": (errno.EACCES, "the session token does not belong to the keys: look at fs.s3a.session.token"),
    "TokenRefreshRequired": (errno.EACCES, "the session token has to be renewed"),
    "RequestTimeTooSkewed": (errno.EACCES, "the clock of this machine is wrong by more than {place} allows: set it"),
    "AccountProblem": (errno.EACCES, "{place} says that the account cannot be used at present"),
    "InvalidObjectState": (errno.EACCES, "the object is archived: restore it to a storage class that can be read"),
    "PermanentRedirect": (errno.EINVAL, _REGION),
    "IllegalLocationConstraintException": (errno.EINVAL, _REGION),
    "AuthorizationHeaderMalformed": (errno.EINVAL, _HEADER),
    "EntityTooLarge": (errno.EFBIG, "the object is larger than {place} takes"),
    "QuotaExceeded": (errno.EDQUOT, "the bucket {bucket} is full"),
    "NotImplemented": (errno.ENOTSUP, _CANNOT),
}
"""By the code in the answer's body (S3's, most of which Google's XML interface shares; Azure's)."""

_BY_STATUS: dict[int, tuple[int, str]] = {
    400: (errno.EINVAL, _BAD_REQUEST),
    401: (errno.EACCES, "{place} wants credentials: {keys}"),
    403: (errno.EACCES, _DENIED),
    404: (errno.ENOENT, _NONE),
    405: (errno.ENOTSUP, "{place} is not an object store of this kind: look at the endpoint"),
    409: (errno.EEXIST, "another request was changing it"),
    411: (errno.ENOTSUP, _CANNOT),
    412: (errno.ENOENT, _REPLACED),
    416: (errno.ENOENT, _REPLACED),
    501: (errno.ENOTSUP, _CANNOT),
}

_TRANSIENT_CODES = frozenset({
    "SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "ServerBusy", "OperationTimedOut",
    "RequestLimitExceeded", "ThrottlingException", "BadDigest",
})  # fmt: skip
_BY_KIND: dict[str, tuple[int, str]] = {
    "Connect": (errno.ECONNREFUSED, _UNREACHABLE),
    "Timeout": (errno.ETIMEDOUT, "{place} did not answer in time"),
    "Request": (errno.ECONNRESET, "{place} closed the connection"),
    "Interrupted": (errno.ECONNRESET, "{place} closed the connection"),
    "Decode": (errno.ECONNRESET, "{place} broke off its answer"),
    "Unknown": (errno.ECONNRESET, "{place} closed the connection"),
}
_CREDENTIAL_PATHS = ("/latest/api/token", "/latest/meta-data/", "computeMetadata", "/metadata/identity")
"""Marks of a request for credentials, which goes to another server than all others."""
_NO_CREDENTIALS = (
    "no credentials were found, neither in options and environment nor from the machine's role: {keys}; a public "
    "bucket is read with storage.skip_signature=true"
)


def truncated(expected: int, got: int) -> Failure:
    """An answer that has fewer bytes than were asked for."""
    return Failure(errno.EIO, f"the answer has {got} bytes, expected {expected}", transient=True)


REPLACED = Failure(errno.ENOENT, _REPLACED)


def failure_of(error: BaseException, words: Words) -> Failure:
    """Failure of an exception of the library, by its class and those marks in its text that the tables here hold."""
    text = str(error)
    status_mark, kind_mark = _STATUS.search(text), _KIND.search(text)
    status = int(status_mark[1]) if status_mark else 0
    code = _code(text)
    if "Error performing" in text and any(mark in text for mark in _CREDENTIAL_PATHS):
        return Failure(errno.EACCES, _NO_CREDENTIALS.format(**words), answered=False)
    if code in _TRANSIENT_CODES or status in (408, 429) or (status >= 500 and status != 501):
        return Failure(errno.EAGAIN, f"{words['place']} is overloaded or failing ({code or f'status {status}'})", True)
    if code in _BY_CODE:
        number, sentence = _BY_CODE[code]
        return Failure(number, sentence.format(**words))
    if status in _BY_STATUS:
        number, sentence = _BY_STATUS[status]
        known = f" (status {status}, {code})" if code else ""
        return Failure(number, sentence.format(**words) + known)
    if status:
        return Failure(errno.EIO, f"{words['place']} refuses the request (status {status})")
    return _without_status(error, text, kind_mark[1] if kind_mark else "", words)


def object_is_missing(error: BaseException) -> bool:
    """True if the object is not there, and not its bucket or the user."""
    text = str(error)
    return isinstance(error, FileNotFoundError) and _code(text) in ("", "NoSuchKey", "BlobNotFound")


def _code(text: str) -> str:
    """The code in an answer's body; empty without one."""
    mark = _CODE.search(text)
    return next((group for group in mark.groups() if group), "") if mark else ""


def _without_status(error: BaseException, text: str, kind: str, words: Words) -> Failure:
    if "incorrectly configured region" in text:
        number, sentence = _BY_CODE["PermanentRedirect"]
        return Failure(number, sentence.format(**words))
    if "BadScheme" in text or "URL scheme is not allowed" in text:
        return Failure(errno.EINVAL, "the endpoint is http://, and storage.allow_http=false forbids that")
    if kind:
        number, sentence = _BY_KIND[kind]
        return Failure(number, sentence.format(**words), transient=True, answered=False)
    name = type(error).__name__
    if isinstance(error, FileNotFoundError):
        return Failure(errno.ENOENT, _NONE)
    if name == "PreconditionError":
        return REPLACED
    if name in ("InvalidPathError", "ValueError") and "path" in text.lower():
        return Failure(errno.EINVAL, _STRANGE_KEY)
    if isinstance(error, OSError) and error.errno:
        return Failure(error.errno, os.strerror(error.errno))
    return Failure(errno.EIO, f"the request failed in the library ({name})", transient=name == "GenericError")


FIRST_WAIT = 0.1
"""Seconds; then twice as long each time, as AWS advises, each time a random part of it so that many clients spread."""
LONGEST_WAIT = 10.0
INITIAL_CONNECT_TRIES = 4
"""Before a store has ever answered, one that cannot be reached is a wrong endpoint sooner than a bad moment: four tries
take less than two seconds, and a user who mistyped should not wait for minutes."""


def wait_after(
    failure: Failure, tries: int, seconds: float, policy: RetryPolicy, *, known: bool, part: float
) -> float | None:
    """Seconds to wait before the next try; None to give up. tries, seconds: those that the request has taken. known:
    the store has answered once. part: a random one, from 0 to 1."""
    if not failure.transient or tries >= policy.tries or (not known and tries >= INITIAL_CONNECT_TRIES):
        return None
    wait = min(FIRST_WAIT * 2 ** (tries - 1), LONGEST_WAIT) * (0.5 + part / 2)
    return wait if seconds + wait < policy.seconds else None


OBJECT_SCHEMES = S3_SCHEMES | GCS_SCHEMES | AZURE_SCHEMES  # schemes that this library serves

_CLIENT_DEFAULTS = {"timeout": "60s", "connect_timeout": "5s", "read_timeout": "20s"}
"""A block of 8 MiB in 60 s is 140 kB/s: slower lines are taken for broken ones. A server that sends nothing for 20 s
has forgotten the request."""

_AWS_KEYS_ELSEWHERE = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Environment that the library reads itself."""

_AWS_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def client_of(scheme: str, bucket: str, settings: ClientSettings, retry: RetryPolicy) -> Any:
    """A client of the library for one bucket, which repeats requests as `retry` says. Raises OptionError."""
    module = library()
    given: dict[str, Any] = {
        "config": dict(settings.config),
        "client_options": {**_CLIENT_DEFAULTS, **settings.client},
        "retry_config": {
            "max_retries": retry.tries - 1,
            "retry_timeout": timedelta(seconds=retry.seconds),
            "backoff": {
                "init_backoff": timedelta(seconds=FIRST_WAIT),
                "max_backoff": timedelta(seconds=LONGEST_WAIT),
                "base": 2,
            },
        },
    }
    if scheme in S3_SCHEMES:
        if any(os.environ.get(name, "").startswith("http://") for name in _AWS_ENDPOINTS):
            given["client_options"].setdefault("allow_http", "true")  # who names such an endpoint means it
        provider, region = _aws_provider(settings)
        if provider is not None:
            given["credential_provider"] = provider
        if region and "region" not in given["config"]:
            given["config"]["region"] = region
        return _made(module.S3Store, bucket, given)
    if scheme in GCS_SCHEMES:
        return _made(module.GCSStore, bucket, given)
    return _made(module.AzureStore, _azure(bucket, given["config"]), given)


def _azure(bucket: str, config: dict[str, str]) -> str:
    """The container of `container@account.dfs.core.windows.net`, or of `container` alone; the account, and the endpoint
    of another cloud than the public one, go into `config`. Raises OptionError where nothing says the account."""
    container, at, host = bucket.partition("@")
    account, _, cloud = host.partition(".")
    if at:
        config.setdefault("account_name", account)
        if cloud.endswith(".fabric.microsoft.com"):
            config.setdefault("use_fabric_endpoint", "true")
        elif cloud not in _PUBLIC_AZURE:
            config.setdefault("endpoint", f"https://{account}.{cloud.replace('dfs.', 'blob.', 1)}")
    elif not {"account_name", "use_emulator"} & set(config) and not os.environ.get("AZURE_STORAGE_ACCOUNT_NAME"):
        raise OptionError(
            f"the path names a container of Azure, {container}, and no account",
            hint=f"write abfss://{container}@ACCOUNT.dfs.core.windows.net/…, or give storage.account_name",
        )
    return container


_PUBLIC_AZURE = ("dfs.core.windows.net", "blob.core.windows.net")


def library() -> Any:
    """obstore.store. Raises OptionError where it is not installed."""
    try:
        import obstore.store
    except ImportError:
        raise OptionError(
            "object stores are read with the package obstore, which is not installed here",
            hint=f"{install_hint('object-store')} on the driver and on every worker",
        ) from None
    return obstore.store


def _made(make: Any, place: str, given: dict[str, Any]) -> Any:
    """A client. What the library says of settings that it cannot use may hold their values, so it is not passed on."""
    try:
        return make(place, **given)
    except Exception as error:  # noqa: BLE001 - as above
        name = type(error).__name__
    said = [option for option, value in given["client_options"].items() if _CLIENT_DEFAULTS.get(option) != value]
    names = ", ".join(sorted([*given["config"], *said])) or "what the environment says"
    raise OptionError(f"the options about storage make no client ({name})", hint=f"look at the values of {names}")


def _aws_provider(settings: ClientSettings) -> tuple[Any, str | None]:
    """(whom to ask for AWS credentials, region of the profile): boto3, where neither options nor environment hold any.
    The library looks at the environment, containers, web identity and the machine's role, but not at profiles."""
    config = settings.config
    if "access_key_id" in config or config.get("skip_signature", "").lower() == "true":
        return None, None
    if settings.profile is None and (
        any(name.removeprefix("AWS_").lower() in config for name in _AWS_KEYS_ELSEWHERE)
        or any(os.environ.get(name) for name in _AWS_KEYS_ELSEWHERE)
    ):
        return None, None
    profile = settings.profile or os.environ.get("AWS_PROFILE")
    files = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
    paths = [Path(os.environ.get(name, path)).expanduser() for name, path in files.items()]
    if profile is None and not any(path.exists() for path in paths):
        return None, None
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise OptionError(
            "profiles of ~/.aws are read with the package boto3, which is not installed here",
            hint="pip install boto3, or give fs.s3a.access.key and fs.s3a.secret.key",
        ) from None
    try:
        session = boto3.Session(profile_name=profile)
        return (Boto3CredentialProvider(session) if session.get_credentials() else None), session.region_name
    except BotoCoreError as error:
        name = type(error).__name__
    raise OptionError(f"the AWS profile {profile or 'default'} cannot be used ({name})", hint="look at ~/.aws/config")


class RequestCounts(NamedTuple):
    """Requests by kind, and bytes of bodies: what object stores charge for. The difference of two is what happened in
    between. Each try counts, but those that the library makes by itself: it repeats pages of a listing and parts of an
    upload."""

    list: int = 0
    get: int = 0
    head: int = 0
    put: int = 0
    delete: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def __sub__(self, other: RequestCounts) -> RequestCounts:
        return RequestCounts(*(mine - its for mine, its in zip(self, other, strict=True)))

    def plus(self, other: RequestCounts) -> RequestCounts:
        """Both together. (`+` joins tuples.)"""
        return RequestCounts(*(mine + its for mine, its in zip(self, other, strict=True)))

    def __str__(self) -> str:
        kinds = [f"{count} {kind.upper()}" for kind, count in zip(self._fields[:5], self[:5], strict=True) if count]
        return f"{', '.join(kinds) or 'no requests'}; {self.bytes_read} bytes read, {self.bytes_written} written"


T = TypeVar("T")
Wait = Callable[[float], bool]  # wait for so many seconds; True to give up before


class TryFailed(Exception):
    """Failure of a request that the library does not report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure


class ObjectClient:
    """Client of one bucket, shared by threads. Not to be pickled: `client_for` finds it again in another process.
    Requests are repeated here and not by the library's RetryConfig, because each try is counted, a conditional put must
    know whether a try before it may have written, a closing file ends the waiting, and an endpoint that never answered
    is given up after INITIAL_CONNECT_TRIES. The library repeats what only it can: one page of a listing, one part of an
    upload. wait: waits between tries for requests that bring no `wait` of their own."""

    def __init__(self, scheme: str, bucket: str, options: StorageOptions, wait: Wait | None = None) -> None:
        self._wait = wait or _sleep
        self.counts = RequestCounts()
        self._counting = threading.Lock()
        self._place = scheme, bucket
        if scheme in S3_SCHEMES:
            self._settings, vendor = options.for_s3(bucket), "s3"
        elif scheme in GCS_SCHEMES:
            self._settings, vendor = options.for_others(GCS_NAMES), "gs"
        else:
            self._settings, vendor = options.for_others(AZURE_NAMES), "abfss"
        endpoint = self._settings.config.get("endpoint", self._settings.config.get("base_url"))
        host = urlsplit(endpoint) if endpoint is not None else None
        shown = "" if host is None else (host.hostname or "") + (f":{host.port}" if host.port else "")
        self._words = words_of(bucket.partition("@")[0], shown, vendor)
        self._known = False

    def check_settings(self) -> None:
        """Make the library's client, which makes no request. Raises OptionError for settings that cannot be used."""
        _ = self._once

    @cached_property
    def _once(self) -> Any:
        return client_of(*self._place, self._settings, RetryPolicy(1, 0))

    @cached_property
    def _repeating(self) -> Any:
        return client_of(*self._place, self._settings, self._settings.retry)

    def count(self, **counts: int) -> None:
        """Add numbers of RequestCounts, by name."""
        with self._counting:
            self.counts = self.counts.plus(RequestCounts(**counts))

    def ask(
        self, path: str, call: Callable[[Any], T], *, in_parts: bool = False, wait: Wait | None = None, **kind: int
    ) -> T:
        """`call` with the library's client, again while that may help. in_parts: the library makes several requests of
        it, and should repeat those that fail instead of all. kind: what to count for each try (`get=1`). Raises OSError
        with a sentence that holds nothing of the library's text."""
        global _used_in
        if _used_in is None:
            _used_in = os.getpid()
        elif _used_in != os.getpid():
            # The library starts threads with its first request, and a fork has none of them: a request there would wait
            # for ever. Spark's daemon makes none before it forks.
            raise OSError(
                errno.ENOTSUP,
                "this process was forked from one that had read from an object store, which does not work in a fork: "
                "start processes by spawn or forkserver (multiprocessing.set_start_method)",
                path,
            )
        begun, tries = time.monotonic(), 0
        while True:
            tries += 1
            self.count(**kind)
            try:
                result = call(self._repeating if in_parts and self._known else self._once)
            except TryFailed as error:
                failure = error.failure
            except (OptionError, MemoryError):
                raise
            except Exception as error:  # noqa: BLE001 - the library raises classes without a common base but this one
                failure = failure_of(error, self._words)
            else:
                self._known = True
                return result
            # Outside `except`: a traceback that shows the OSError would show the library's text above it.
            self._known = self._known or failure.answered
            taken = time.monotonic() - begun
            seconds = wait_after(failure, tries, taken, self._settings.retry, known=self._known, part=random.random())
            if seconds is None or (wait or self._wait)(seconds):
                raise failure.error(path, tries)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


_lock = threading.Lock()
_clients: dict[tuple[str, str, StorageOptions], ObjectClient] = {}
_used_in: int | None = None  # the process in which the library's threads were started


def client_for(scheme: str, bucket: str, options: StorageOptions) -> ObjectClient:
    """The client of this process. Raises OptionError."""
    key = scheme, bucket, options
    with _lock:
        client = _clients.get(key)
        if client is None:
            client = _clients[key] = ObjectClient(scheme, bucket, options)
        return client


def all_counts() -> RequestCounts:
    """Counts of all clients of this process."""
    with _lock:
        total = RequestCounts()
        for client in _clients.values():
            total = total.plus(client.counts)
        return total


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_forget)
