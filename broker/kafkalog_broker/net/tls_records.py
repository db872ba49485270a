"""TLS of one connection on bytes alone: records that came go in, records to be sent come out. No socket, no clock.

OpenSSL on a socket asks the system twice for each record, for its head and for its body, and librdkafka makes a record
of each message of a kilobyte: 370,000 calls for 250 MB. Here many records come with one call.
"""

from __future__ import annotations

import ssl

PIECE_BYTES = 32 << 10
"""What goes into OpenSSL's memory at once, encrypted or to be encrypted. It is kept as long as the connection is, so
this bounds what a connection holds that once was busy: 40 kB for each direction."""

RECORDS_AT_ONCE = 1024
"""Records may hold one byte each: so many are decrypted in one step, which takes 2 ms."""


class TlsRecords:
    """The broker's side of one connection. Errors are those of `ssl`."""

    __slots__ = ("_in", "_out", "_read", "closed", "more", "tls")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._read = self.tls.read
        self.more = False
        """Whether what came may hold another whole record."""
        self.closed = False
        """Nothing more can be read: the peer has said so, or its bytes have ended."""

    def received(self, data: memoryview) -> None:
        """The peer has sent these bytes, at most PIECE_BYTES of them."""
        self._in.write(data)
        self.more = True

    def ended(self) -> None:
        """The peer sends nothing more."""
        self._in.write_eof()
        self.more = True

    def handshake(self) -> bytes | None:
        """Go on with what has come. Raises ssl.SSLWantReadError where more has to come; else the peer's certificate
        (DER), None without one."""
        self.tls.do_handshake()
        self.more = bool(self._in.pending)
        return self.tls.getpeercert(binary_form=True)

    def read(self, into: memoryview) -> int:
        """Decrypt what has come, as much as has room, at most RECORDS_AT_ONCE records; how many bytes there are now.
        `more`: call it again."""
        read, came, filled, size = self._read, self._in, 0, len(into)
        try:
            for _ in range(RECORDS_AT_ONCE):
                count: int = read(size - filled, into[filled:])  # type: ignore[arg-type, assignment]  # any buffer
                if not count:
                    self.closed = True
                    break
                filled += count
                if filled == size:
                    self.more = bool(came.pending or self.tls.pending())
                    return filled
                if not came.pending and not came.eof:
                    break
            else:
                return filled
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLEOFError:  # without a goodbye, as many clients end
            self.closed = True
        self.more = False
        return filled

    def write(self, data: memoryview) -> None:
        """Encrypt at most PIECE_BYTES."""
        self.tls.write(data)

    def goodbye(self) -> None:
        """Nothing more is written: the peer is to know that nothing is cut."""
        try:
            self.tls.unwrap()
        except (OSError, ValueError):
            pass  # it is written, and the peer's own is not waited for

    @property
    def unsent_bytes(self) -> int:
        """What `to_send` has not given out yet."""
        return self._out.pending

    def to_send(self) -> bytes:
        """Records for the peer, also alerts and what the handshake says."""
        return self._out.read()
