"""One blocking connection, and how it came about: name, TCP, proxy, TLS, each timed. I/O, standard library only."""

import contextlib
import socket
import ssl
from collections.abc import Iterator

from harness import clock
from harness.doctor.seen import ProxyRefused, Way
from harness.wire.endpoint import Endpoint
from harness.wire.stamps import ANCILLARY_BYTES, ask_for_stamps, timespec

READ_BYTES = 16 * 1024


class Deadline:
    """An instant on the monotonic clock after which nothing is waited for."""

    def __init__(self, seconds: float) -> None:
        self.at_ns = clock.mono_ns() + round(seconds * clock.S)

    @property
    def passed(self) -> bool:
        """Nothing is left."""
        return clock.mono_ns() >= self.at_ns

    def sooner(self, seconds: float) -> "Deadline":
        """So many seconds from now, unless this one comes first."""
        other = Deadline(seconds)
        return other if other.at_ns < self.at_ns else self

    def left_s(self) -> float:
        """Seconds left. Raises TimeoutError when there are none."""
        left_ns = self.at_ns - clock.mono_ns()
        if left_ns <= 0:
            raise TimeoutError("timed out")
        return left_ns / clock.S


class Line:
    """A connected socket that yields stamped bytes."""

    def __init__(self, sock: socket.socket, way: Way) -> None:
        self.connect_ns = way.connect_ns
        self._sock = sock
        self._secure = isinstance(sock, ssl.SSLSocket)

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Hand all of it to the kernel. Raises OSError, TimeoutError among them."""
        self._sock.settimeout(deadline.left_s())
        self._sock.sendall(data)

    def read(self, deadline: Deadline) -> tuple[int, bytes, bool]:
        """(arrival in ns, bytes, whether the kernel stamped them); b"" is end of file. Raises OSError.

        Over TLS the stamp is taken after the read: the doctor waits for nothing else, so it is close.
        """
        self._sock.settimeout(deadline.left_s())
        if self._secure:
            data = self._sock.recv(READ_BYTES)
            return clock.wall_ns(), data, False
        data, ancillary, _, _ = self._sock.recvmsg(READ_BYTES, ANCILLARY_BYTES)
        if ancillary:
            seconds, nanoseconds = timespec(ancillary[0][2])
            return seconds * clock.S + nanoseconds, data, True
        return clock.wall_ns(), data, False

    def close(self) -> None:
        """Close at once."""
        self._sock.close()


def open_line(where: Endpoint, context: ssl.SSLContext | None, timeout_s: float) -> tuple[Line | None, Way]:
    """A fresh connection, or None; the Way says how it went in either case. Raises nothing of the network's."""
    way = Way()
    with contextlib.ExitStack() as opened:
        try:
            sock = _opened(where, context, way, Deadline(timeout_s), opened)
        except (OSError, ValueError) as error:  # ValueError: a name that no resolver or certificate could carry
            way.error = error
            return None, way
        opened.pop_all()
    return Line(sock, way), way


def _opened(
    where: Endpoint, context: ssl.SSLContext | None, way: Way, deadline: Deadline, opened: contextlib.ExitStack
) -> socket.socket:
    sock = _tcp(*(where.proxy or (where.hostname, where.port)), way, deadline)
    opened.callback(sock.close)
    way.kernel_stamps = ask_for_stamps(sock)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if where.proxy and where.secure:
        way.step = "proxy"
        began_ns = clock.mono_ns()
        _open_tunnel(sock, where, deadline)
        way.tunnel_ns = clock.mono_ns() - began_ns
    return sock if context is None else _tls(sock, where, context, way, deadline)


def _tcp(host: str, port: int, way: Way, deadline: Deadline) -> socket.socket:
    """The first address that accepts; each may take its share of the time that is left."""
    began_ns = clock.mono_ns()
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    way.resolve_ns = clock.mono_ns() - began_ns
    way.step, way.addresses = "tcp", len(found)
    failed = OSError("the name has no address")
    for tried, (family, kind, protocol, _, address) in enumerate(found):
        way.address = str(address[0])
        began_ns = clock.mono_ns()
        try:
            with _until_connected(family, kind, protocol) as sock:
                sock.settimeout(deadline.left_s() / (len(found) - tried))
                sock.connect(address)
        except OSError as error:
            failed = error
        else:
            way.tcp_ns = clock.mono_ns() - began_ns
            return sock
    raise failed


@contextlib.contextmanager
def _until_connected(family: int, kind: int, protocol: int) -> Iterator[socket.socket]:
    """A socket that is closed if the block fails."""
    sock = socket.socket(family, kind, protocol)
    try:
        yield sock
    except BaseException:
        sock.close()
        raise


def _open_tunnel(sock: socket.socket, where: Endpoint, deadline: Deadline) -> None:
    """HTTP CONNECT through the proxy. Raises OSError, ProxyRefused among them."""
    name = f"[{where.hostname}]" if ":" in where.hostname else where.hostname
    auth = f"Proxy-Authorization: {where.proxy_auth}\r\n" if where.proxy_auth else ""
    ask = f"CONNECT {name}:{where.port} HTTP/1.1\r\nHost: {name}:{where.port}\r\n{auth}\r\n"
    sock.settimeout(deadline.left_s())
    sock.sendall(ask.encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        sock.settimeout(deadline.left_s())
        piece = sock.recv(1)  # not a byte more: what follows belongs to TLS
        if not piece or len(answer) > READ_BYTES:
            raise ConnectionResetError(f"no answer to CONNECT: {answer[:80].decode('latin-1')!r}")
        answer += piece
    status = answer.split(b"\r\n", 1)[0].decode("latin-1")
    if status.split(" ")[1:2] != ["200"]:
        raise ProxyRefused(status)


def _tls(sock: socket.socket, where: Endpoint, context: ssl.SSLContext, way: Way, deadline: Deadline) -> socket.socket:
    way.step = "tls"
    sock.settimeout(deadline.left_s())
    began_ns = clock.mono_ns()
    secured = context.wrap_socket(sock, server_hostname=where.hostname)
    way.tls_ns = clock.mono_ns() - began_ns
    way.tls_version = secured.version() or ""
    way.certificate = secured.getpeercert() or {}
    return secured
