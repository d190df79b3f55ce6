"""One small question to a server, outside any measurement: which models does it serve? I/O, blocking or cooperative."""

import http.client
import json
import ssl
from typing import Any

from harness.wire.endpoint import Endpoint


class NoAnswer(Exception):
    """The server could not be asked, or answered with something else. The message is one line."""


def get(
    where: Endpoint, path: str, *, tls: ssl.SSLContext | None = None, api_key: str = "", timeout_s: float = 5.0
) -> tuple[int, bytes]:
    """(status, body) of a GET. Raises NoAnswer when there is no HTTP answer."""
    host, port = where.proxy or (where.hostname, where.port)
    headers = {"Host": where.authority, "Accept": "application/json", "Connection": "close"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    asked = where.base_path + path
    connection: http.client.HTTPConnection
    if where.secure:
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls)
        if where.proxy:
            auth = {"Proxy-Authorization": where.proxy_auth} if where.proxy_auth else {}
            connection.set_tunnel(where.hostname, where.port, headers=auth)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        if where.proxy:
            asked = f"http://{where.authority}{asked}"
            headers |= {"Proxy-Authorization": where.proxy_auth} if where.proxy_auth else {}
    try:
        connection.request("GET", asked, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(1 << 20)
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"{where.url}{path}: {error}") from None
    finally:
        connection.close()


def models(where: Endpoint, *, tls: ssl.SSLContext | None = None, api_key: str = "") -> list[str]:
    """Names that /v1/models lists. Raises NoAnswer."""
    status, body = get(where, "/v1/models", tls=tls, api_key=api_key)
    if status != 200:
        raise NoAnswer(f"{where.url}/v1/models: status {status}")
    try:
        listed: Any = json.loads(body)
        return [str(entry["id"]) for entry in listed["data"]]
    except (ValueError, KeyError, TypeError):
        raise NoAnswer(f"{where.url}/v1/models: not a list of models") from None
