"""Which database to write to and with whose rights, checked before anything is sent. No clock, no I/O."""

import base64
import re
from typing import Literal, TypedDict, Unpack, get_args
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

Version = Literal["1", "2", "3"]
Wanted = Literal["auto", "1", "2", "3"]

_EXAMPLE = "expected a URL such as http://127.0.0.1:8086/tokenswarm"
_IN_ENVIRONMENT = "TOKENSWARM_INFLUX_TOKEN, or TOKENSWARM_INFLUX_USER and TOKENSWARM_INFLUX_PASSWORD"


class TargetError(ValueError):
    """A target that cannot be used. One line: what, got, expected, remedy; never a secret."""


class Options(TypedDict, total=False):
    """What belongs to a target besides its URL. Blank is the same as absent."""

    version: str | int
    """auto (found out by a test write), 1, 2 or 3."""
    org: str
    """Organisation: InfluxDB 2.x only."""
    token: str
    """InfluxDB 2.x and 3."""
    user: str
    """InfluxDB 1.x."""
    password: str
    verify_tls: bool
    ca_file: str


class Target(Struct, frozen=True, kw_only=True):
    """A database (1.x, 3) or bucket (2.x) on a server. Made by `parse`, which is where it is checked."""

    url: str
    """Of the server: no credentials, no database, no slash at the end."""
    database: str
    version: Wanted = "auto"
    org: str = ""
    token: str = ""
    """A secret, as is the password: neither appears in `repr` or in a message."""
    user: str = ""
    password: str = ""
    verify_tls: bool = True
    ca_file: str = ""

    def __repr__(self) -> str:
        return f"Target({self.named!r}, version={self.version!r})"

    @classmethod
    def parse(cls, url: str, **options: Unpack[Options]) -> "Target":
        """`http[s]://HOST[:PORT][/PREFIX]/DATABASE` and options. TargetError: they make no usable target."""
        parts = _split(url)
        prefix, _, database = parts.path.rstrip("/").rpartition("/")
        if not database:
            raise TargetError(f"influx: got {url!r}, which names no database or bucket; {_EXAMPLE}")
        target = cls(
            url=f"{parts.scheme}://{_authority(parts)}{prefix.rstrip('/')}",
            database=unquote(database),
            version=_version(str(options.get("version") or "auto")),
            org=options.get("org", "").strip(),
            token=options.get("token", "").strip(),
            user=options.get("user", ""),
            password=options.get("password", ""),
            verify_tls=options.get("verify_tls", True),
            ca_file=options.get("ca_file", ""),
        )
        _check_rights(target)
        return target

    @property
    def named(self) -> str:
        """How messages call it."""
        return f"{self.url}/{self.database}"

    @property
    def loopback(self) -> bool:
        """On this machine: bytes cost nothing, so they are sent as they are."""
        host = urlsplit(self.url).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")

    @property
    def tls(self) -> bool:
        return self.url.startswith("https:")

    def authorization(self, version: Version) -> dict[str, str]:
        """The header by which a server of this version knows us; a secret. Empty: nothing was given."""
        if version != "1":
            return {"Authorization": f"Token {self.token}"} if self.token else {}
        if not self.user:
            return {}
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {"Authorization": f"Basic {login}"}

    def without_secrets(self, text: str) -> str:
        """This text, in case a server repeats what it was sent."""
        for secret in (self.token, self.password, *self.authorization("1").values()):
            text = text.replace(secret.removeprefix("Basic "), "***") if secret else text
        return text


def _split(url: str) -> SplitResult:
    """TargetError: not a URL of a server. Credentials are looked for first, so that none is repeated in a message."""
    if re.match(r"[^/?#]*//[^/?#]*@", url):
        raise TargetError(f"influx: credentials in the URL; take them out and set {_IN_ENVIRONMENT}")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise TargetError(f"influx: got {url!r} ({error}); {_EXAMPLE}") from None
    if parts.scheme not in ("http", "https") or not host or re.search(r"[\s\x00-\x1f]", url):
        raise TargetError(f"influx: got {url!r}; {_EXAMPLE}")
    if parts.query or parts.fragment:
        raise TargetError(f"influx: the URL has a query or fragment; {_EXAMPLE}; the rest is set by options")
    return parts


def _authority(parts: SplitResult) -> str:
    host = parts.hostname or ""
    name = f"[{host}]" if ":" in host else host
    return name if parts.port is None else f"{name}:{parts.port}"


def _version(text: str) -> Wanted:
    for known in get_args(Wanted):
        if text == known:
            return known  # type: ignore[no-any-return]  # get_args forgets what the literals are
    raise TargetError(f"influx version: got {text!r}, expected one of {', '.join(get_args(Wanted))}")


def _check_rights(target: Target) -> None:
    if target.token and target.user:
        raise TargetError("influx: both a token and a user; give the token (2.x, 3) or user and password (1.x)")
    if target.password and not target.user:
        raise TargetError("influx: a password without a user; set TOKENSWARM_INFLUX_USER")
    if ":" in target.user:
        raise TargetError(f"influx user: got {target.user!r}, which holds a colon; HTTP cannot carry such a name")
    if not re.fullmatch(r"[!-~]*", target.token):
        raise TargetError("influx token: has characters that no token has; copy it again, without quotes or blanks")
    if target.version == "1" and target.token:
        raise TargetError("influx: InfluxDB 1.x knows no tokens; set TOKENSWARM_INFLUX_USER and _PASSWORD instead")
    if target.version in ("2", "3") and target.user:
        raise TargetError(f"influx: InfluxDB {target.version} takes a token; set TOKENSWARM_INFLUX_TOKEN instead")
    if target.version == "2" and not target.org:
        raise TargetError("influx: InfluxDB 2.x needs the organisation of the bucket; set TOKENSWARM_INFLUX_ORG")
