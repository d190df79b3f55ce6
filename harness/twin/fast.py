"""The engine's core at some 3·10⁵ requests a second: it computes what changes and jumps over what does not. Pure.

`engine.core` stays the reference, and a test holds this file to it. What the jump rests on: without memory limit,
prefix cache and speculation, sequences decode until they are done, at most one is in the middle of its prompt (the
budget ran out), and the queue is empty while there are seats. So between arrivals, prefills and finishes all steps
have the same batch, and grow by the same amount where context costs.
"""

from array import array
from bisect import insort
from heapq import heappop, heappush
from math import inf, sqrt

import numpy as np

from harness.twin.server import Server
from harness.twin.trace import Lives, Steps, Trace

_SHIFT = 32
"""A finish is one integer, (step << 32) + request: it sorts by step and then, as the engine does, by seniority."""
_REQUEST = (1 << _SHIFT) - 1


def run(server: Server, trace: Trace) -> Lives:
    """Everything a trace meets on a server, from empty to empty. Every request ends."""
    flight = _Flight(server, trace)
    flight.fly()
    arrived_s = trace.arrival_s
    if arrived_s is None:
        arrived_s = np.array(flight.due_s[: len(trace)]) - server.constant_ms / 1e3
    return Lives(
        arrived_s=arrived_s,
        first_s=np.array(flight.first_s),
        last_s=np.array(flight.last_s),
        output_tokens=trace.output_tokens,
        steps=flight.steps(),
    )


def _due_s(server: Server, trace: Trace) -> list[float]:
    """When requests reach the engine, as far as that is known at the start, and infinity."""
    known_s = trace.arrival_s
    if known_s is None:
        starts_s = np.zeros(trace.users) if trace.starts_s is None else np.sort(trace.starts_s)
        known_s = starts_s[: len(trace)]
    return [*(known_s + server.constant_ms / 1e3).tolist(), inf]


class _Flight:
    """One run. One of the few mutable things: it grows from step to step. Times in s, steps counted from 0."""

    def __init__(self, server: Server, trace: Trace) -> None:
        self.due_s = _due_s(server, trace)
        self.first_s, self.last_s = [0.0] * len(trace), [0.0] * len(trace)
        self._prompts, self._outputs = trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
        self._seats, self._tokens_a_step = server.max_num_seqs, server.max_num_batched_tokens
        self._tau_s = [server.tau_s(batch) for batch in range(self._seats + 1)]
        self._prefill_s, self._kv_s = server.per_prefill_token_ms / 1e3, server.per_kv_token_ms / 1e3
        self._follow_s = trace.think_s + server.constant_ms / 1e3
        self._followers = len(trace) + 1 - len(self.due_s)
        """Requests that come after an answer, closed loop."""
        self._now_s = 0.0
        self._step = 0
        self._head = 0
        """First request that waits: all before it were admitted."""
        self._ending: list[int] = []
        """Heap of the finishes of all that decode."""
        self._context = 0
        """Tokens of context of all that decode, in their next step."""
        self._partial, self._done, self._left = 0, 0, 0
        """The request in the middle of its prompt, and how many of its tokens are computed and missing."""
        self._batch, self._decoding, self._count, self._end_s = array("i"), array("i"), array("q"), array("d")

    def steps(self) -> Steps:
        """What was noted of the steps so far."""
        return Steps(
            batch=np.array(self._batch, np.int32),
            decoding=np.array(self._decoding, np.int32),
            count=np.array(self._count, np.int64),
            end_s=np.array(self._end_s),
            per_kv_token_s=self._kv_s,
        )

    def fly(self) -> None:
        """To the end of the last request."""
        ending, due_s, seats = self._ending, self.due_s, self._seats
        while True:
            if self._left or (due_s[self._head] <= self._now_s and len(ending) < seats):
                self._prefill()
            elif ending:
                self._jump()
            elif due_s[self._head] < inf:
                self._now_s = due_s[self._head]
                self._pass(0, 0, 0)
            else:
                return

    def _prefill(self) -> None:
        """One step with prompts in it: first the one begun before, then the queue, while there are budget and seats."""
        decoding, now_s, due_s, prompts = len(self._ending), self._now_s, self.due_s, self._prompts
        batch, head, seats, context = decoding, self._head, self._seats, self._context
        room = budget = self._tokens_a_step - decoding
        entering = []
        left = self._left
        if left:
            batch += 1
            count = left if left < budget else budget
            budget -= count
            left -= count
            self._done += count
            context += self._done
            if not left:
                entering.append(self._partial)
        while budget and batch < seats and due_s[head] <= now_s:
            prompt = prompts[head]
            if prompt <= budget:
                entering.append(head)
                budget -= prompt
                context += prompt
            else:
                self._partial, self._done, left = head, budget, prompt - budget
                context += budget
                budget = 0
            batch += 1
            head += 1
        self._left, self._head = left, head
        self._now_s = now_s + self._tau_s[batch] + self._prefill_s * (room - budget) + self._kv_s * context
        self._pass(batch, decoding, 1)
        if entering:
            self._enter(entering)

    def _jump(self) -> None:
        """Steps of decodes only, to the next finish, or to the next arrival if there is a seat for it."""
        decoding, now_s = len(self._ending), self._now_s
        due_s = self.due_s[self._head] if decoding < self._seats else inf
        count = (self._ending[0] >> _SHIFT) - self._step
        first_s, growth_s = self._tau_s[decoding] + self._kv_s * self._context, self._kv_s * decoding
        half_s = growth_s / 2
        end_s = now_s + count * (first_s + half_s * (count - 1))
        if due_s < end_s:
            count = int(_steps_within(due_s - now_s, first_s, growth_s)) or 1
            end_s = now_s + count * (first_s + half_s * (count - 1))
            while end_s < due_s:
                count += 1
                end_s = now_s + count * (first_s + half_s * (count - 1))
        self._now_s = end_s
        self._pass(decoding, decoding, count)

    def _pass(self, batch: int, decoding: int, count: int) -> None:
        """So many steps are over, and now is their end: who had as many tokens to go leaves."""
        self._batch.append(batch)
        self._decoding.append(decoding)
        self._count.append(count)
        self._end_s.append(self._now_s)
        self._step = step = self._step + count
        self._context += count * decoding
        ending, until = self._ending, (step + 1) << _SHIFT
        while ending and ending[0] < until:
            request = heappop(ending) & _REQUEST
            self._context -= self._prompts[request] + self._outputs[request]
            self._end(request)

    def _enter(self, entering: list[int]) -> None:
        """These got their first token in the step that is just over."""
        for request in entering:
            self.first_s[request] = self._now_s
            later = self._outputs[request] - 1
            if later:
                heappush(self._ending, ((self._step + later) << _SHIFT) + request)
                self._context += self._prompts[request] + 1
            else:
                self._end(request)

    def _end(self, request: int) -> None:
        self.last_s[request] = self._now_s
        if self._followers:
            self._followers -= 1
            insort(self.due_s, self._now_s + self._follow_s, self._head)


def _steps_within(span_s: float, first_s: float, growth_s: float) -> float:
    """How many steps fit into a span, when each is longer than the one before by `growth_s`: a quadratic's root."""
    if not growth_s:
        return span_s / first_s
    half = first_s - growth_s / 2
    return 2 * span_s / (half + sqrt(half * half + 2 * growth_s * span_s))
