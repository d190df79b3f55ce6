"""One connection: set up cooperatively (name, TCP, proxy, TLS), then read without ever blocking. I/O, under gevent."""

import _socket
import contextlib
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any

import gevent
import gevent.socket
from gevent.socket import wait_read, wait_write

from harness import clock
from harness.wire.endpoint import Endpoint
from harness.wire.stamps import ANCILLARY_BYTES, ask_for_stamps, timespec

READ_BYTES = 16 * 1024
WAIT_S = 0.5
"""How often a blocked send asks whether it is still wanted."""
OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.ENOMEM})
"""Connection errors that are this machine's fault, not the server's."""


class NotConnected(Exception):
    """Connection set-up failed. `ours`: this machine had no socket, file or port left to try with."""

    def __init__(self, detail: str, *, ours: bool = False) -> None:
        super().__init__(detail)
        self.ours = ours


class Connection:
    """A connected, non-blocking socket that yields stamped plaintext."""

    def __init__(self, sock: "_socket.socket", *, kernel_stamps: bool, tls: "Tls | None", connect_ns: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.kernel_stamps = kernel_stamps
        self.tls = tls
        self.connect_ns = connect_ns
        self.used = False
        self.recvmsg = sock.recvmsg
        """For the hot path, which reads a plain socket without a call between."""
        self.read = self._read_plain if tls is None else self._read_tls

    def _read_plain(self) -> tuple[int, bytes]:
        """(arrival in ns, bytes) of one read; b"" is end of file. Raises BlockingIOError or OSError."""
        data, ancillary, _, _ = self.recvmsg(READ_BYTES, ANCILLARY_BYTES)
        if ancillary:
            seconds, nanoseconds = timespec(ancillary[0][2])
            return seconds * 1_000_000_000 + nanoseconds, data
        return clock.wall_ns(), data

    def _read_tls(self) -> tuple[int, bytes]:
        """As `_read_plain`, decrypted: the stamp is that of the read that completed the record."""
        assert self.tls is not None
        at_ns, data = self._read_plain()
        plain = self.tls.opened(data)
        if not plain and data and not self.tls.ended:
            raise BlockingIOError
        return at_ns, plain

    def send(self, data: bytes, wanted: Callable[[], bool]) -> None:
        """Hand all of it to the kernel, waiting cooperatively for room while it is wanted. Raises OSError."""
        if self.tls is not None:
            data = self.tls.sealed(data)
        view = memoryview(data)
        while view and wanted():
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                with contextlib.suppress(TimeoutError):
                    wait_write(self.fd, timeout=WAIT_S)

    def is_stale(self) -> bool:
        """The server has closed this kept connection, or sent something nobody asked for."""
        try:
            self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return self.tls is None or not self._only_tickets()

    def _only_tickets(self) -> bool:
        """TLS 1.3 servers send session tickets after the handshake: not data, but readable."""
        try:
            _, plain = self._read_tls()
        except BlockingIOError:
            return True
        except OSError:
            return False
        return not plain and self.tls is not None and not self.tls.ended

    def close(self) -> None:
        """Close at once."""
        self.sock.close()


class Tls:
    """A TLS session over byte strings, so that the socket stays ours to stamp."""

    def __init__(self, context: ssl.SSLContext, server_hostname: str) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._in, self._out, server_hostname=server_hostname)
        self.ended = False

    def handshake(self, sock: "_socket.socket") -> None:
        """Raises ssl.SSLError, or OSError when the peer goes away."""
        while True:
            try:
                self._session.do_handshake()
            except ssl.SSLWantReadError:
                self._flush(sock)
                wait_read(sock.fileno())
                data = sock.recv(READ_BYTES)
                if not data:
                    raise ConnectionResetError("closed during the TLS handshake") from None
                self._in.write(data)
            else:
                self._flush(sock)
                return

    def opened(self, data: bytes) -> bytes:
        """Plaintext of this ciphertext; b"" while a record is incomplete. b"" in means end of file."""
        if data:
            self._in.write(data)
        else:
            self._in.write_eof()
        plain = []
        while self._in.pending or self._session.pending():
            try:
                piece = self._session.read(READ_BYTES)
            except ssl.SSLWantReadError:
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                self.ended = True
                break
            if not piece:
                self.ended = True
                break
            plain.append(piece)
        self.ended = self.ended or not data
        return plain[0] if len(plain) == 1 else b"".join(plain)

    def sealed(self, data: bytes) -> bytes:
        """Ciphertext of this plaintext."""
        self._session.write(data)
        return self._out.read()

    def _flush(self, sock: "_socket.socket") -> None:
        view = memoryview(self._out.read())
        while view:
            try:
                view = view[sock.send(view) :]
            except BlockingIOError:
                wait_write(sock.fileno())


def connect(where: Endpoint, context: ssl.SSLContext | None, timeout_s: float) -> Connection:
    """A fresh connection, TLS included. Raises NotConnected, or TimeoutError after `timeout_s`."""
    began_ns = clock.mono_ns()
    raw: _socket.socket | None = None
    try:
        with gevent.Timeout(timeout_s, TimeoutError(f"no connection within {timeout_s:g} s")):
            raw = _tcp(*(where.proxy or (where.hostname, where.port)))
            kernel_stamps = ask_for_stamps(raw)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if where.proxy and where.secure:
                _open_tunnel(raw, where)
            tls = _tls(raw, where, context)
    except TimeoutError as error:
        _close(raw)
        if isinstance(error, gevent.Timeout) or str(error).startswith("no connection within"):
            raise
        raise NotConnected(f"{where.authority}: {error}") from None
    except ssl.SSLError as error:
        _close(raw)
        raise NotConnected(f"TLS with {where.authority}: {_tls_words(error)}") from None
    except OSError as error:
        _close(raw)
        raise NotConnected(f"{where.authority}: {error.strerror or error}", ours=error.errno in OURS) from None
    except BaseException:
        _close(raw)
        raise
    connect_ns = clock.mono_ns() - began_ns
    return Connection(raw, kernel_stamps=kernel_stamps, tls=tls, connect_ns=connect_ns)


def _tcp(host: str, port: int) -> "_socket.socket":
    """The first address that accepts. Raises OSError of the last one that did not."""
    error = OSError(f"no address for {host}")
    for family, address in _addresses(host, port):
        raw = _socket.socket(family, socket.SOCK_STREAM)
        raw.setblocking(False)
        try:
            code = raw.connect_ex(address)
            if code == errno.EINPROGRESS:
                wait_write(raw.fileno())
                code = raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        except BaseException:
            raw.close()
            raise
        if code == 0:
            return raw
        raw.close()
        error = OSError(code, os.strerror(code))
    raise error


def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    """An address as it stands needs no resolver, which is a thread and takes its time when the CPU is short."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        found = gevent.socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
        return [(family, address) for family, _, _, _, address in found]
    return [(socket.AF_INET6 if version == 6 else socket.AF_INET, (host, port))]


def _tls(raw: "_socket.socket", where: Endpoint, context: ssl.SSLContext | None) -> Tls | None:
    if not where.secure:
        return None
    assert context is not None
    tls = Tls(context, where.hostname)
    tls.handshake(raw)
    return tls


def _open_tunnel(raw: "_socket.socket", where: Endpoint) -> None:
    """HTTP CONNECT through the proxy. Raises OSError when it refuses."""
    target = f"[{where.hostname}]:{where.port}" if ":" in where.hostname else f"{where.hostname}:{where.port}"
    auth = f"Proxy-Authorization: {where.proxy_auth}\r\n" if where.proxy_auth else ""
    raw.send(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{auth}\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        wait_read(raw.fileno())
        data = raw.recv(1)  # not a byte more: what follows belongs to TLS
        if not data or len(answer) > READ_BYTES:
            raise ConnectionResetError(f"proxy closed: {answer[:80].decode('latin-1')!r}")
        answer += data
    status = answer.split(b"\r\n", 1)[0].decode("latin-1")
    if " 200" not in status:
        raise ConnectionRefusedError(f"proxy refused the tunnel: {status}")


def _close(raw: "_socket.socket | None") -> None:
    if raw is not None:
        raw.close()


def _tls_words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not trusted ({error.verify_message}); give its CA with target.ca_file"
    return str(error.reason or error)
