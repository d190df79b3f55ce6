"""Our names for what serving engines tell, and theirs: one table. Pure.

Names are those of the engines' own pages and documents: vLLM 0.32, SGLang, llama.cpp as captured from real servers;
older vLLM, TGI 3, TensorRT-LLM (trtllm-serve's /prometheus/metrics) and Triton's TensorRT-LLM backend as documented.
"""

from msgspec import Struct


class Source(Struct, frozen=True, kw_only=True):
    """Samples that together make one value: those of all these names; it is not told while one of them has none."""

    names: tuple[str, ...]
    where: tuple[str, str] | None = None
    """Only samples that bear this label with this value."""
    out_of: tuple[str, str] | None = None
    """Each divided by the sample that bears this label instead and is otherwise alike."""


Column = tuple[Source, ...]
"""Where a value may come from, best first."""

LARGEST = frozenset({"kv_usage"})
"""Of several replicas or models the largest is taken; everything else adds up."""

RANKS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})
"""Labels of the parts of one engine: each part tells the same of the same requests, so one of them counts."""

SPLITS = frozenset({"priority"})
"""Labels of which the empty value (or none) stands for all others together."""


def first_of(*names: str) -> Column:
    """The first of these names that is there."""
    return tuple(Source(names=(name,)) for name in names)


def total_of(*names: str) -> Source:
    """All of these names together."""
    return Source(names=names)


def labelled(name: str, label: str, value: str, out_of: str | None = None) -> Source:
    """Samples of a name with this value of a label, as a share of those with another where that is given."""
    return Source(names=(name,), where=(label, value), out_of=(label, out_of) if out_of else None)


TABLE: dict[str, dict[str, Column]] = {
    "vLLM": {
        "running": first_of("vllm:num_requests_running"),
        "waiting": first_of("vllm:num_requests_waiting"),
        "kv_usage": first_of("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        "preemptions_total": first_of("vllm:num_preemptions_total"),
        "prompt_tokens_total": first_of("vllm:prompt_tokens_total"),
        "generation_tokens_total": first_of("vllm:generation_tokens_total"),
        "prefix_queries_total": first_of("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
        "prefix_hits_total": first_of("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        "queue_s_total": first_of("vllm:request_queue_time_seconds_sum"),
        "dequeued_total": first_of("vllm:request_queue_time_seconds_count"),
    },
    "SGLang": {
        "running": first_of("sglang:num_running_reqs"),
        "waiting": first_of("sglang:num_queue_reqs"),
        # token_usage is the largest of the three, but rounded to a percent
        "kv_usage": (
            total_of("sglang:full_token_usage", "sglang:swa_token_usage", "sglang:mamba_usage"),
            *first_of("sglang:token_usage"),
        ),
        # sglang:num_retracted_reqs is a gauge of the last step, not a count
        "preemptions_total": first_of("sglang:num_retracted_requests_total"),
        "prompt_tokens_total": first_of("sglang:prompt_tokens_total"),
        "generation_tokens_total": first_of("sglang:generation_tokens_total"),
        "prefix_queries_total": first_of("sglang:prompt_tokens_total"),
        "prefix_hits_total": first_of("sglang:cached_tokens_total"),
        "queue_s_total": first_of("sglang:queue_time_seconds_sum"),
        "dequeued_total": first_of("sglang:queue_time_seconds_count"),
    },
    "TGI": {
        "running": first_of("tgi_batch_current_size"),
        "waiting": first_of("tgi_queue_size"),
        "prompt_tokens_total": first_of("tgi_request_input_length_sum"),
        "generation_tokens_total": first_of("tgi_request_generated_tokens_sum"),
        "queue_s_total": first_of("tgi_request_queue_duration_sum"),
        "dequeued_total": first_of("tgi_request_queue_duration_count"),
    },
    "TensorRT-LLM": {
        "running": first_of("trtllm_num_requests_running"),
        "waiting": first_of("trtllm_num_requests_waiting"),
        "kv_usage": first_of("trtllm_kv_cache_utilization"),
        "prompt_tokens_total": first_of("trtllm_prompt_tokens_total"),
        "generation_tokens_total": first_of("trtllm_generation_tokens_total"),
        "prefix_queries_total": (
            total_of("trtllm_kv_cache_reused_blocks_total", "trtllm_kv_cache_missed_blocks_total"),
        ),
        "prefix_hits_total": first_of("trtllm_kv_cache_reused_blocks_total"),
        "queue_s_total": first_of("trtllm_request_queue_time_seconds_sum"),
        "dequeued_total": first_of("trtllm_request_queue_time_seconds_count"),
    },
    "Triton": {
        "running": (labelled("nv_trt_llm_request_metrics", "request_type", "scheduled"),),
        "waiting": (labelled("nv_trt_llm_request_metrics", "request_type", "waiting"),),
        "kv_usage": (
            labelled("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "fraction"),
            labelled("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", "used", out_of="max"),
        ),
        "prompt_tokens_total": first_of("nv_llm_input_token_len_sum"),
        "generation_tokens_total": first_of("nv_llm_output_token_len_sum"),
    },
    "llama.cpp": {
        "running": first_of("llamacpp:requests_processing"),
        "waiting": first_of("llamacpp:requests_deferred"),
        "kv_usage": first_of("llamacpp:kv_cache_usage_ratio"),
        # its prompt_tokens_total leaves out what was cached
        "prompt_tokens_total": (
            total_of("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
            total_of("llamacpp:prompt_tokens_total"),
        ),
        "generation_tokens_total": first_of("llamacpp:tokens_predicted_total"),
        "prefix_queries_total": (total_of("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),),
        "prefix_hits_total": first_of("llamacpp:prompt_tokens_cached_total"),
    },
}
"""Engine to column to sources. Our own engine speaks vLLM's names."""


def plain(name: str) -> str:
    """A name as it is compared: some pages and proxies write `_` where the engine wrote `:`."""
    return name.replace(":", "_")


WANTED = frozenset(
    plain(name)
    for columns in TABLE.values()
    for column in columns.values()
    for source in column
    for name in source.names
)
"""Every name in the table, plain."""
