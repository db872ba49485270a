"""Broker properties of TLS, SASL, delegation tokens and authorization. No effect here: only PLAINTEXT is served."""

from __future__ import annotations

from broker.config.definition import Between, OneOf, Property, PropertyType, Update

BOOLEAN = PropertyType.BOOLEAN
STRING = PropertyType.STRING
INT = PropertyType.INT
SHORT = PropertyType.SHORT
LONG = PropertyType.LONG
DOUBLE = PropertyType.DOUBLE
LIST = PropertyType.LIST
CLASS = PropertyType.CLASS
PASSWORD = PropertyType.PASSWORD
HIGH = "high"
MEDIUM = "medium"
LOW = "low"
PER_BROKER = Update.PER_BROKER

SECURITY_PROPERTIES = (
    Property("authorizer.class.name", STRING, "", None, LOW, "A class that decides who may do what."),
    Property(
        "principal.builder.class",
        CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        None,
        MEDIUM,
        "A class that makes a principal of a connection's credentials.",
        PER_BROKER,
    ),
    Property("security.providers", STRING, None, None, LOW, "Security providers to load."),
    Property(
        "delegation.token.secret.key", PASSWORD, None, None, MEDIUM, "Secret for making and checking delegation tokens."
    ),
    Property(
        "delegation.token.max.lifetime.ms", LONG, "604800000", Between(1), MEDIUM, "Longest life of a delegation token."
    ),
    Property(
        "delegation.token.expiry.time.ms",
        LONG,
        "86400000",
        Between(1),
        MEDIUM,
        "Life of a delegation token before it must be renewed.",
    ),
    Property(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        "3600000",
        Between(1),
        LOW,
        "How often expired delegation tokens are removed.",
    ),
    Property(
        "ssl.principal.mapping.rules", STRING, "DEFAULT", None, LOW, "Rules from a certificate's name to a short name."
    ),
    Property("ssl.allow.dn.changes", BOOLEAN, "false", None, LOW, "Whether a new certificate may carry another name."),
    Property(
        "ssl.allow.san.changes",
        BOOLEAN,
        "false",
        None,
        LOW,
        "Whether a new certificate may carry other alternative names.",
    ),
    Property(
        "ssl.client.auth",
        STRING,
        "none",
        OneOf(("required", "requested", "none")),
        MEDIUM,
        "Whether clients must show a certificate.",
        PER_BROKER,
    ),
    Property("ssl.protocol", STRING, "TLSv1.3", None, MEDIUM, "TLS version to begin with.", PER_BROKER),
    Property("ssl.provider", STRING, None, None, MEDIUM, "Java security provider for TLS.", PER_BROKER),
    Property("ssl.cipher.suites", LIST, "", None, MEDIUM, "Cipher suites that are allowed.", PER_BROKER),
    Property(
        "ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", None, MEDIUM, "TLS versions that are allowed.", PER_BROKER
    ),
    Property("ssl.keystore.type", STRING, "JKS", None, MEDIUM, "Format of the key store.", PER_BROKER),
    Property("ssl.keystore.location", STRING, None, None, MEDIUM, "File of the key store.", PER_BROKER),
    Property("ssl.keystore.password", PASSWORD, None, None, MEDIUM, "Password of the key store.", PER_BROKER),
    Property(
        "ssl.keystore.key", PASSWORD, None, None, MEDIUM, "Private key, in the format of ssl.keystore.type.", PER_BROKER
    ),
    Property(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        None,
        MEDIUM,
        "Certificate chain, in the format of ssl.keystore.type.",
        PER_BROKER,
    ),
    Property("ssl.key.password", PASSWORD, None, None, MEDIUM, "Password of the private key.", PER_BROKER),
    Property("ssl.truststore.type", STRING, "JKS", None, MEDIUM, "Format of the trust store.", PER_BROKER),
    Property("ssl.truststore.location", STRING, None, None, MEDIUM, "File of the trust store.", PER_BROKER),
    Property("ssl.truststore.password", PASSWORD, None, None, MEDIUM, "Password of the trust store.", PER_BROKER),
    Property(
        "ssl.truststore.certificates",
        PASSWORD,
        None,
        None,
        MEDIUM,
        "Trusted certificates, in the format of ssl.truststore.type.",
        PER_BROKER,
    ),
    Property(
        "ssl.keymanager.algorithm", STRING, "SunX509", None, MEDIUM, "Java algorithm of the key manager.", PER_BROKER
    ),
    Property(
        "ssl.trustmanager.algorithm", STRING, "PKIX", None, MEDIUM, "Java algorithm of the trust manager.", PER_BROKER
    ),
    Property(
        "ssl.endpoint.identification.algorithm",
        STRING,
        "https",
        None,
        LOW,
        "How a server's name is checked against its certificate.",
        PER_BROKER,
    ),
    Property(
        "ssl.secure.random.implementation",
        STRING,
        None,
        None,
        LOW,
        "Java source of random numbers for TLS.",
        PER_BROKER,
    ),
    Property("ssl.engine.factory.class", CLASS, None, None, LOW, "A class that makes TLS engines.", PER_BROKER),
    Property(
        "sasl.mechanism.inter.broker.protocol",
        STRING,
        "GSSAPI",
        None,
        MEDIUM,
        "SASL mechanism that brokers use among themselves.",
        PER_BROKER,
    ),
    Property("sasl.mechanism.controller.protocol", STRING, "GSSAPI", None, HIGH, "SASL mechanism for the controller."),
    Property("sasl.enabled.mechanisms", LIST, "GSSAPI", None, MEDIUM, "SASL mechanisms that are served.", PER_BROKER),
    Property("sasl.jaas.config", PASSWORD, None, None, MEDIUM, "JAAS login context.", PER_BROKER),
    Property(
        "sasl.server.callback.handler.class", CLASS, None, None, MEDIUM, "A class that answers SASL server callbacks."
    ),
    Property(
        "sasl.client.callback.handler.class", CLASS, None, None, MEDIUM, "A class that answers SASL client callbacks."
    ),
    Property("sasl.login.class", CLASS, None, None, MEDIUM, "A class that logs in."),
    Property("sasl.login.callback.handler.class", CLASS, None, None, MEDIUM, "A class that answers login callbacks."),
    Property(
        "sasl.kerberos.service.name", STRING, None, None, MEDIUM, "Kerberos principal name of the broker.", PER_BROKER
    ),
    Property("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", None, MEDIUM, "Path of kinit.", PER_BROKER),
    Property(
        "sasl.kerberos.ticket.renew.window.factor",
        DOUBLE,
        "0.8",
        None,
        MEDIUM,
        "After which share of its life a ticket is renewed.",
        PER_BROKER,
    ),
    Property(
        "sasl.kerberos.ticket.renew.jitter", DOUBLE, "0.05", None, MEDIUM, "Random share added to that.", PER_BROKER
    ),
    Property(
        "sasl.kerberos.min.time.before.relogin",
        LONG,
        "60000",
        None,
        MEDIUM,
        "Pause between two attempts to renew a ticket.",
        PER_BROKER,
    ),
    Property(
        "sasl.kerberos.principal.to.local.rules",
        LIST,
        "DEFAULT",
        None,
        MEDIUM,
        "Rules from principals to short names.",
        PER_BROKER,
    ),
    Property(
        "sasl.login.refresh.window.factor",
        DOUBLE,
        "0.8",
        None,
        MEDIUM,
        "After which share of its life a credential is renewed.",
        PER_BROKER,
    ),
    Property(
        "sasl.login.refresh.window.jitter", DOUBLE, "0.05", None, MEDIUM, "Random share added to that.", PER_BROKER
    ),
    Property(
        "sasl.login.refresh.min.period.seconds",
        SHORT,
        "60",
        None,
        MEDIUM,
        "Shortest time before a credential is renewed.",
        PER_BROKER,
    ),
    Property(
        "sasl.login.refresh.buffer.seconds",
        SHORT,
        "300",
        None,
        MEDIUM,
        "Time kept before a credential's end.",
        PER_BROKER,
    ),
    Property(
        "sasl.login.connect.timeout.ms",
        INT,
        None,
        None,
        LOW,
        "How long a connection to the identity provider may take.",
    ),
    Property(
        "sasl.login.read.timeout.ms", INT, None, None, LOW, "How long reading from the identity provider may take."
    ),
    Property("sasl.login.retry.backoff.ms", LONG, "100", None, LOW, "First pause between attempts to log in."),
    Property("sasl.login.retry.backoff.max.ms", LONG, "10000", None, LOW, "Longest pause between attempts to log in."),
    Property("sasl.server.max.receive.size", INT, "524288", None, MEDIUM, "Largest SASL message."),
    Property("sasl.oauthbearer.scope.claim.name", STRING, "scope", None, LOW, "Claim that holds the scope."),
    Property("sasl.oauthbearer.sub.claim.name", STRING, "sub", None, LOW, "Claim that holds the subject."),
    Property("sasl.oauthbearer.token.endpoint.url", STRING, None, None, MEDIUM, "Where tokens come from."),
    Property(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        None,
        None,
        MEDIUM,
        "Where the identity provider's keys come from.",
    ),
    Property(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, "3600000", None, LOW, "How often those keys are fetched."
    ),
    Property(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        LONG,
        "100",
        None,
        LOW,
        "First pause after a failed fetch of them.",
    ),
    Property("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, "10000", None, LOW, "Longest such pause."),
    Property("sasl.oauthbearer.clock.skew.seconds", INT, "30", None, LOW, "By how much clocks may differ."),
    Property("sasl.oauthbearer.expected.audience", LIST, "", None, LOW, "Audience a token must name."),
    Property("sasl.oauthbearer.expected.issuer", STRING, None, None, LOW, "Issuer a token must name."),
    Property("sasl.oauthbearer.scope", STRING, None, None, MEDIUM, "Scope to ask for."),
    Property(
        "sasl.oauthbearer.client.credentials.client.id",
        STRING,
        None,
        None,
        MEDIUM,
        "Client id for the client credentials grant.",
    ),
    Property(
        "sasl.oauthbearer.client.credentials.client.secret",
        PASSWORD,
        None,
        None,
        MEDIUM,
        "Client secret for that grant.",
    ),
    Property(
        "sasl.oauthbearer.jwt.retriever.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        None,
        MEDIUM,
        "A class that fetches tokens.",
    ),
    Property(
        "sasl.oauthbearer.jwt.validator.class",
        CLASS,
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        None,
        MEDIUM,
        "A class that checks tokens.",
    ),
    Property(
        "sasl.oauthbearer.assertion.algorithm",
        STRING,
        "RS256",
        OneOf(("ES256", "RS256"), fold=True),
        MEDIUM,
        "Algorithm that signs the assertion.",
    ),
    Property("sasl.oauthbearer.assertion.claim.aud", STRING, None, None, MEDIUM, "Audience in the assertion."),
    Property(
        "sasl.oauthbearer.assertion.claim.exp.seconds", INT, "300", Between(0, 86400), LOW, "Life of the assertion."
    ),
    Property("sasl.oauthbearer.assertion.claim.iss", STRING, None, None, MEDIUM, "Issuer in the assertion."),
    Property(
        "sasl.oauthbearer.assertion.claim.jti.include",
        BOOLEAN,
        "false",
        None,
        MEDIUM,
        "Whether the assertion carries an id.",
    ),
    Property(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        INT,
        "60",
        Between(0, 3600),
        LOW,
        "How far back the assertion is valid.",
    ),
    Property("sasl.oauthbearer.assertion.claim.sub", STRING, None, None, MEDIUM, "Subject in the assertion."),
    Property("sasl.oauthbearer.assertion.file", STRING, None, None, MEDIUM, "File with a ready assertion."),
    Property(
        "sasl.oauthbearer.assertion.private.key.file",
        STRING,
        None,
        None,
        MEDIUM,
        "File with the key that signs the assertion.",
    ),
    Property(
        "sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, None, MEDIUM, "Passphrase of that key."
    ),
    Property(
        "sasl.oauthbearer.assertion.template.file", STRING, None, None, MEDIUM, "File with a template of the assertion."
    ),
)
