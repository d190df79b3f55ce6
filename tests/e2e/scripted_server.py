"""A server that plays a list: bytes are sent, numbers are pauses in seconds, words close the connection in some way."""

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Sequence

Step = bytes | float | str
RST = "rst"
CLOSE = "close"
HANG = "hang"
AGAIN = "again"
"""Wait for another request on the same connection."""


class ScriptedServer:
    """One script for each connection, in order; the last one repeats."""

    def __init__(self, scripts: Sequence[Sequence[Step]], *, family: int = socket.AF_INET,
                 tls: ssl.SSLContext | None = None) -> None:  # fmt: skip
        self._scripts = scripts
        self._tls = tls
        self._stop = threading.Event()
        self.requests: list[bytes] = []
        self.connections = 0
        self._listener = socket.socket(family)
        self._listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        self._listener.listen(64)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # each step is a segment of its own
            threading.Thread(target=self._serve, args=(sock, script), daemon=True).start()

    def _serve(self, sock: socket.socket, script: Sequence[Step]) -> None:
        with contextlib.suppress(OSError, ssl.SSLError), contextlib.closing(sock):
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            self._take_request(sock)
            for step in script:
                self._play(sock, step)
            with contextlib.closing(sock):
                pass

    def _play(self, sock: socket.socket, step: Step) -> None:
        if isinstance(step, bytes):
            sock.sendall(step)
        elif isinstance(step, float | int):
            self._stop.wait(step)
        elif step == RST:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif step == HANG:
            self._stop.wait(30)
        elif step == AGAIN:
            self._take_request(sock)

    def _take_request(self, sock: socket.socket) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            piece = sock.recv(65536)
            if not piece:
                raise OSError("closed")
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        wanted = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                wanted = int(line.split(b":")[1])
        while len(body) < wanted:
            body += sock.recv(65536)
        self.requests.append(head + b"\r\n\r\n" + body)


@contextlib.contextmanager
def serving(
    *scripts: Sequence[Step], family: int = socket.AF_INET, tls: ssl.SSLContext | None = None
) -> Iterator[ScriptedServer]:
    server = ScriptedServer(scripts, family=family, tls=tls)
    try:
        yield server
    finally:
        server.close()
