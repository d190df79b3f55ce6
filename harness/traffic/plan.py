"""What a worker asks for on a level, request by request. Pure: a function of the seed, the level and the worker."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import count

import numpy as np

from harness.model import RequestSpec, Scenario
from harness.traffic.lengths import draw
from harness.traffic.prompts import Prompts

BLOCK = 256
"""Lengths drawn at once."""
STREAM = 1
"""First element of the spawn key here; `arrivals` uses another."""
LEVELS = WORKERS = 2**14
REQUESTS = 2**36
"""Levels, workers and requests of a worker on a level whose prompts are told apart: 64 bits together."""


def requests(scenario: Scenario, *, level: int, worker: int) -> Iterator[RequestSpec]:
    """Endless specs of one worker on one level, made when asked for. Prompts are unique within the run.

    The same seed, level and worker give the same specs, however many workers there are. Raises ValueError for a level
    or a worker beyond 2¹⁴.
    """
    if not (0 <= level < LEVELS and 0 <= worker < WORKERS):
        raise ValueError(f"level {level}, worker {worker}: expected both from 0 to {LEVELS - 1}")
    return _requests(scenario, level, worker)


def _requests(scenario: Scenario, level: int, worker: int) -> Iterator[RequestSpec]:
    prompts = _prompts(scenario.seed)
    keys = count((level * WORKERS + worker) * REQUESTS)
    seeds = np.random.SeedSequence(scenario.seed, spawn_key=(STREAM, level, worker)).spawn(2)
    # Two streams, so that another distribution of answers leaves the prompts as they were.
    prompt_rng, output_rng = (np.random.default_rng(seed) for seed in seeds)
    while True:
        asked = draw(scenario.prompt_tokens, prompt_rng, BLOCK).tolist()
        wanted = draw(scenario.output_tokens, output_rng, BLOCK).tolist()
        for prompt_tokens, output_tokens in zip(asked, wanted, strict=True):
            prompt = prompts.text(prompt_tokens, next(keys))
            yield RequestSpec(prompt=prompt, prompt_tokens=prompt_tokens, output_tokens=output_tokens)


@lru_cache(maxsize=4)
def _prompts(seed: int) -> Prompts:
    """One corpus for all levels of a run: it costs about 20 ms and a megabyte."""
    return Prompts(seed)
