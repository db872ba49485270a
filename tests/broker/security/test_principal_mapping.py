"""Distinguished names as Java writes them, and the rules of KIP-371. Expected values: X500Principal.getName of Java 17
and SslPrincipalMapper of Kafka 4.3.0, asked once."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from kafkalog_broker.config.definition import ConfigError
from kafkalog_broker.security.principal_mapping import distinguished_name, parse_rules, principal_name
from kafkalog_broker.security.refusal import NotAuthenticated
from tests.broker.security.stores import authority

NAME = "CN=kafka1.example.org,OU=Adm,O=Example,L=Utrecht,ST=UT,C=NL"


def name_of(*attributes: tuple[x509.ObjectIdentifier, str]) -> str:
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    chain = authority().issue(name).chain
    return distinguished_name(x509.load_pem_x509_certificates(chain.encode())[0])


def test_the_narrowest_comes_first():
    found = name_of(
        (NameOID.COUNTRY_NAME, "NL"), (NameOID.ORGANIZATION_NAME, "Example"), (NameOID.COMMON_NAME, "kafka1"),
    )  # fmt: skip
    assert found == "CN=kafka1,O=Example,C=NL"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ('a,b+c"d\\e<f>g;h', 'a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h'),
        (" edge ", "\\ edge\\ "),
        ("#hash", "\\#hash"),
        ("a=b", "a\\=b"),
        ("a#b", "a\\#b"),
        ("  ", "\\ \\ "),
        ("Zoë", "Zoë"),
    ],
)
def test_special_characters_are_escaped(value: str, written: str):
    assert name_of((NameOID.COMMON_NAME, value)) == f"CN={written}"


def test_attributes_without_a_word_are_numbers_and_bytes():
    found = name_of((NameOID.EMAIL_ADDRESS, "a@b.c"), (NameOID.COMMON_NAME, "x"))
    assert found == "CN=x,1.2.840.113549.1.9.1=#1605614062" + "2e63"


@pytest.mark.parametrize(
    ("rules", "name", "wanted"),
    [
        ("DEFAULT", NAME, NAME),
        ("RULE:^CN=(.*?),OU=Adm.*$/$1/", NAME, "kafka1.example.org"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U,DEFAULT", NAME, "KAFKA1.EXAMPLE.ORG@ADM"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "CN=ALICE", "alice"),
        ("RULE:^CN=nobody$/x/, RULE:^CN=([^,]*).*$/$1@$4/ , DEFAULT", NAME, "kafka1.example.org@$4"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$12/", NAME, "kafka1.example.org2"),
        ("RULE:^CN=(.*?)\\/x$/$1/,DEFAULT", "CN=a/x", "a"),
        ("RULE:(.*)/x$1/", "abc", "xabcx"),
        ("RULE:^CN=(?<name>.*)$/$1/", "CN=a", "a"),
    ],
)
def test_rules_make_names(rules: str, name: str, wanted: str):
    assert principal_name(parse_rules(rules), name) == wanted


def test_a_name_without_a_rule_is_nobodys():
    with pytest.raises(NotAuthenticated, match=r"no rule of ssl\.principal\.mapping\.rules applies to CN=bob"):
        principal_name(parse_rules("RULE:^CN=alice$/alice/"), "CN=bob")


@pytest.mark.parametrize("rules", ["RULE:a/b", "RULE:(/x/", "DEFALT", "RULE:^CN=(.*)$/$1/X", "DEFAULT DEFAULT"])
def test_what_is_no_rule_is_refused(rules: str):
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(rules)
