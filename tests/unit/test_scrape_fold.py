"""Metrics pages of serving engines fold to one vocabulary: golden pages, documented ones, several engines in one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from harness.engine import exposition, profile
from harness.engine.core import Engine, Job
from harness.record.vitals import TOLD
from harness.scrape.fold import told
from harness.scrape.vocabulary import LARGEST, TABLE, WANTED, plain

GOLDEN = Path(__file__).parent.parent / "golden" / "metrics"


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


# --- real pages -------------------------------------------------------------------------------------------------------

VLLM = {
    "running": 4,
    "waiting": 2,
    "kv_usage": 0.011019283746556474,
    "preemptions_total": 0,
    "prompt_tokens_total": 3955,
    "generation_tokens_total": 4612,
    "prefix_queries_total": 3955,
    "prefix_hits_total": 0,
    "queue_s_total": 116.42372673700129,
    "dequeued_total": 91,
}
SGLANG = {
    "running": 1,
    "waiting": 2,
    "kv_usage": 0.00225830078125,
    "prompt_tokens_total": 117 + 3820,
    "generation_tokens_total": 67 + 5326,
    "prefix_queries_total": 117 + 3820,
    "prefix_hits_total": 3088,
    "queue_s_total": 128.02453673000173,
    "dequeued_total": 107,
}
LLAMACPP = {
    "running": 2,
    "waiting": 1,
    "prompt_tokens_total": 2185 + 708,
    "generation_tokens_total": 664,
    "prefix_queries_total": 2185 + 708,
    "prefix_hits_total": 708,
}


@pytest.mark.parametrize(("page", "values"), [("vllm", VLLM), ("sglang", SGLANG), ("llamacpp", LLAMACPP)])
def test_a_captured_page(page: str, values: dict[str, float]) -> None:
    assert told(golden(page)) == values


def test_an_idle_server_tells_zeros_and_not_nothing() -> None:
    values = told(golden("vllm_idle"))
    assert (values["running"], values["waiting"], values["kv_usage"]) == (0, 0, 0)
    assert set(values) == set(VLLM)


def test_counters_of_one_server_do_not_fall_from_page_to_page() -> None:
    before, during = told(golden("vllm_idle")), told(golden("vllm"))
    totals = [name for name in before if name.endswith("_total")]
    assert all(before[name] <= during[name] for name in totals)
    assert before["generation_tokens_total"] < during["generation_tokens_total"]


def test_every_name_told_by_these_engines_was_seen_on_their_pages() -> None:
    """Names of newer or older versions, and one that appears with the first retraction, are all that is missing."""
    pages = {"vLLM": "vllm", "SGLang": "sglang", "llama.cpp": "llamacpp"}
    unseen = {
        name
        for engine, page in pages.items()
        for column in TABLE[engine].values()
        for source in column
        for name in source.names
        if f"\n{name}" not in golden(page)
    }
    assert unseen == {
        "vllm:gpu_cache_usage_perc",
        "vllm:gpu_prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_hits_total",
        "sglang:num_retracted_requests_total",
        "llamacpp:kv_cache_usage_ratio",
    }


# --- documented pages -------------------------------------------------------------------------------------------------

TRITON = """
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="a",request_type="scheduled",version="1"} 3
nv_trt_llm_request_metrics{model="a",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="b",request_type="scheduled",version="1"} 4
nv_trt_llm_request_metrics{model="a",request_type="waiting",version="1"} 9
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="a",version="1"} 10
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="a",version="1"} 100
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="b",version="1"} 50
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="b",version="1"} 200
nv_llm_output_token_len_sum{model="a",response_metric_type="total_output_tokens",version="1"} 700
"""

TGI = """
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 8
# TYPE tgi_queue_size gauge
tgi_queue_size 5
# TYPE tgi_request_generated_tokens histogram
tgi_request_generated_tokens_bucket{le="64"} 3
tgi_request_generated_tokens_bucket{le="+Inf"} 4
tgi_request_generated_tokens_sum 512
tgi_request_generated_tokens_count 4
tgi_request_input_length_sum 1000
tgi_request_queue_duration_sum 1.5
tgi_request_queue_duration_count 4
"""

TRTLLM = """
trtllm_num_requests_running{model_name="m"} 6
trtllm_num_requests_waiting{model_name="m"} 1
trtllm_kv_cache_utilization{model_name="m"} 0.25
trtllm_kv_cache_reused_blocks_total{model_name="m"} 30
trtllm_kv_cache_missed_blocks_total{model_name="m"} 70
trtllm_prompt_tokens_total{model_name="m"} 640
trtllm_generation_tokens_total{model_name="m"} 64
"""


def test_triton_tells_by_labels_and_the_fullest_of_two_caches_counts() -> None:
    assert told(TRITON) == {"running": 7, "waiting": 9, "kv_usage": 0.25, "generation_tokens_total": 700}


def test_triton_with_a_fraction_needs_no_quotient() -> None:
    fraction = 'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="a",version="1"} 0.5\n'
    assert told(TRITON + fraction)["kv_usage"] == 0.5


def test_a_cache_of_no_blocks_is_not_told() -> None:
    text = TRITON.replace('"max",model="a",version="1"} 100', '"max",model="a",version="1"} 0')
    assert told(text)["kv_usage"] == 0.25, "the other model's"


def test_tgi_counts_tokens_in_histograms() -> None:
    assert told(TGI) == {
        "running": 8,
        "waiting": 5,
        "generation_tokens_total": 512,
        "prompt_tokens_total": 1000,
        "queue_s_total": 1.5,
        "dequeued_total": 4,
    }


def test_tensorrt_llm_counts_blocks() -> None:
    values = told(TRTLLM)
    assert values["prefix_hits_total"] / values["prefix_queries_total"] == 0.3
    assert (values["running"], values["waiting"], values["kv_usage"]) == (6, 1, 0.25)


def test_older_vllm() -> None:
    text = golden("vllm").replace("vllm:kv_cache_usage_perc{", "vllm:gpu_cache_usage_perc{")
    assert told(text.replace("vllm:prefix_cache", "vllm:gpu_prefix_cache")) == VLLM


def test_a_name_of_today_wins_over_its_predecessor() -> None:
    assert told(golden("vllm") + "vllm:gpu_cache_usage_perc 0.9\n")["kv_usage"] == VLLM["kv_usage"]


def test_older_sglang_has_one_cache_usage() -> None:
    text = "sglang:num_running_reqs 1\nsglang:token_usage 0.42\n"
    assert told(text) == {"running": 1, "kv_usage": 0.42}


def test_older_llamacpp_does_not_tell_what_was_cached() -> None:
    text = golden("llamacpp").replace("llamacpp:prompt_tokens_cached_total", "llamacpp:other_total")
    values = told(text + "llamacpp:kv_cache_usage_ratio 0.5\n")
    assert values["prompt_tokens_total"] == 2185
    assert values["kv_usage"] == 0.5
    assert not {"prefix_queries_total", "prefix_hits_total"} & set(values)


# --- our engine -------------------------------------------------------------------------------------------------------


def test_our_engine_tells_everything() -> None:
    engine = Engine(profile.load("demo"))
    for number in range(20):
        engine.submit(Job(job_id=number, prompt_tokens=50, output_tokens=5))
    admitted = engine.step().admitted
    tally = exposition.Tally()
    tally.queue_s.observe(0.5)
    values = told(exposition.text(tally, engine, 'a "strange" \\ model'))
    assert set(values) == set(TOLD)
    assert values["running"] == len(admitted) == 12
    assert values["waiting"] == 8
    assert 0 < values["kv_usage"] < 1
    assert (values["queue_s_total"], values["dequeued_total"]) == (0.5, 1)


def test_each_job_leaves_the_queue_once_when_nobody_is_preempted() -> None:
    engine = Engine(profile.load("demo"))
    for number in range(30):
        engine.submit(Job(job_id=number, prompt_tokens=10, output_tokens=3))
    admitted: list[int] = []
    while not engine.idle:
        admitted += engine.step().admitted
    assert admitted == list(range(30))


# --- several label sets -----------------------------------------------------------------------------------------------

Replicas = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500), st.floats(0, 1)), min_size=1, max_size=6)


@given(Replicas)
def test_replicas_add_up_and_the_fullest_cache_counts(replicas: list[tuple[int, int, float]]) -> None:
    registry = CollectorRegistry()
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    gauges = [Gauge(name, "About.", ["engine", "model_name"], registry=registry) for name in names]
    for index, values in enumerate(replicas):
        for gauge, value in zip(gauges, values, strict=True):
            gauge.labels(str(index), 'a{b} "c" \\ d').set(value)
    found = told(generate_latest(registry).decode())
    running, waiting, kv_usage = zip(*replicas, strict=True)
    assert found == {"running": sum(running), "waiting": sum(waiting), "kv_usage": max(kv_usage)}


def test_ranks_of_one_engine_are_not_several_engines() -> None:
    text = "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}",model_name="m"}} {10 * dp + 5}\n'
        for dp in range(2)
        for tp in range(4)
    )
    assert told(text) == {"running": 5 + 15}


def test_priorities_are_parts_of_a_total_that_is_there() -> None:
    text = 'sglang:num_queue_reqs{priority=""} 5\nsglang:num_queue_reqs{priority="1"} 3\n'
    assert told(text + 'sglang:num_queue_reqs{priority="2"} 2\n') == {"waiting": 5}


# --- what is not told -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_what_is_no_number_is_not_told(value: str) -> None:
    assert told(f"vllm:kv_cache_usage_perc {value}\nvllm:num_requests_running 1\n") == {"running": 1}


@pytest.mark.parametrize("text", ["", "\n\n", "# HELP vllm:num_requests_running Requests.\n", "up 1\n", "[1, 2]"])
def test_a_page_without_an_engine_tells_nothing(text: str) -> None:
    assert told(text) == {}


def test_names_that_only_begin_alike_are_others() -> None:
    assert told("vllm:num_requests_waiting_by_reason 7\nvllm:num_requests_waiting 2\n") == {"waiting": 2}


def test_an_underscore_may_stand_for_the_colon() -> None:
    assert told(golden("vllm").replace("vllm:", "vllm_")) == VLLM


def test_stamps_of_the_server_are_not_values() -> None:
    assert told("vllm:num_requests_running 3 1796121723000\n") == {"running": 3}


def test_a_broken_line_that_matters_is_an_error_and_another_is_not() -> None:
    assert told('up{ 1\nvllm:num_requests_running 1\nwhat="ever\n') == {"running": 1}
    with pytest.raises(ValueError, match=r".+"):
        told("vllm:num_requests_running many\n")


# --- the table --------------------------------------------------------------------------------------------------------


def test_the_table_speaks_only_of_columns_that_there_are() -> None:
    columns = {column for engine in TABLE.values() for column in engine}
    assert columns == set(TOLD)
    assert set(TOLD) >= LARGEST
    assert all({"running", "waiting"} <= set(engine) for engine in TABLE.values())


def test_wanted_names_are_plain() -> None:
    assert all(name == plain(name) for name in WANTED)
    assert len(WANTED) > 30
