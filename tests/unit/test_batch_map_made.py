"""How a map is made: commands, settings, figures of a report, predictions, and a survey of searches run before."""

import sys
from pathlib import Path

import msgspec
import pytest
from msgspec import structs, to_builtins
from report_example import client, example

from harness.batches import cells, written
from harness.batches.command import filled, template
from harness.batches.serving import Hook
from harness.batches.settings import Asked, hook, is_same_question, scenario_at, settings
from harness.batches.survey import batch_map
from harness.batches.twins import foretold, predictions, scattered
from harness.engine import profile
from harness.findings import Level, Located, Report
from harness.knee.map import BatchMap, Cell, Figures, Setting, flips
from harness.model import Fixed, Ladder, Load, Prices, Scenario, Search, Serve, Slo, Target, Uniform
from harness.report import document
from harness.twin import predict
from harness.twin.scatter import EXACT, Scatter
from harness.twin.scatter_tpot import RequestScatter
from harness.twin.server import Server

AT_8 = Setting(max_num_seqs=8, max_num_batched_tokens=2048)
SEATS = 16
STEP = Server(knots=((1, 10.0), (16, 25.0)), max_num_seqs=SEATS, max_num_batched_tokens=2048)
"""10 ms a step alone, 25 ms with sixteen."""


def scenario(loop: str = "closed", **fields: object) -> Scenario:
    load = Load(loop="closed" if loop == "closed" else "open", ladder=Ladder(from_=1, to=64))
    usual: dict[str, object] = {"slo": Slo(ttft_p99_ms=60.0, tpot_p99_ms=20.0), "search": Search(method="twin")}
    given = usual | fields
    return Scenario(name="toy", load=load, prompt_tokens=Fixed(tokens=8), output_tokens=Fixed(tokens=10), **given)  # type: ignore[arg-type]  # fields of a test


def asked(directory: Path, caps: list[int], of: Scenario | None = None, **more: object) -> Asked:
    return Asked(scenario=of or scenario(), caps=caps, directory=directory, requests=5_000, **more)  # type: ignore[arg-type]  # fields of a test


def complaint(serve: Serve) -> str:
    with pytest.raises(ValueError, match="serve") as caught:
        template(serve)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- commands ---------------------------------------------------------------------------------------------------------


def words(serve: Serve, place: Path) -> list[str]:
    return filled(template(serve), AT_8, port=1234, profile_path=place)


def test_a_command_is_filled_word_by_word_and_other_braces_are_left(tmp_path: Path) -> None:
    text = "serve --seqs={max_num_seqs} -t {max_num_batched_tokens} --port {port} --json '{\"a\": {}}' 'two words'"
    assert words(Serve(command=text), tmp_path) == [
        *("serve", "--seqs=8", "-t", "2048", "--port", "1234", "--json", '{"a": {}}', "two words"),
    ]


def test_built_ins(tmp_path: Path) -> None:
    vllm = words(Serve(built_in="vllm", model="org/model", options="--dtype float32"), tmp_path)
    assert vllm[:3] == ["vllm", "serve", "org/model"]
    assert " ".join(vllm).endswith("--port 1234 --dtype float32")
    assert "--max-num-seqs 8 --max-num-batched-tokens 2048" in " ".join(vllm)
    llama = " ".join(words(Serve(built_in="llama.cpp", model="m.gguf"), tmp_path))
    assert llama.startswith("llama-server --model m.gguf --parallel 8 ")


def test_the_engine_gets_a_profile_with_other_limits(tmp_path: Path) -> None:
    place = tmp_path / "seqs-8.profile.yaml"
    command = words(Serve(built_in="engine", model="demo"), place)
    assert command[0] == sys.executable
    assert str(place) in command
    shipped = profile.load("demo")
    assert profile.load(str(place)) == structs.replace(shipped, max_num_seqs=8, max_num_batched_tokens=2048)


def test_hooks_that_cannot_work() -> None:
    assert "neither" in complaint(Serve())
    assert "both" in complaint(Serve(built_in="vllm", command="x {max_num_seqs}"))
    assert "no {max_num_seqs}" in complaint(Serve(command="x --port {port}"))
    assert "{seqs}" in complaint(Serve(command="x {seqs}"))
    assert "as a shell" in complaint(Serve(command="x 'open {max_num_seqs}"))
    assert "GGUF" in complaint(Serve(built_in="llama.cpp"))
    assert "belong to built_in" in complaint(Serve(command="x {max_num_seqs}", model="m"))
    leak = complaint(Serve(command="x {max_num_seqs}", env={"HF_TOKEN": "abc123"}))
    assert "serve.env.HF_TOKEN" in leak
    assert "abc123" not in leak
    with pytest.raises(ValueError, match="profile 'nope' is not known"):
        template(Serve(built_in="engine", model="nope"))


def test_a_command_without_a_port_needs_a_host() -> None:
    serve = Serve(command="x {max_num_seqs}")
    with pytest.raises(ValueError, match=r"no \{port\} and there is no target.host"):
        Hook(serve=serve, template=template(serve))
    assert Hook(serve=serve, template=template(serve), host="http://there:1").host


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_come_once_and_largest_first(tmp_path: Path) -> None:
    found = settings(asked(tmp_path, [8, 32, 8], batched_tokens=[512, 2048]))
    assert [each.name for each in found] == [
        *("seqs-32-tokens-2048", "seqs-32-tokens-512", "seqs-8-tokens-2048", "seqs-8-tokens-512"),
    ]
    assert [each.max_num_batched_tokens for each in settings(asked(tmp_path, [8]))] == [2048]


def test_what_no_server_can_be_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--batched-tokens 16, --batch 32"):
        settings(asked(tmp_path, [8, 32], batched_tokens=[16, 64]))
    with pytest.raises(ValueError, match="has no prices"):
        settings(asked(tmp_path, [8], objective="cost"))
    with pytest.raises(ValueError, match="got no batch size"):
        settings(asked(tmp_path, []))


def test_the_embedded_engine_needs_no_hook() -> None:
    assert hook(scenario(target=Target(engine="demo"))) == Serve(built_in="engine", model="demo")
    assert hook(scenario(target=Target(engine="demo", host="http://there:1"))) is None
    named = scenario(target=Target(engine="demo"), serve=Serve(built_in="engine", stop_within_s=1))
    assert hook(named) == Serve(built_in="engine", model="demo", stop_within_s=1)


def test_the_search_at_a_setting_knows_its_limits_and_where_to_begin() -> None:
    at = scenario_at(scenario(), AT_8, 9)
    assert (at.search.max_num_seqs, at.search.max_num_batched_tokens) == (8, 2048)
    assert at.load.ladder == Ladder(from_=4, to=18, factor=2)
    assert scenario_at(scenario(), AT_8, None).load == scenario().load
    assert scenario_at(scenario(), AT_8, 1).load.ladder == Ladder(from_=1, to=2, factor=2)
    rate = scenario_at(scenario("open"), AT_8, 5.5555).load.ladder
    assert rate == Ladder(from_=2.78, to=11.1, factor=2)


def test_a_port_is_no_other_question_and_a_limit_is() -> None:
    one = scenario()
    assert is_same_question(one, scenario_at(one, Setting(max_num_seqs=8, max_num_batched_tokens=2048), 3)) is False
    here, there = (structs.replace(one, target=Target(host=f"http://127.0.0.1:{port}")) for port in (1, 2))
    assert is_same_question(here, there)
    assert not is_same_question(one, scenario(slo=Slo(ttft_p99_ms=41)))


# --- figures of a report ----------------------------------------------------------------------------------------------


def test_a_bracket_gives_the_load_that_held() -> None:
    report = example()
    found = cells.measured(report, cells.Running(at_ns=[], batch=[]))
    knee = report.knee
    assert knee is not None
    assert (found.load, found.low, found.high) == (knee.holds, knee.holds, knee.breaks)
    assert found.binding in ("ttft_p99_ms", "itl_p99_ms")
    held = next(level for level in report.levels if level.index == knee.holds_level)
    assert (found.rps, found.output_tps) == (held.achieved_rps, held.output_tps)


def test_a_search_that_could_not_tell_has_no_figures() -> None:
    report = structs.replace(example(), knee=structs.replace(example().knee, found="undecided"))
    assert cells.measured(report, cells.Running(at_ns=[], batch=[])) == Figures()
    broken = structs.replace(example(), knee=structs.replace(example().knee, found="breaks_at_first", holds=None))
    assert cells.measured(broken, cells.Running(at_ns=[], batch=[])).load == 0


def test_a_located_rate_scales_the_nearest_level() -> None:
    report = example("rate")
    level = report.levels[2]
    located = Located(axis="rate", method="twin", load=level.load * 1.01, low=level.load, high=level.load * 1.02)
    found = cells.measured(structs.replace(report, located=located), cells.Running(at_ns=[], batch=[]))
    assert found.rps == pytest.approx(1.01 * level.achieved_rps)
    assert (found.low, found.high) == (located.low, located.high)


def test_the_running_batch_is_that_of_the_hold() -> None:
    report = example()
    assert report.knee is not None
    stage = next(each for each in report.stages if each.level == report.knee.holds_level)
    second = 1_000_000_000
    looks = range(stage.hold_at_ns - 2 * second, stage.end_at_ns + 2 * second, second)
    batch = [99.0 if not stage.hold_at_ns <= at < stage.end_at_ns else 4.0 for at in looks]
    running = cells.Running(at_ns=list(looks), batch=batch)
    found = cells.measured(report, running)
    assert (found.batch_p50, found.batch_p95) == (4.0, 4.0)
    assert running.most() == 99.0
    ten = cells.Running(at_ns=[stage.hold_at_ns + i for i in range(10)], batch=[float(i) for i in range(10)])
    assert [ten.quantile(share, stage) for share in (0.5, 0.95, 1.0)] == [4.0, 9.0, 9.0]


def test_cost_of_a_million_tokens() -> None:
    assert cells.cost(Prices(per_hour=3.6), 100.0) == pytest.approx(10.0)
    assert cells.cost(None, 100.0) is None
    assert cells.cost(Prices(per_hour=3.6), 0.0) is None


# --- predictions ------------------------------------------------------------------------------------------------------


def test_a_clause_between_tokens_flips_the_map_and_large_caps_are_one_experiment(tmp_path: Path) -> None:
    """A step of b takes 9 + b ms: with eight seats never more than 20 ms, with sixteen it is that which binds."""
    of = structs.replace(
        scenario("open", slo=Slo(ttft_p99_ms=200, tpot_p99_ms=20)), output_tokens=Uniform(min=5, max=15)
    )
    said = predictions(STEP, asked(tmp_path, [4, 8, 16, 64], of), [_at(seqs) for seqs in (4, 8, 16, 64)])
    assert said[_at(4)].load < said[_at(8)].load
    first = Cell(setting=_at(64), how="measured", figures=_figures(said[_at(64)].load, "tpot_p99_ms"))
    found = foretold(said, first, of, most_running=11)
    assert {cell.setting.max_num_seqs: cell.how for cell in found} == {4: "predicted", 8: "predicted", 16: "plateau"}
    assert found[2].figures == first.figures
    assert found[0].figures.output_tps == pytest.approx(10 * (found[0].figures.rps or 0))
    assert [(flip.below, flip.above) for flip in flips([*found, first])] == [(8, 16)]


def test_a_server_that_was_seen_to_run_more_has_no_plateau_there(tmp_path: Path) -> None:
    said = predictions(STEP, asked(tmp_path, [16, 64]), [_at(16), _at(64)])
    first = Cell(setting=_at(64), how="measured", figures=_figures(10, "tpot_p99_ms"))
    (cell,) = foretold(said, first, scenario(), most_running=17)
    assert cell.how == "predicted"


def test_rates_are_corrected_and_users_are_not() -> None:
    plain = _predicted(10.0)
    first = Cell(setting=_at(64), how="measured", figures=_figures(9.0, "ttft_p99_ms"))
    said = {_at(64): plain, _at(4): structs.replace(plain, load=5.0, rps=5.0)}
    (rate,) = foretold(said, first, scenario("open"), most_running=None)
    assert rate.figures.load == pytest.approx(4.5)
    assert rate.figures.goodput_rps == pytest.approx(4.5 * 0.99)
    (users,) = foretold(said, first, scenario("closed"), most_running=None)
    assert users.figures.load == 5.0


def _figures(load: float, binding: str) -> Figures:
    return Figures(load=load, binding=binding, rps=load, output_tps=10 * load)


def _at(seqs: int) -> Setting:
    return Setting(max_num_seqs=seqs, max_num_batched_tokens=2048)


def _predicted(load: float) -> predict.Predicted:
    return predict.Predicted(
        load=load, slope=30, vif=1, miss_share=0.01, binding="ttft_p99_ms", batch_p50=20, batch_p99=60, batch_p999=63,
        batch_max=64, rps=load, saturation_rps=12, episodes=3, episode_requests=9, chances=5000,
    )  # fmt: skip


# --- a survey of searches that were run before ------------------------------------------------------------------------


def ran(directory: Path, of: Scenario, setting: Setting, load: float, binding: str = "ttft_p99_ms") -> None:
    """A finished search of this setting, as a run leaves it, with its knee at `load` users, 4.5 requests/s each."""
    report = example()
    level = structs.replace(report.levels[0], load=load, achieved_rps=4.5 * load, client=client(load, limited=False))
    found = Located(
        axis="users", method="twin", load=load, low=load - 1, high=load + 1, binding=binding,
        twin=to_builtins(STEP), text=f"knee at {load:g} users",
    )  # fmt: skip
    header = structs.replace(report.header, scenario=scenario_at(of, setting, None), plan="knee")
    _put(directory / setting.name, structs.replace(report, header=header, levels=[level], located=found, knee=None))


def _put(directory: Path, report: Report) -> None:
    directory.mkdir(parents=True)
    (directory / "summary.json").write_bytes(document.summary(report))


def served(**fields: object) -> Scenario:
    """With a server that cannot be started: every search must have been prepared."""
    return scenario(serve=Serve(command="false {max_num_seqs} {max_num_batched_tokens} {port}"), **fields)


def test_the_twin_decides_what_is_measured_and_the_rest_is_marked(tmp_path: Path) -> None:
    of = served()
    ran(tmp_path, of, _at(64), 11, "tpot_p99_ms")
    ran(tmp_path, of, _at(8), 8)
    said: list[str] = []
    found = batch_map(asked(tmp_path, [2, 4, 8, 16, 64], of), said.append)
    by_cap = {cell.setting.max_num_seqs: cell for cell in found.cells}
    assert {seqs: cell.how for seqs, cell in by_cap.items()} == {
        2: "predicted", 4: "predicted", 8: "measured", 16: "plateau", 64: "measured",
    }  # fmt: skip
    assert by_cap[8].predicted is not None
    assert by_cap[8].predicted.load == 8
    assert [(flip.below, flip.above) for flip in found.flips] == [(8, 16)]
    assert found.best == _at(16)
    assert found.twin["max_num_seqs"] == 64
    assert any("predicted knees were off by" in note for note in found.notes)
    assert written.read(tmp_path) == msgspec.json.decode(msgspec.json.encode(found), type=BatchMap)
    assert {path.name for path in tmp_path.glob("map.*")} == {"map.json", "map.md", "map.html"}
    assert said[-1].startswith("map so far: best for requests within the SLO")


def test_without_a_twin_every_setting_is_measured(tmp_path: Path) -> None:
    of = served(search=Search(method="bracket"))
    for seqs, load in ((16, 11), (8, 9), (4, 5)):
        ran(tmp_path, of, _at(seqs), load)
    found = batch_map(asked(tmp_path, [4, 8, 16], of), lambda _: None)
    assert [cell.how for cell in found.cells] == ["measured"] * 3
    assert found.twin == {}


def test_a_twin_that_missed_predicts_nothing(tmp_path: Path) -> None:
    of = served()
    for seqs, load in ((64, 30), (4, 5)):
        ran(tmp_path, of, _at(seqs), load)
    found = batch_map(asked(tmp_path, [4, 64], of), lambda _: None)
    assert [cell.how for cell in found.cells] == ["measured", "measured"]
    assert any("not believed" in note for note in found.notes)


def test_the_first_search_that_has_a_twin_predicts_what_is_left(tmp_path: Path) -> None:
    """The largest setting could not be judged: the next one speaks for the smaller ones."""
    of = served()
    ran(tmp_path, of, _at(64), 11)
    report = document.read((tmp_path / _at(64).name / "summary.json").read_bytes())
    lost = Located(axis="users", method="none", text="no knee was located")
    (tmp_path / _at(64).name / "summary.json").write_bytes(document.summary(structs.replace(report, located=lost)))
    ran(tmp_path, of, _at(16), 11, "tpot_p99_ms")
    ran(tmp_path, of, _at(8), 8)
    found = batch_map(asked(tmp_path, [2, 8, 16, 64], of), lambda _: None)
    assert [cell.how for cell in found.cells] == ["predicted", "measured", "measured", "measured"]
    assert found.twin["max_num_seqs"] == 16
    assert found.correction == pytest.approx(1.1)
    assert found.cells[-1].figures == Figures()


def test_a_run_of_another_question_is_refused(tmp_path: Path) -> None:
    ran(tmp_path, served(), _at(16), 11)
    other = served(slo=Slo(ttft_p99_ms=999))
    with pytest.raises(ValueError, match="measured with another scenario"):
        batch_map(asked(tmp_path, [16], other), lambda _: None)


def test_without_a_hook_the_setting_is_the_twins_and_others_are_predicted(tmp_path: Path) -> None:
    of = scenario(target=Target(host="http://there:1"))
    report = example()
    level: Level = structs.replace(report.levels[0], load=11.0, client=client(11.0, limited=False))
    located = Located(
        axis="users", method="twin", load=11, low=10, high=12, binding="tpot_p99_ms", twin=to_builtins(STEP)
    )
    header = structs.replace(report.header, scenario=of, plan="knee")
    _put(tmp_path / "as-it-is", structs.replace(report, header=header, levels=[level], located=located, knee=None))
    found = batch_map(asked(tmp_path, [4, 64], of), lambda _: None)
    assert {cell.setting.max_num_seqs: cell.how for cell in found.cells} == {
        4: "predicted", SEATS: "observed", 64: "plateau",
    }  # fmt: skip
    assert any("nobody restarts" in note for note in found.notes)


def test_budgets_need_a_place_in_the_command(tmp_path: Path) -> None:
    of = scenario(serve=Serve(command="x {max_num_seqs} {port}"))
    with pytest.raises(ValueError, match=r"has no \{max_num_batched_tokens\}"):
        batch_map(asked(tmp_path, [4], of, batched_tokens=[512, 2048]), lambda _: None)


def test_a_damaged_map_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no map\.json"):
        written.read(tmp_path)
    (tmp_path / "map.json").write_bytes(msgspec.json.encode({"scenario": 1}))
    with pytest.raises(ValueError, match="expected a map"):
        written.read(tmp_path)


def test_a_map_of_tpot_keeps_what_the_search_saw_of_its_scatter(tmp_path: Path) -> None:
    """Answers that take up to half as long again as the twin says leave less load at every setting."""
    rows = tuple(-0.4 + 0.8 * place / 199 for place in range(200))
    scatter = Scatter(tpot=RequestScatter(longest=(), slopes=(1.0,), residuals=(rows,)))
    found = Located(axis="rate", method="twin", scatter=to_builtins(scatter))
    of = structs.replace(scenario("open", slo=Slo(tpot_p99_ms=20)), output_tokens=Uniform(min=5, max=15))
    wanted, request = [_at(16), _at(64)], asked(tmp_path, [16, 64], of)
    assert scattered(found) == scatter
    assert scattered(structs.replace(found, scatter=None)) == EXACT
    plain, spread = predictions(STEP, request, wanted), predictions(STEP, request, wanted, scattered(found))
    assert all(0 < spread[at].load < 0.9 * plain[at].load for at in wanted)
