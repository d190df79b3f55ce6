"""Why a database takes no points, and what its owner can do about it, in one line. No clock, no I/O."""

from harness.export.influx.answer import Answer, database_is_missing
from harness.export.influx.target import Target, Version


class Refused(Exception):
    """The database takes no points until a person acts. One line: which, what it said, remedy; never a secret."""


def refusal(answer: Answer, target: Target, version: Version | None) -> Refused:
    """For an answer that means REFUSED; `version` is the way of writing that got it."""
    said = f"{target.named}: answered {answer}" if answer.status else f"{target.named}: {answer.message}"
    return Refused(target.without_secrets(f"{said}; {_remedy(answer, target, version)}"))


def _remedy(answer: Answer, target: Target, version: Version | None) -> str:
    status = answer.status
    if status is None:
        return "check http or https in the URL, or give the CA file that the server's certificate was signed with"
    if status == 401:
        return f"set {_rights(target, version)}"
    if status == 403:
        return f"give {'this user' if version == '1' else 'the token'} the right to write to {target.database!r}"
    if database_is_missing(answer):
        return f'create it with the rights of an admin: CREATE DATABASE "{target.database}"'
    if status == 400 and not answer.code:
        return "check http or https in the URL"
    if status == 400 or (status == 404 and answer.code):
        return f"create the bucket {target.database!r}, or correct its name or TOKENSWARM_INFLUX_ORG ({target.org!r})"
    if status in (404, 405):
        return "nothing there takes points: check the URL and the Influx version (auto, 1, 2, 3)"
    if 300 <= status < 400:
        return "give the address that it redirects to"
    if status == 200:
        return "an InfluxDB answers 204: check the URL, something else may be listening there"
    return "check the URL and what stands between here and the database"


def _rights(target: Target, version: Version | None) -> str:
    if target.user or version == "1":
        return "TOKENSWARM_INFLUX_USER and TOKENSWARM_INFLUX_PASSWORD to a user that may write"
    if target.token:
        return "TOKENSWARM_INFLUX_TOKEN to a token that may write (this one was not accepted)"
    return "TOKENSWARM_INFLUX_TOKEN (2.x, 3), or TOKENSWARM_INFLUX_USER and TOKENSWARM_INFLUX_PASSWORD (1.x)"
