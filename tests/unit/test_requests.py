"""Requests as bytes: what a scenario may set, what it may not, and where the key stands."""

import json
from typing import Any

import pytest

from harness.model import Arrival, Fixed, Load, Phase, RequestSpec, RunHeader, Scenario, Target
from harness.run.requests import Requests
from harness.wire.endpoint import endpoint

ARRIVAL = Arrival(
    request_id=7,
    due_ns=0,
    level=0,
    phase=Phase.HOLD,
    slot=0,
    spec=RequestSpec(prompt="a river", prompt_tokens=2, output_tokens=9),
)


def written(
    host: str = "http://h.test:8000", proxy: str | None = None, key: str = "", **target: Any
) -> tuple[str, dict[str, str], dict[str, Any]]:
    scenario = Scenario(
        name="s",
        target=Target(**target),
        load=Load(loop="closed", levels=[1]),
        prompt_tokens=Fixed(tokens=2),
        output_tokens=Fixed(tokens=9),
    )
    header = RunHeader(run_id="r", version="0", scenario=scenario, host=host, model="m", started_ns=0)
    made = Requests(header, endpoint(host, proxy, "joe:pw"), key)
    head, body = made.encoded(ARRIVAL.request_id, ARRIVAL.spec).split(b"\r\n\r\n", 1)
    line, *lines = head.decode().split("\r\n")
    headers = dict(one.split(": ", 1) for one in lines)
    assert len(headers) == len(lines), "a header stands twice"
    assert int(headers["Content-Length"]) == len(body)
    return line, headers, json.loads(body)


def test_a_chat_request() -> None:
    line, headers, body = written()
    assert line == "POST /v1/chat/completions HTTP/1.1"
    assert headers["Host"] == "h.test:8000"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["X-Request-Id"] == "r-7"
    assert body == {
        "messages": [{"role": "user", "content": "a river"}],
        "model": "m",
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


def test_a_completions_request_without_stream() -> None:
    line, headers, body = written(dialect="openai-completions", stream=False)
    assert line == "POST /v1/completions HTTP/1.1"
    assert headers["Accept"] == "application/json"
    assert body["prompt"] == "a river"
    assert "stream_options" not in body


def test_body_fields_win_and_a_base_path_is_kept() -> None:
    line, _, body = written("https://h.test/llm/", body={"max_tokens": 3, "temperature": 0})
    assert line == "POST /llm/v1/chat/completions HTTP/1.1"
    assert (body["max_tokens"], body["temperature"]) == (3, 0)


def test_null_in_the_body_leaves_a_field_out() -> None:
    _, _, body = written(body={"stream_options": None})
    assert "stream_options" not in body


def test_scenario_headers_replace_ours_but_not_what_the_measurement_needs() -> None:
    _, headers, _ = written(headers={"user-agent": "me", "X-Team": "blue", "accept-encoding": "gzip", "Host": "evil"})
    assert headers["user-agent"] == "me"
    assert "User-Agent" not in headers
    assert headers["X-Team"] == "blue"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Host"] == "h.test:8000"


def test_the_key_goes_into_one_header_only() -> None:
    _, headers, body = written(key="sk-1")
    assert headers.pop("Authorization") == "Bearer sk-1"
    assert "sk-1" not in str(headers) + str(body)


def test_http_through_a_proxy_names_the_whole_url_and_logs_in() -> None:
    line, headers, _ = written(proxy="http://p.test:3128")
    assert line == "POST http://h.test:8000/v1/chat/completions HTTP/1.1"
    assert headers["Proxy-Authorization"] == "Basic am9lOnB3"
    _, headers, _ = written("https://h.test", proxy="http://p.test:3128")
    assert "Proxy-Authorization" not in headers, "the login belongs to CONNECT, not to the server"


@pytest.mark.parametrize(
    ("host", "proxy", "says"),
    [
        ("h.test", None, "expected a URL"),
        ("ftp://h.test", None, "expected a URL"),
        ("http://joe:pw@h.test", None, "--api-key-env"),
        ("http://h.test", "https://p.test", "only http://"),
        ("http://h.test", "http://joe:pw@p.test", "TOKENSWARM_PROXY_LOGIN"),
    ],
)
def test_endpoints_that_cannot_be(host: str, proxy: str | None, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        endpoint(host, proxy)
    assert "pw" not in str(raised.value)


def test_an_ipv6_authority_is_bracketed() -> None:
    assert endpoint("http://[::1]:80").authority == "[::1]"
    assert endpoint("https://[::1]:8443").authority == "[::1]:8443"
