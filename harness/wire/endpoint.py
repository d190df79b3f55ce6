"""Where to connect and how: a parsed base URL, TLS and proxy. No clock, no I/O beyond reading a CA file."""

import base64
import ssl
from urllib.parse import urlsplit

from msgspec import Struct

from harness.model import Target

PROXY_LOGIN = "TOKENSWARM_PROXY_LOGIN"
"""Environment variable with user:password for the proxy; read by the entry points."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """A server and the way to it."""

    secure: bool
    hostname: str
    port: int
    base_path: str = ""
    proxy: tuple[str, int] | None = None
    proxy_auth: str = ""
    """Value of Proxy-Authorization, or "". A secret."""

    @property
    def authority(self) -> str:
        """host:port for the Host header; IPv6 in brackets, default ports left out."""
        name = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return name if self.port == (443 if self.secure else 80) else f"{name}:{self.port}"

    @property
    def url(self) -> str:
        """Without credentials."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.base_path}"


def endpoint(host: str, proxy: str | None = None, proxy_login: str = "") -> Endpoint:
    """Parse a base URL and an optional proxy URL; `proxy_login` is user:password. Raises ValueError, one clear line."""
    parts = urlsplit(host)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"host: got {host!r}, expected a URL such as http://127.0.0.1:8000")
    if parts.username or parts.password:
        raise ValueError(
            "host: credentials in the URL; put the key into an environment variable and name it with --api-key-env"
        )
    secure = parts.scheme == "https"
    via = urlsplit(proxy) if proxy else None
    if via is not None and (via.scheme != "http" or not via.hostname):
        raise ValueError("proxy: expected a URL such as http://127.0.0.1:3128 (only http:// proxies)")
    if via is not None and via.username:
        raise ValueError("proxy: credentials in the URL; put user:password into TOKENSWARM_PROXY_LOGIN")
    return Endpoint(
        secure=secure,
        hostname=parts.hostname,
        port=parts.port or (443 if secure else 80),
        base_path=parts.path.rstrip("/"),
        proxy=(via.hostname or "", via.port or 80) if via else None,
        proxy_auth="Basic " + base64.b64encode(proxy_login.encode()).decode() if via and proxy_login else "",
    )


def tls_context(target: Target) -> ssl.SSLContext:
    """Verification is on unless the target says otherwise. Raises ValueError when the CA file cannot be read."""
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
    except OSError as error:
        raise ValueError(f"ca_file: cannot read {target.ca_file}: {error}") from None
    if not target.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
