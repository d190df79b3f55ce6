"""The two ways of writing: /write of InfluxDB 1.x, and /api/v2/write by influxdb-client. I/O, no clock."""

import gzip
import ssl
from typing import Protocol
from urllib.parse import urlencode

import urllib3
from influxdb_client.client.influxdb_client import InfluxDBClient
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException
from urllib3.exceptions import HTTPError, InsecureRequestWarning, TimeoutError

from harness.export.influx.answer import MOST_WORDS, Answer, answer_of
from harness.export.influx.target import Target, TargetError, Version

CONNECT_S = 5.0
_PLAIN = {"Content-Type": "text/plain; charset=utf-8"}
_GZIP = {"Content-Encoding": "gzip"}


class Way(Protocol):
    """Takes line protocol with stamps in ns to the target. One request a call, never repeated in here."""

    def write(self, body: bytes) -> Answer: ...

    def close(self) -> None: ...


class PlainWay:
    """/write, as 1.x and 1.8 have it."""

    def __init__(self, target: Target, answer_within_s: float) -> None:
        self._target = target
        self._pool = pool_of(target, answer_within_s)
        self._headers = _PLAIN | target.authorization("1") | ({} if target.loopback else _GZIP)

    def write(self, body: bytes) -> Answer:
        query = urlencode({"db": self._target.database, "precision": "ns"})
        try:
            response = self._pool.request(
                "POST", f"{self._target.url}/write?{query}", body=packed(self._target, body), headers=self._headers
            )
        except HTTPError as error:
            return Answer(status=None, message=trouble(error))
        return answer_of(response.status, response.headers, response.data.decode(errors="replace"))

    def close(self) -> None:
        self._pool.clear()


class ClientWay:
    """/api/v2/write, as 2.x, 3, 1.8 and VictoriaMetrics have it, through influxdb-client."""

    def __init__(self, target: Target, answer_within_s: float) -> None:
        self._target = target
        self._client = InfluxDBClient(
            target.url,
            token=target.token,
            org=target.org,
            timeout=(int(CONNECT_S * 1000), int(answer_within_s * 1000)),
            verify_ssl=target.verify_tls,
            ssl_ca_cert=target.ca_file or None,
            retries=False,
        )
        if not target.loopback:  # the client's own switch compresses at level 9: seven times the CPU for 15 % less
            self._client.api_client.default_headers.update(_GZIP)
        self._writes = self._client.write_api(write_options=SYNCHRONOUS)

    def write(self, body: bytes) -> Answer:
        try:
            self._writes.write(self._target.database, self._target.org, packed(self._target, body))
        except ApiException as error:
            if not error.status:
                return Answer(status=None, message=trouble(error))
            return answer_of(error.status, error.headers, error.body or "")
        except HTTPError as error:
            return Answer(status=None, message=trouble(error))
        except UnicodeDecodeError:
            return Answer(status=None, message="the answer is no text")
        response = self._client.api_client.last_response
        return answer_of(response.status, response.getheaders(), "")

    def close(self) -> None:
        self._client.close()  # type: ignore[no-untyped-call]  # the client annotates what takes arguments only


WAYS: dict[Version, type[PlainWay] | type[ClientWay]] = {"1": PlainWay, "2": ClientWay, "3": ClientWay}


def pool_of(target: Target, answer_within_s: float) -> urllib3.PoolManager:
    """Connections to the target, without repetitions, redirections or proxies. TargetError: no usable CA file."""
    timeout = urllib3.Timeout(connect=CONNECT_S, read=answer_within_s)
    if not target.tls:
        return urllib3.PoolManager(retries=False, timeout=timeout)
    _check_ca_file(target)
    if not target.verify_tls:
        urllib3.disable_warnings(InsecureRequestWarning)  # it was asked for, once is enough
    return urllib3.PoolManager(
        retries=False,
        timeout=timeout,
        cert_reqs="CERT_REQUIRED" if target.verify_tls else "CERT_NONE",
        ca_certs=target.ca_file or None,
    )


def packed(target: Target, body: bytes) -> bytes:
    """The body as it travels: level 1 saves four fifths of the bytes; on loopback it saves nothing."""
    return body if target.loopback else gzip.compress(body, 1, mtime=0)


def trouble(error: BaseException) -> str:
    """Why nobody answered, in the words of the system where it has some."""
    causes = _causes(error)
    if words := [each.strerror for each in causes if isinstance(each, OSError) and each.strerror]:
        return words[0]
    if any(isinstance(each, TimeoutError) for each in causes):  # asked last: a refused connection is one to urllib3
        return "no answer in time"
    return " ".join(str(error).split())[:MOST_WORDS]


def _causes(error: BaseException) -> list[BaseException]:
    """This error and what led to it: urllib3 puts causes into arguments as well."""
    found, at = [error], 0
    while at < len(found):
        more = [found[at].__cause__, found[at].__context__, *found[at].args, getattr(found[at], "reason", None)]
        found += [each for each in more if isinstance(each, BaseException) and each not in found]
        at += 1
    return found


def _check_ca_file(target: Target) -> None:
    try:
        ssl.create_default_context(cafile=target.ca_file or None)
    except OSError as error:
        why = error.strerror or "it holds no certificate"
        raise TargetError(f"influx CA file: cannot use {target.ca_file!r} ({why}); expected PEM certificates") from None
