"""SCRAM on the server: the exchange of RFC 7677, and invalid messages."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from kafkalog_broker.security.sasl_mechanism import SaslFailed
from kafkalog_broker.security.scram import Credential, derive_credential, salt_password, scram_exchange

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
FINAL = f"c=biws,r={NONCE},p={PROOF}"


def kept(mechanism: str = SHA_256, password: str = "pencil") -> Credential:
    return derive_credential(mechanism, salt_password(mechanism, password, SALT, 4096), SALT, 4096)


class Server:
    """Sends an exchange its messages; `user` and `done` once it has succeeded."""

    def __init__(self, users: dict[str, Credential], mechanism: str) -> None:
        self._exchange = scram_exchange(mechanism, users.get, lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
        next(self._exchange)
        self.user, self.done = "", False

    def evaluate(self, message: bytes) -> bytes:
        try:
            return self._exchange.send(message)
        except StopIteration as over:
            self.user, self.done = over.value.user, True
            return bytes(over.value.response)


def server(users: dict[str, Credential] | None = None, mechanism: str = SHA_256) -> Server:
    return Server({"user": kept(mechanism)} if users is None else users, mechanism)


def test_exchange_equals_the_example_of_rfc_7677():
    one = server()
    assert one.evaluate(FIRST.encode()) == f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert not one.done
    assert one.evaluate(FINAL.encode()) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert (one.done, one.user) == (True, "user")


def final_of(first: str, challenge: bytes, password: str, hash_name: str) -> bytes:
    """The client's side, written as the RFC says it."""
    fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
    key = hashlib.pbkdf2_hmac(hash_name, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(key, b"Client Key", hash_name)
    without = f"c={base64.b64encode(first[: first.index('n=')].encode()).decode()},r={fields['r']}"
    signed = f"{first[first.index('n=') :]},{challenge.decode()},{without}".encode()
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize(("mechanism", "hash_name"), [(SHA_256, "sha256"), (SHA_512, "sha512")])
@pytest.mark.parametrize("name", ["user", "a=2Cb=3Dc"])
@pytest.mark.parametrize("header", ["n,,", "n,a={},"])
def test_exchange_with_each_hash_escaped_name_and_authorization_id_succeeds(
    mechanism: str, hash_name: str, name: str, header: str
):
    first = f"{header.format(name)}n={name},r=abc"
    plain = name.replace("=2C", ",").replace("=3D", "=")
    one = server({plain: kept(mechanism)}, mechanism)
    challenge = one.evaluate(first.encode())
    assert one.evaluate(final_of(first, challenge, "pencil", hash_name)).startswith(b"v=")
    assert one.user == plain


def test_wrong_password_is_refused_and_ends_the_exchange():
    one = server()
    challenge = one.evaluate(FIRST.encode())
    with pytest.raises(SaslFailed, match="the password is wrong") as error:
        one.evaluate(final_of(FIRST, challenge, "pen", "sha256"))
    assert error.value.client_message is None
    assert not one.done
    with pytest.raises(AttributeError):  # nothing is authenticated by what comes after the end
        one.evaluate(final_of(FIRST, challenge, "pencil", "sha256"))


@pytest.mark.parametrize(
    "first",
    ["", "n", "y,,n=user,r=a", "p=tls-unique,,n=user,r=a", "n,,n=user", "n,,n=user,r=", "n,,r=a,n=user",
     "n,,n=us=er,r=a", "n,,n=nobody,r=a", "n,a=other,n=user,r=a", "\udcff"],
)  # fmt: skip
def test_invalid_first_message_is_refused(first: str):
    with pytest.raises(SaslFailed):
        server().evaluate(first.encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(
    "final",
    [
        "",
        f"c=biws,r={NONCE}",
        f"c=biws,r={NONCE},p=",
        f"c=biws,r={NONCE},p=????",
        f"c=biws,r={NONCE},p=AAAA",
        f"c=biws,r={NONCE[:-1]},p={PROOF}",
        f"c=biws,r={NONCE}x,p={PROOF}",
        f"c=eSws,r={NONCE},p={PROOF}",
        f"c=biws,r={NONCE},x=1,p={PROOF}",
        FINAL[:-2] + "A=",
    ],
)
def test_invalid_second_message_is_refused(final: str):
    one = server()
    one.evaluate(FIRST.encode())
    with pytest.raises(SaslFailed):
        one.evaluate(final.encode())
    assert not one.done


def test_repr_of_a_credential_has_no_secret():
    assert repr(kept()) == "Credential(iterations=4096)"
