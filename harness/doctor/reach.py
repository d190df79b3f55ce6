"""The way to the server as findings: name, TCP, proxy, TLS, kernel stamps, clock. No clock, no I/O."""

import ipaddress
import socket
import ssl
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from harness import clock
from harness.doctor.finding import Finding, bad, good, ms, note, one_line
from harness.doctor.seen import Look, ProxyRefused, Way
from harness.model import Target
from harness.wire.endpoint import Endpoint

FAR_NS = 20 * clock.MS
"""A round trip that is worth a note."""
EXPIRES_SOON_DAYS = 14
CLOCK_S = 2.0
"""Offset that is worth a note; the Date header has whole seconds."""

EXPIRED = 10
NOT_YET_VALID = 9
WRONG_NAME = (62, 64)
"""OpenSSL's verify codes; nearly all others mean that no trusted authority signed."""

NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST",
                    "UNEXPECTED_EOF_WHILE_READING"})  # fmt: skip
"""OpenSSL's reasons when the peer answers a hello with something else, or by leaving."""


def reach_findings(where: Endpoint, target: Target, way: Way, now_ns: int) -> list[Finding]:
    """One finding for each step that was tried, in order; the last is bad if the way ended there."""
    steps = {"name": _name, "tcp": _tcp, "proxy": _proxy}
    found: list[Finding] = []
    for step, finding in steps.items():
        if way.error is not None and way.step == step:
            return [*found, _failed(where, way)]
        if step != "proxy" or where.proxy:
            found.append(finding(where, way))
    if way.error is not None:
        return [*found, _failed(where, way)]
    return [*found, _tls(where, target, way, now_ns)]


def _peer(where: Endpoint) -> str:
    host, port = where.proxy or (where.hostname, where.port)
    name = f"[{host}]" if ":" in host else host
    return f"proxy {name}:{port}" if where.proxy else f"{name}:{port}"


def _name(where: Endpoint, way: Way) -> Finding:
    host = (where.proxy or (where.hostname, 0))[0]
    if _is_number(host):
        return good("name", f"{host} is an address: nothing to resolve")
    several = f", one of {way.addresses} addresses" if way.addresses > 1 else ""
    return good("name", f"{host} is {way.address}{several}, resolved in {ms(way.resolve_ns or 0)}")


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _tcp(where: Endpoint, way: Way) -> Finding:
    took_ns = way.tcp_ns or 0
    what = f"connected to {_peer(where)} ({way.address}) in {ms(took_ns)}"
    if took_ns < FAR_NS:
        return good("tcp", what)
    return note("tcp", what, "every TTFT includes about that much network; run the harness nearer to the server")


def _proxy(where: Endpoint, way: Way) -> Finding:
    how = f"a tunnel, opened in {ms(way.tunnel_ns)}" if way.tunnel_ns is not None else "plain HTTP"
    return note(
        "proxy", f"requests go through {_peer(where)}: {how}", "every time includes the proxy; leave it out if you can"
    )


def _tls(where: Endpoint, target: Target, way: Way, now_ns: int) -> Finding:
    if not where.secure:
        return _no_tls(where, target)
    seen = f"{way.tls_version}, handshake in {ms(way.tls_ns or 0)}"
    if not way.certificate:
        return note("tls", f"{seen}; certificate not verified", "set verify_tls: true; for an own authority --ca-file")
    days = (ssl.cert_time_to_seconds(way.certificate["notAfter"]) - now_ns / clock.S) / 86400
    what = f"{seen}; certificate for {_subject(way.certificate)} is trusted, {days:.0f} days left"
    if days >= EXPIRES_SOON_DAYS:
        return good("tls", what)
    return note("tls", what, "renew the certificate before it expires")


def _no_tls(where: Endpoint, target: Target) -> Finding:
    local = where.hostname == "localhost" or where.hostname.startswith("127.") or where.hostname == "::1"
    if local or not target.api_key_env:
        return good("tls", "none: plain http://")
    return note("tls", "none: the API key travels in clear text", "use https:// if the server has it")


def _subject(certificate: Any) -> str:
    names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    return one_line(names[0]) if names else "an unnamed subject"


# --- where it ended ---------------------------------------------------------------------------------------------------


def _failed(where: Endpoint, way: Way) -> Finding:
    error = way.error
    if isinstance(error, ssl.SSLError):
        return bad("tls", *_tls_words(where, error))
    if way.step == "name":
        host = (where.proxy or (where.hostname, 0))[0]
        why = error.strerror if isinstance(error, socket.gaierror) and error.strerror else str(error)
        what = f"{one_line(host)} does not resolve: {one_line(why)}"
        return bad("name", what, "check the spelling; if only a proxy can reach it: --proxy URL")
    if isinstance(error, ProxyRefused):
        what = f"{_peer(where)} refused the tunnel: {one_line(str(error))}"
        return bad("proxy", what, _proxy_remedy(str(error)))
    return bad(way.step, *_tcp_words(where, way))


def _proxy_remedy(status: str) -> str:
    if " 407" in status:
        return "put user:password into TOKENSWARM_PROXY_LOGIN"
    return "ask for a rule that lets CONNECT through to this host and port, or leave --proxy out"


def _tcp_words(where: Endpoint, way: Way) -> tuple[str, str]:
    error, peer = way.error, _peer(where)
    if isinstance(error, ConnectionRefusedError):
        return (
            f"{peer} ({way.address}) refuses connections",
            "start the server, or correct the port; in a container it must listen on 0.0.0.0",
        )
    if isinstance(error, TimeoutError):
        during = {"tcp": "connecting", "proxy": "CONNECT", "tls": "the TLS handshake"}[way.step]
        return (
            f"{peer} ({way.address}): no answer to {during} in time",
            "check firewall, route and port; or --proxy URL",
        )
    if way.step == "tls":
        return f"{peer} closed the connection during the TLS handshake", "if the server has no TLS, use http://"
    why = getattr(error, "strerror", None) or str(error)
    remedy = "is that an HTTP proxy? check --proxy" if way.step == "proxy" else "check that this network is reachable"
    return f"{peer}: {one_line(why)}", remedy


def _tls_words(where: Endpoint, error: ssl.SSLError) -> tuple[str, str]:
    if isinstance(error, ssl.SSLCertVerificationError):
        what = f"certificate not accepted: {one_line(error.verify_message)}"
        if error.verify_code in (EXPIRED, NOT_YET_VALID):
            return what, "renew the certificate, and check this machine's clock"
        if error.verify_code in WRONG_NAME:
            return what, "use the name in the certificate as --host"
        return what, "give the authority that signed it: --ca-file FILE"
    reason = str(error.reason or error)
    if reason in NO_TLS:
        return f"{where.authority} does not speak TLS ({reason})", "use http:// in --host"
    return f"handshake failed: {one_line(reason)}", "check which TLS versions and certificates the server takes"


# --- what the looks say about the way ---------------------------------------------------------------------------------


def stamps_finding(where: Endpoint, way: Way, looks: Sequence[Look]) -> Finding:
    """Does the kernel stamp arrivals on this machine?"""
    remedy = "run the harness on Linux 4.14 or later: stamps are taken after the read, and include this client's delays"
    if not way.kernel_stamps:
        return note("stamps", "the kernel does not stamp arrivals", remedy)
    sources = {look.record.stamp_source for look in looks} - {""}
    if where.secure or "kernel" in sources:
        return good("stamps", "the kernel stamps arrivals (SO_TIMESTAMPNS)")
    if not sources:
        return good("stamps", "the kernel agreed to stamp arrivals; nothing arrived")
    return note("stamps", "the kernel agreed to stamp arrivals, and does not", remedy)


def clock_finding(looks: Sequence[Look]) -> Finding:
    """Server's clock − ours, from the Date header.

    Date is read between start and headers, and is cut to whole seconds: the offset lies between Date − headers and
    Date + 1 s − start. Only an interval wholly beyond ± `CLOCK_S` is worth a note.
    """
    bounds = [bound for look in looks if (bound := _offset_s(look)) is not None]
    if not bounds:
        return note("clock", "no Date header: clocks not compared", "compare server logs with the record log with care")
    low, high = min(bounds, key=lambda bound: bound[1] - bound[0])
    off = round((low + high) / 2, 1) + 0.0  # + 0.0: never "-0.0"
    what = f"server's clock − ours = {off:+.1f} s (± {(high - low) / 2:.1f} s, from the Date header)"
    if low <= CLOCK_S and high >= -CLOCK_S:
        return good("clock", what)
    return note("clock", what, "run NTP on both machines; until then server logs and the record log do not line up")


def _offset_s(look: Look) -> tuple[float, float] | None:
    record = look.record
    if record.start_ns is None or record.headers_ns is None:
        return None
    try:
        date_s = parsedate_to_datetime(look.headers.get("date", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return date_s - record.headers_ns / clock.S, date_s + 1 - record.start_ns / clock.S
