"""Which targets are understood, and that every other one is refused in one line that shows no secret."""

import base64

import pytest

from harness.export.influx.target import Options, Target, TargetError

SECRET = "s3cret-words"


@pytest.mark.parametrize(
    ("given", "url", "database"),
    [
        ("http://127.0.0.1:8086/runs", "http://127.0.0.1:8086", "runs"),
        ("https://influx.example/runs/", "https://influx.example", "runs"),
        ("http://[::1]:8181/a%20b%2Fc", "http://[::1]:8181", "a b/c"),
        ("https://proxy.example/influx/x/runs", "https://proxy.example/influx/x", "runs"),
        ("http://host:8086/größe", "http://host:8086", "größe"),
    ],
)
def test_a_url_names_server_and_database(given: str, url: str, database: str) -> None:
    target = Target.parse(given)
    assert (target.url, target.database, target.version) == (url, database, "auto")
    assert target.named == f"{url}/{database}"
    assert target.tls == given.startswith("https")


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("127.0.0.1:8086/runs", {}, "expected a URL such as"),
        ("ftp://host/runs", {}, "expected a URL such as"),
        ("http:///runs", {}, "expected a URL such as"),
        ("http://host:port/runs", {}, "expected a URL such as"),
        ("http://host:99999/runs", {}, "expected a URL such as"),
        ("http://ho st/runs", {}, "expected a URL such as"),
        ("http://[::1/runs", {}, "expected a URL such as"),
        ("http://host:8086", {}, "names no database or bucket"),
        ("http://host:8086/", {}, "names no database or bucket"),
        ("http://host/runs?db=x", {}, "query or fragment"),
        ("http://host/runs#x", {}, "query or fragment"),
        (f"http://user:{SECRET}@host/runs", {}, "credentials in the URL; take them out and set TOKENSWARM_"),
        (f"ftp://{SECRET}@host:x/runs", {}, "credentials in the URL"),
        ("http://host/runs", {"version": "4"}, "got '4', expected one of auto, 1, 2, 3"),
        ("http://host/runs", {"token": SECRET, "user": "me"}, "both a token and a user"),
        ("http://host/runs", {"password": SECRET}, "a password without a user"),
        ("http://host/runs", {"user": "a:b", "password": SECRET}, "holds a colon"),
        ("http://host/runs", {"token": f"{SECRET} x"}, "characters that no token has"),
        ("http://host/runs", {"token": f"{SECRET}ä"}, "characters that no token has"),
        ("http://host/runs", {"version": "1", "token": SECRET}, "1.x knows no tokens"),
        ("http://host/runs", {"version": "3", "user": "me", "password": SECRET}, "takes a token"),
        ("http://host/runs", {"version": "2", "token": SECRET}, "needs the organisation"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(url: str, options: Options, words: str) -> None:
    with pytest.raises(TargetError) as refused:
        Target.parse(url, **options)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_number_is_a_version_too() -> None:
    assert Target.parse("http://host/runs", version=1).version == "1"


def test_a_target_never_shows_its_secrets() -> None:
    by_token = Target.parse("http://host/runs", token=f" {SECRET}\n", org="lab")
    by_user = Target.parse("http://host/runs", user="me", password=SECRET)
    login = base64.b64encode(f"me:{SECRET}".encode()).decode()
    for target in (by_token, by_user):
        assert SECRET not in repr(target) + str(target) + f"{[target]}"
    assert by_token.without_secrets(f"no {SECRET}!") == "no ***!"
    assert by_user.without_secrets(f"{SECRET} Basic {login}") == "*** Basic ***"
    assert Target.parse("http://host/runs").without_secrets("as it is") == "as it is"


def test_who_we_are_is_said_as_each_version_wants_it() -> None:
    by_token = Target.parse("http://host/runs", token=SECRET)
    by_user = Target.parse("http://host/runs", user="me", password="größe")
    assert by_token.authorization("2") == by_token.authorization("3") == {"Authorization": f"Token {SECRET}"}
    assert by_token.authorization("1") == {} == by_user.authorization("2")
    assert by_user.authorization("1") == {"Authorization": "Basic " + base64.b64encode("me:größe".encode()).decode()}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.8.8.8"])
def test_this_machine_is_known(host: str) -> None:
    assert Target.parse(f"http://{host}:8086/runs").loopback
    assert not Target.parse(f"http://db.{host.strip('[]').replace(':', '')}.example/runs").loopback
