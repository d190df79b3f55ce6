"""From `serve` and a setting to the words that start the server. Reads and writes a profile; runs nothing."""

import re
import shlex
import sys
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from harness.engine import profile as profiles
from harness.knee.map import Setting
from harness.model import Serve

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
SEQS, TOKENS, PORT, PROFILE = "max_num_seqs", "max_num_batched_tokens", "port", "profile"
KNOWN = (SEQS, TOKENS, PORT)
LOCAL = "127.0.0.1"
TEMPLATES: dict[str, list[str]] = {
    "engine": [sys.executable, "-m", "harness.cli", "engine", "{profile}", "--port", "{port}"],
    "llama.cpp": [
        *("llama-server", "--model", "{model}", "--parallel", "{max_num_seqs}"),
        *("--batch-size", "{max_num_batched_tokens}", "--host", LOCAL, "--port", "{port}", "--metrics"),
    ],
    "vllm": [
        *("vllm", "serve", "{model}", "--max-num-seqs", "{max_num_seqs}"),
        *("--max-num-batched-tokens", "{max_num_batched_tokens}", "--host", LOCAL, "--port", "{port}"),
    ],
}
NEEDS = {"engine": "the name or file of a profile", "llama.cpp": "a GGUF file", "vllm": "the model to serve"}
SECRET = re.compile(r"(auth|authorization|api_?key|token|secret|password)$", re.IGNORECASE)


class Template(Struct, frozen=True, kw_only=True):
    """A command line with placeholders, and the profile that it serves if it is the embedded engine's."""

    words: list[str]
    profile: profiles.Profile | None = None

    def has(self, name: str) -> bool:
        """Is this placeholder in it?"""
        return any(name in PLACEHOLDER.findall(word) for word in self.words)


def template(serve: Serve) -> Template:
    """The command of a hook. Raises ValueError, one line, for one that cannot work."""
    for name in serve.env:
        if SECRET.search(name):
            raise ValueError(f"serve.env.{name}: holds a secret; remove it here and export it where this command runs")
    if (serve.built_in is None) == (serve.command is None):
        both = "neither" if serve.command is None else "both"
        raise ValueError(f"serve: got {both} of built_in and command; expected one of the two")
    return _own(serve) if serve.built_in is None else _built_in(serve)


def _own(serve: Serve) -> Template:
    if serve.model is not None or serve.options:
        raise ValueError("serve: model and options belong to built_in; put them into command")
    return _checked("serve.command", _split("serve.command", serve.command or ""))


def _built_in(serve: Serve) -> Template:
    name = serve.built_in or ""
    if not serve.model:
        raise ValueError(f"serve.model: got none; expected {NEEDS[name]} for built_in {name}")
    words = [word.replace("{model}", serve.model) for word in TEMPLATES[name]]
    options = _checked("serve.options", _split("serve.options", serve.options), whole=False).words
    profile = profiles.load(serve.model) if name == "engine" else None
    return Template(words=[*words, *options], profile=profile)


def _split(place: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{place}: got {text!r}: {error}; expected words as a shell would read them") from None


def _checked(place: str, words: list[str], *, whole: bool = True) -> Template:
    """Braces that hold no name are left alone: JSON may stand in a command."""
    found = Template(words=words)
    unknown = [name for word in words for name in PLACEHOLDER.findall(word) if name not in KNOWN]
    if unknown:
        raise ValueError(f"{place}: got {{{unknown[0]}}}; expected {', '.join(f'{{{name}}}' for name in KNOWN)}")
    if whole and not found.has(SEQS):
        raise ValueError(f"{place}: has no {{{SEQS}}}, so every setting would be the same server; put it in")
    return found


def filled(form: Template, setting: Setting, *, port: int, profile_path: Path) -> list[str]:
    """The command line of one setting. The embedded engine's profile is written to `profile_path`."""
    if form.profile is not None:
        limited = structs.replace(form.profile, **structs.asdict(setting))
        profile_path.write_bytes(msgspec.json.format(msgspec.json.encode(limited)))  # JSON is YAML
    values = {SEQS: setting.max_num_seqs, TOKENS: setting.max_num_batched_tokens, PORT: port, PROFILE: profile_path}
    return [PLACEHOLDER.sub(lambda found: str(values.get(found[1], found[0])), word) for word in form.words]
