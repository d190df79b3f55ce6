"""Scenario text: what is accepted, what each mistake says, overrides, the ladder, the schema, the shipped files."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, inspect

from harness import scenario
from harness.model import Fixed, Ladder, Load, Scenario, Slo, Uniform
from harness.scenario import Quick, ScenarioError

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SHIPPED = ("batch", "chat", "code-completion", "demo")
SMALL = """
name: small
load: {loop: closed, levels: [1, 2]}
prompt_tokens: 5
output_tokens: {dist: uniform, min: 3, max: 4}
"""


def complaint(text: str, *overrides: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        scenario.parse(text, source="chat.yaml", overrides=overrides)
    return str(caught.value)


def with_part(part: str) -> str:
    """SMALL with the top-level key of this part replaced by it."""
    tree = yaml.safe_load(SMALL)
    return yaml.safe_dump({**tree, **yaml.safe_load(part)})


# --- what is accepted -------------------------------------------------------------------------------------------------


def test_small_scenario() -> None:
    read = scenario.parse(SMALL)
    assert read == Scenario(
        name="small",
        load=Load(loop="closed", levels=[1, 2]),
        prompt_tokens=Fixed(tokens=5),
        output_tokens=Uniform(min=3, max=4),
    )


def test_anchors_are_copied_not_shared() -> None:
    text = SMALL + "seed: 2\n"
    text = text.replace("prompt_tokens: 5", "prompt_tokens: &both {dist: uniform, min: 1, max: 9}")
    text = text.replace("{dist: uniform, min: 3, max: 4}", "*both")
    read = scenario.parse(text, overrides=["prompt_tokens.max=7"])
    assert (read.prompt_tokens, read.output_tokens) == (Uniform(min=1, max=7), Uniform(min=1, max=9))


@pytest.mark.parametrize(
    "part",
    [
        "target: {host: 'https://example.test:8443/base', api_key_env: LLM_KEY, headers: {X-Team: red}}",
        "target: {engine: demo, body: {stream: true, stop: [a, null], top_p: 0.5}}",
        "target: {stream: false, body: {stream: false}}",
        "target: {proxy: 'http://127.0.0.1:3128', path: /v2/chat}",
        "load: {loop: closed, levels: [4, 1, 4], arrivals: constant, think_s: 2}",
        "load: {loop: open, levels: [0.5, 2.25]}",
        "load: {loop: closed, ladder: {to: 1}}",
        "load: {loop: closed, ladder: {to: 8}, levels: null}",
        "phases: {warmup_s: 2, ramp_s: 2, drain_s: 0}",
        "prompt_tokens: {dist: choice, tokens: [1, 2], weights: [3, 0.5]}",
        "prompt_tokens: {dist: quantiles, shares: [0, 0.5, 1], tokens: [7, 7, 9]}",
        "prompt_tokens: {dist: lognormal, median: 100, sigma: 1}",
        "prompt_tokens: {dist: exponential, mean: 100, max: 1000000}",
        "prices: {per_hour: 0}",
        "name: 2024-01-01",
    ],
)
def test_accepted_and_dumped_without_loss(part: str) -> None:
    read = scenario.parse(with_part(part))
    assert scenario.parse(scenario.dump(read)) == read


# --- what each mistake says -------------------------------------------------------------------------------------------

MISTAKES = {
    "load: {loop: closed, ladder: {to: 4, factr: 3}}": (
        'load.ladder.factr: unknown key; did you mean "factor"? valid here: from, to, factor'
    ),
    "lod: {}": 'lod: unknown key; did you mean "load" or "slo"? valid here: name, about, target, load, ',
    "prompt_tokens: {dist: fixed, tokens: 4, zz: 3}": "prompt_tokens.zz: unknown key; valid here: dist, tokens",
    "target: {timeouts: {conect_s: 3}}": 'target.timeouts.conect_s: unknown key; did you mean "connect_s"?',
    "load: {levels: [1]}": 'load.loop: missing required key; expected "closed" or "open"',
    "load: {loop: closed, ladder: {factor: 2}}": "load.ladder.to: missing required key; expected a number > 0",
    "prices: {}": "prices.per_hour: missing required key; expected a number >= 0",
    "load: {loop: opn, levels: [1]}": ('load.loop: got "opn"; expected "closed" or "open"; did you mean "open"?'),
    "load: {loop: closed, levels: ['5']}": (
        'load.levels[0]: got "5"; expected a number > 0; write it as 5, without quotes'
    ),
    "phases: {hold_s: 1e3}": 'phases.hold_s: got "1e3"; expected a number > 0; write it as 1000, without quotes',
    "phases: {hold_s: '2.5'}": 'phases.hold_s: got "2.5"; expected a number > 0; write it as 2.5, without quotes',
    "phases: {hold_s: soon}": 'phases.hold_s: got "soon"; expected a number > 0',
    "phases: {hold_s: nan}": 'phases.hold_s: got "nan"; expected a number > 0',
    "seed: true": "seed: got true; expected a whole number",
    "seed: 1.5": "seed: got 1.5; expected a whole number",
    "seed: null": "seed: got null; expected a whole number",
    "seed: -1": "seed: got -1; expected a whole number >= 0",
    "seed: 99999999999999999999": "seed: got a whole number of more than 63 bits",
    "ignore_eos: 1": "ignore_eos: got 1; expected true or false",
    "slo: {ttft_p99_ms: -3}": "slo.ttft_p99_ms: got -3; expected a number > 0 or null",
    "slo: {error_share: 1.5}": "slo.error_share: got 1.5; expected a number >= 0 and <= 1 or null",
    "slo: {ttft_p99_ms: .inf}": "slo.ttft_p99_ms: got inf; expected a finite number",
    "target: {body: {a: [1, .nan]}}": "target.body.a[1]: got nan; expected a finite number",
    "target: {headers: {X-A: 3}}": "target.headers.X-A: got 3; expected text",
    "target: {headers: {3: x}}": "target.headers: got the key 3; expected text",
    "load: {loop: closed, levels: 3}": "load.levels: got 3; expected a list, each item a number > 0 or null",
    "target: []": "target: got []; expected a mapping",
    "prompt_tokens: 0": "prompt_tokens.tokens: got 0; expected a whole number >= 1",
    "prompt_tokens: 2.5": "prompt_tokens.tokens: got 2.5; expected a whole number >= 1",
    "prompt_tokens: true": "prompt_tokens: got true; expected a whole number >= 1 or a mapping with dist",
    "prompt_tokens: {dist: unifrm}": 'prompt_tokens.dist: got "unifrm"; expected "fixed" or "uniform" or "lognormal"',
    "prompt_tokens: {tokens: 3}": 'prompt_tokens.dist: missing required key; expected "fixed" or "uniform"',
    "prompt_tokens: {dist: uniform, min: 5, max: 3}": "prompt_tokens.min: got 5; expected at most max, 3",
    "prompt_tokens: {dist: lognormal, median: 5, sigma: 1, min: 9, max: 8}": "prompt_tokens.min: got 9",
    "prompt_tokens: {dist: exponential, mean: 5, min: 9, max: 8}": "prompt_tokens.min: got 9",
    "prompt_tokens: {dist: quantiles, shares: [0, 1], tokens: [1]}": "prompt_tokens.tokens: got 1 tokens; expected 2",
    "prompt_tokens: {dist: quantiles, shares: [], tokens: []}": "prompt_tokens.shares: got []; expected shares from 0",
    "prompt_tokens: {dist: quantiles, shares: [0.1, 1], tokens: [1, 2]}": "prompt_tokens.shares: got [0.1, 1.0]",
    "prompt_tokens: {dist: quantiles, shares: [0, 0.9], tokens: [1, 2]}": "prompt_tokens.shares: got [0.0, 0.9]",
    "prompt_tokens: {dist: quantiles, shares: [0, 0.7, 0.7, 1], tokens: [1, 2, 3, 4]}": (
        "prompt_tokens.shares[2]: got 0.7 after 0.7; expected rising shares"
    ),
    "prompt_tokens: {dist: quantiles, shares: [0, 0.5, 1], tokens: [3, 2, 4]}": (
        "prompt_tokens.tokens[1]: got 2 after 3; expected never falling tokens"
    ),
    "prompt_tokens: {dist: choice, tokens: []}": "prompt_tokens.tokens: got []; expected at least one",
    "prompt_tokens: {dist: choice, tokens: [1, 2], weights: [1]}": "prompt_tokens.weights: got 1 weights; expected 2",
    "output_tokens: 1000001": "output_tokens: can give 1000001 tokens; expected at most 1000000",
    "output_tokens: {dist: choice, tokens: [1000001]}": "output_tokens: can give 1000001 tokens",
    "output_tokens: {dist: uniform, min: 1, max: 1000001}": "output_tokens: can give 1000001 tokens",
    "load: {loop: closed}": "load: got neither of levels and ladder; expected one of the two",
    "load: {loop: closed, levels: [1], ladder: {to: 2}}": "load: got both of levels and ladder; expected one",
    "load: {loop: closed, levels: []}": "load.levels: got []; expected at least one level",
    "load: {loop: open, levels: [0]}": "load.levels[0]: got 0; expected a number > 0",
    "load: {loop: closed, levels: [1, 2.5]}": "load.levels[1]: got 2.5; expected a whole number",
    "load: {loop: closed, ladder: {from: 1.5, to: 4}}": "load.ladder.from: got 1.5; expected a whole number",
    "load: {loop: closed, ladder: {to: 4.5}}": "load.ladder.to: got 4.5; expected a whole number",
    "load: {loop: closed, ladder: {from: 4, to: 2}}": "load.ladder.to: got 2; expected at least from, 4",
    "load: {loop: closed, ladder: {to: 4, factor: 1}}": "load.ladder.factor: got 1; expected a number > 1",
    "load: {loop: open, ladder: {to: 9, factor: 1.0001}}": "load.ladder.factor: gives 21975 levels; expected a factor",
    "load: {loop: open, levels: [1], think_s: 1}": "load.think_s: got 1; expected 0 in an open loop",
    "phases: {warmup_s: 1, ramp_s: 2}": "phases.ramp_s: got 2; expected at most warmup_s, 1",
    "name: ''": 'name: got ""; expected letters, digits',
    "name: a/b": 'name: got "a/b"; expected letters, digits',
    "prices: {per_hour: 1, currency: euro}": 'prices.currency: got "euro"; expected a code of three capitals',
    "target: {host: 'localhost:8000'}": 'target.host: got "localhost:8000"; expected a base URL such as http://127',
    "target: {host: 'http://'}": 'target.host: got "http://"; expected a base URL',
    "target: {host: 'http://h:99999'}": 'target.host: got "http://h:99999"; expected a base URL',
    "target: {host: 'http://h/v1?x=1'}": 'target.host: got "http://h/v1?x=1"; expected a base URL',
    "target: {proxy: 'socks5://h:1'}": 'target.proxy: got "socks5://h:1"; expected a base URL',
    "target: {path: v1/chat}": 'target.path: got "v1/chat"; expected a path that starts with /',
    "target: {body: {stream: false}}": "target.body.stream: contradicts target.stream, true; set only target.stream",
    "target: {body: {stream: 1}}": "target.body.stream: contradicts target.stream, true",
    "target: {stream: false, body: {stream: true}}": "target.body.stream: contradicts target.stream, false",
    'target: {headers: {X-A: "b\\r\\nX-B: c"}}': "target.headers.X-A: expected a header name",
    "target: {headers: {'X A': b}}": "target.headers.X A: expected a header name",
    "target: {metrics: metrics}": 'target.metrics: got "metrics"; expected a path that starts with /',
    "influx: {url: 'influxdb:8086/llm'}": "influx.url: got",
    "influx: {url: 'http://127.0.0.1:8086/'}": "influx.url: got",
    "influx: {url: 'http://h/x', token_points: some}": 'influx.token_points: got "some"; expected all, none',
    "influx: {url: 'http://h/x', token_points: sample=0}": "influx.token_points: got",
}


@pytest.mark.parametrize("part", MISTAKES)
def test_mistake_in_one_line(part: str) -> None:
    said = complaint(with_part(part))
    assert said.startswith(f"chat.yaml: {MISTAKES[part]}")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ("target: {host: 'http://me:hunter2@h'}", "target.host: holds credentials; "),
        ("target: {proxy: 'http://me:hunter2@h'}", "target.proxy: holds credentials; "),
        ("target: {headers: {Authorization: Bearer hunter2}}", "target.headers.Authorization: holds a secret; "),
        ("target: {headers: {x-api-key: hunter2}}", "target.headers.x-api-key: holds a secret; "),
        ("influx: {url: 'http://me:hunter2@h/llm'}", "influx.url: holds credentials; "),
        ("serve: {built_in: vllm, env: {HF_TOKEN: hunter2}}", "serve.env.HF_TOKEN: holds a secret; "),
        ("target: {api_key_env: sk-hunter2}", "target.api_key_env: expected the name of an environment variable"),
    ],
)
def test_secrets_are_refused_and_not_repeated(part: str, path: str) -> None:
    said = complaint(with_part(part))
    assert said.startswith(f"chat.yaml: {path}")
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; expected a mapping with at least name, load, prompt_tokens and output_tokens"),
        ("# only a comment", "is empty; "),
        ("[1, 2]", "got [1, 2]; expected a mapping"),
        ("words", 'got "words"; expected a mapping'),
        ("name: a", "load: missing required key; expected a mapping"),
        (SMALL + "seed: 1\nseed: 2\n", 'line 7: duplicate key "seed"; expected valid YAML'),
        (SMALL + "slo:\n  ttft_p99_ms: 1\n  ttft_p99_ms: 2\n", 'line 8: duplicate key "ttft_p99_ms"'),
        ("name: a\nload: b: c\n", "line 2: mapping values are not allowed here; expected valid YAML"),
        ("name: [", "line 1: "),
        ("a: \x00", "unacceptable character"),
        ("a: &a [*a]", "nested too deeply"),
        ("[" * 1200, "nested too deeply"),
        ("a: !!int one", "a value does not fit its YAML tag"),
        ("a: !!bool maybe", "a value does not fit its YAML tag"),
        ("a: !!python/object/apply:os.getcwd []", "line 1: could not determine a constructor"),
        ("a: !!set {x}", "line 1: could not determine a constructor"),
        ("? [a]\n: 1", "line 1: found unhashable key"),
        ("--- 1\n--- 2", "line 2: but found another document"),
        ('"lo\\nad": 1', "lo ad: unknown key"),
    ],
)
def test_bad_text(text: str, said: str) -> None:
    assert complaint(text).startswith(f"chat.yaml: {said}")


def test_files(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(ScenarioError, match=r"latin\.yaml: is not UTF-8 text"):
        scenario.load(tmp_path / "latin.yaml")
    with pytest.raises(ScenarioError, match=r"none\.yaml: cannot be read \(No such file"):
        scenario.load(tmp_path / "none.yaml")
    (tmp_path / "small.yaml").write_text(SMALL)
    assert scenario.load(str(tmp_path / "small.yaml"), ["seed=4"]).seed == 4


@given(st.text(alphabet=st.sampled_from("{}[]:,-&*!|>'\"#%@?<=. \n\t0e1na~é\x00"), max_size=40))
def test_noise_is_a_scenario_error_and_nothing_else(text: str) -> None:
    complaint(text)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-9, 9)
        | st.floats(allow_nan=False, width=16)
        | st.text("a5", max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dist", "to", "a"]), inner),
        max_leaves=6,
    ),
    st.sampled_from(["name", "target", "load", "prompt_tokens", "slo", "prices", "phases", "seed", "ignore_eos"]),
)
def test_any_value_anywhere_is_accepted_or_explained(value: object, key: str) -> None:
    text = yaml.safe_dump({**yaml.safe_load(SMALL), key: value})
    try:
        read = scenario.parse(text, source="any")
    except ScenarioError as error:
        said = str(error)
    else:
        said = "any: " + key if scenario.parse(scenario.dump(read)) == read else "the dump is another scenario"
    assert said.startswith(f"any: {key}")


# --- overrides --------------------------------------------------------------------------------------------------------


def test_overrides_set_and_remove() -> None:
    changed = scenario.parse(
        SMALL + "slo: {ttft_p99_ms: 5, itl_p99_ms: 6}\n",
        overrides=[
            "load.levels=[1,2,4]",
            "slo.ttft_p99_ms=null",
            "slo.e2e_p99_ms=300",
            "target.body.temperature=0.5",
            "target.body.response.format.type=text",
            "target.headers.X-Team=red",
            "output_tokens=9",
            "prompt_tokens.tokens=7",
        ],
    )
    assert changed.load.levels == [1, 2, 4]
    assert changed.slo == Slo(itl_p99_ms=6, e2e_p99_ms=300)
    assert changed.target.body == {"temperature": 0.5, "response": {"format": {"type": "text"}}}
    assert changed.target.headers == {"X-Team": "red"}
    assert (changed.prompt_tokens, changed.output_tokens) == (Fixed(tokens=7), Fixed(tokens=9))


def test_levels_and_ladder_replace_each_other() -> None:
    ladder = scenario.parse(SMALL, overrides=["load.ladder.to=8"]).load
    assert (ladder.levels, ladder.ladder) == (None, Ladder(to=8))
    levels = scenario.parse(SMALL, overrides=["load.ladder={to: 8}", "load.levels=[3]"]).load
    assert (levels.levels, levels.ladder) == ([3], None)
    assert scenario.parse(SMALL, overrides=["load.ladder=null"]).load.levels == [1, 2]


def test_removing_what_is_not_there_changes_nothing() -> None:
    assert scenario.parse(SMALL, overrides=["prices.currency=null", "slo=null"]) == scenario.parse(SMALL)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("slo.ttft_p9_ms=null", '-s: slo.ttft_p9_ms: unknown key; did you mean "ttft_p99_ms"'),
        ("lod.levels=3", '-s: lod: unknown key; did you mean "load"'),
        (
            "load.ladder.factr=3",
            '-s: load.ladder.factr: unknown key; did you mean "factor"? valid here: from, to, factor',
        ),
        ("load.levels=['5']", '-s: load.levels[0]: got "5"; expected a number > 0'),
        ("output_tokens.tokens=3", "-s: output_tokens.tokens: unknown key; valid here: dist, min, max"),
        ("output_tokens.min=30", "-s: output_tokens.min: got 30; expected at most max, 4"),
        ("load.loop=null", "-s: load.loop: missing required key"),
        ("seed.x=3", '-s: seed: got {"x": 3}; expected a whole number'),
        ("name.x=3", '-s: name.x: name is "small", not a mapping; set that whole'),
        ("slo.ttft_p99_ms=[", "-s: slo.ttft_p99_ms: line 1: "),
        ("target={host: a, host: b}", '-s: target: line 1: duplicate key "host"'),
        ("seed=.nan", "-s: seed: got nan; expected a finite number"),
        ("seed", '-s: got "seed"; expected path=value, such as slo.ttft_p99_ms=300'),
        ("seed=", '-s: got "seed="; expected path=value'),
        ("=3", '-s: got "="; expected path=value'),
        ("load..loop=open", '-s: got "load..loop="; expected path=value'),
    ],
)
def test_bad_override(override: str, said: str) -> None:
    assert complaint(SMALL, override).startswith(said)


def test_a_mistake_of_the_file_stays_the_files_own() -> None:
    assert complaint(with_part("seed: -1"), "phases.hold_s=3").startswith("chat.yaml: seed: ")


# --- without a file ---------------------------------------------------------------------------------------------------


def test_quick() -> None:
    closed = scenario.quick(Quick(users=8, hold_s=2, prompt_tokens=3, output_tokens=4), overrides=["slo.itl_p99_ms=30"])
    assert closed.load == Load(loop="closed", levels=[8])
    assert (closed.phases.hold_s, closed.slo) == (2, Slo(itl_p99_ms=30))
    assert (closed.prompt_tokens, closed.output_tokens) == (Fixed(tokens=3), Fixed(tokens=4))
    opened = scenario.quick(Quick(rate=[0.5, 2], dialect="openai-completions"))
    assert opened.load == Load(loop="open", levels=[0.5, 2])
    assert opened.target.dialect == "openai-completions"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (Quick(), "quick: give either users"),
        (Quick(users=1, rate=1), "quick: give either users"),
        (Quick(users=1.5), "quick: load.levels[0]: got 1.5; expected a whole number"),
        (Quick(rate=float("inf")), "quick: load.levels[0]: got inf"),
        (Quick(users=1, dialect="openai"), 'quick: target.dialect: got "openai"; expected "openai-chat" or'),
    ],
)
def test_bad_quick(ask: Quick, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario.quick(ask)
    assert str(caught.value).startswith(said)


# --- planned levels ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "planned"),
    [
        (Load(loop="closed", levels=[4, 1, 4]), [4, 1, 4]),
        (Load(loop="closed", ladder=Ladder(to=32)), [1, 2, 4, 8, 16, 32]),
        (Load(loop="closed", ladder=Ladder(to=20)), [1, 2, 4, 8, 16, 20]),
        (Load(loop="closed", ladder=Ladder(from_=3, to=3)), [3]),
        (Load(loop="closed", ladder=Ladder(to=5, factor=1.3)), [1, 2, 3, 4, 5]),
        (Load(loop="open", ladder=Ladder(from_=1e-307, to=1e307, factor=1e300)), [1e-307, 1e-7, 1e293, 1e307]),
        (Load(loop="open", ladder=Ladder(from_=0.5, to=3)), [0.5, 1, 2, 3]),
        (Load(loop="open", ladder=Ladder(to=1.1**3, factor=1.1)), [1, 1.1, 1.1**2, 1.1**3]),
    ],
)
def test_levels(load: Load, planned: list[float]) -> None:
    assert scenario.levels(load) == pytest.approx(planned)


@given(
    st.floats(1e-3, 1e3),
    st.floats(1, 1e4),
    st.floats(1.01, 10),
    st.sampled_from(["open", "closed"]),
)
def test_a_ladder_rises_from_its_start_to_its_end(first: float, span: float, factor: float, loop: str) -> None:
    if loop == "closed":
        first, span = float(round(first) + 1), float(round(span))
    ladder = Ladder(from_=first, to=first * span, factor=factor)
    planned = scenario.levels(msgspec.convert({"loop": loop, "ladder": ladder}, Load))
    assert planned[-1] == ladder.to
    assert planned[0] == ladder.from_ or ladder.to < ladder.from_ * (1 + 1e-8)
    assert planned == sorted(set(planned))
    assert loop == "open" or all(users.is_integer() for users in planned)


# --- schema and shipped scenarios -------------------------------------------------------------------------------------


def test_exported_schema_is_current() -> None:
    exported = (SCENARIOS / "scenario.schema.json").read_text()
    assert exported == json.dumps(scenario.json_schema(), indent=2, ensure_ascii=False) + "\n"


def structs(kind: inspect.Type) -> list[inspect.StructType]:
    """This type's structs and those in them."""
    if isinstance(kind, inspect.UnionType):
        return [struct for one in kind.types for struct in structs(one)]
    if not isinstance(kind, inspect.StructType):
        return []
    return [kind] + [struct for field in kind.fields for struct in structs(field.type)]


def test_schema_knows_the_keys_of_every_struct_and_no_other() -> None:
    definitions = scenario.json_schema()["$defs"]
    known = {struct.cls.__name__: struct for struct in structs(inspect.type_info(Scenario))}
    assert set(definitions) == set(known)
    for name, struct in known.items():
        tag = {"dist"} if struct.tag_field else set()
        assert set(definitions[name]["properties"]) == {field.encode_name for field in struct.fields} | tag
        assert set(definitions[name]["required"]) == {f.encode_name for f in struct.fields if f.required} | tag
        assert definitions[name]["additionalProperties"] is False


def test_schema_allows_a_bare_number_of_tokens() -> None:
    properties = scenario.json_schema()["$defs"]["Scenario"]["properties"]
    for name in ("prompt_tokens", "output_tokens"):
        assert {"type": "integer", "minimum": 1} in properties[name]["anyOf"]


def test_shipped_scenarios_are_the_ones_tested() -> None:
    assert tuple(sorted(path.stem for path in SCENARIOS.glob("*.yaml"))) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenario(name: str) -> None:
    path = SCENARIOS / f"{name}.yaml"
    lines = path.read_text().splitlines()
    read = scenario.load(path)
    assert lines[0] == "# yaml-language-server: $schema=scenario.schema.json"
    assert len(lines) <= 40
    assert read.name == name
    assert read.slo != Slo()
    assert scenario.parse(scenario.dump(read)) == read


def test_demo_is_over_within_a_minute() -> None:
    demo = scenario.load(SCENARIOS / "demo.yaml")
    ladder = scenario.levels(demo.load)
    bisection = 3  # 12, 14 and 13 between 8 and 16
    assert 30 <= (len(ladder) + bisection) * (demo.phases.warmup_s + demo.phases.hold_s) <= 45
    assert demo.target.engine == "demo"


def test_reading_a_scenario_needs_no_numpy() -> None:
    """`--help` and a typing error must answer at once; numpy alone takes longer than all of this file."""
    script = "import sys, harness.scenario; print(sorted({'numpy', 'pandas', 'locust', 'gevent'} & set(sys.modules)))"
    root = SCENARIOS.parent
    ran = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_scenario_structs_refuse_unknown_keys() -> None:
    """Strictness is the struct's promise; one without it would let a mistyped key through."""
    for struct in structs(inspect.type_info(Scenario)):
        assert issubclass(struct.cls, Struct)
        assert struct.forbid_unknown_fields
