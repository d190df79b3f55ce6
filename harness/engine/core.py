"""A continuous-batching engine in virtual time: schedule → run → postprocess. No clock, no I/O.

Each step gives one token to every decoding sequence and fills the rest of its token budget with prompt (chunked
prefill), first come first served. When memory runs out the youngest sequence is preempted: it loses its context and
computes it again later. The scheduler follows vLLM's V1; what a step costs stands in the profile.
"""

from collections import deque
from random import Random

from msgspec import Struct

from harness.engine.blocks import Blocks
from harness.engine.profile import Profile, Speculation


class Job(Struct, frozen=True, kw_only=True, gc=False):
    """One request as the engine sees it: so many tokens in, exactly so many tokens out."""

    job_id: int
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[int, ...] = ()
    """`blocks.prefix_hashes` of the prompt; used when the profile has a prefix cache."""


class Emitted(Struct, frozen=True, gc=False):
    """What one step gave one job."""

    job_id: int
    tokens: int
    finished: bool = False
    reason: str = ""
    """"length" when finished: a job always ends by its number of tokens."""


class StepResult(Struct, frozen=True, kw_only=True):
    """One step: how long it takes and what it yields at its end."""

    duration_s: float
    batch: int
    """Sequences computed in this step."""
    tokens: int
    """Tokens computed in this step, prompt, decode and drafts; at most max_num_batched_tokens."""
    prefill_tokens: int
    preempted: int
    admitted: list[int]
    """Jobs that left the queue in this step; one that was preempted can do so again."""
    emitted: list[Emitted]


class _Sequence:
    """A job in the engine. Its known tokens are prompt and output so far; `computed` of them have their context."""

    __slots__ = ("computed", "job", "known", "private", "produced", "shared")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.known = job.prompt_tokens
        self.computed = 0
        self.produced = 0
        self.private = 0
        self.shared: list[int] = []

    @property
    def decoding(self) -> bool:
        return self.produced > 0 and self.known - self.computed == 1


_Share = tuple[_Sequence, int]
"""A sequence and how many of its tokens this step computes."""


class Engine:
    """Submit and abort jobs between steps; each `step` says how long it takes and what it emitted.

    `rng` decides which drafts are accepted; it is not touched without speculation.
    """

    def __init__(self, profile: Profile, rng: Random | None = None) -> None:
        self.profile = profile
        self.preemptions_total = 0
        self.prefix_queries_total = 0
        """Prompt tokens looked up in the prefix cache."""
        self.prefix_hits_total = 0
        """Prompt tokens found there."""
        self._rng = rng or Random(1)
        self._blocks = Blocks(profile.kv.num_blocks)
        self._block_size = profile.kv.block_size
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._admitted: list[int] = []
        self._sequences: dict[int, _Sequence] = {}
        self._tau_s = [profile.step.tau_s(batch) for batch in range(profile.max_num_seqs + 1)]

    @property
    def running(self) -> int:
        """Sequences that hold context."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Jobs queued: new, or preempted."""
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        """Share of the blocks held by sequences, 0 … 1."""
        return 1 - self._blocks.free / self._blocks.total

    @property
    def idle(self) -> bool:
        """Nothing to compute."""
        return not self._sequences

    def submit(self, job: Job) -> None:
        """Put a job at the end of the queue. Raises ValueError on one that could never run."""
        if job.prompt_tokens < 1 or job.output_tokens < 1:
            raise ValueError(f"job {job.job_id}: a prompt and an output of at least one token each are needed")
        if job.prompt_tokens + job.output_tokens > self.profile.max_model_len:
            asked = f"{job.prompt_tokens} + {job.output_tokens}"
            raise ValueError(f"job {job.job_id}: {asked} tokens > max_model_len {self.profile.max_model_len}")
        if job.job_id in self._sequences:
            raise ValueError(f"job {job.job_id} is already in the engine")
        sequence = self._sequences[job.job_id] = _Sequence(job)
        self._waiting.append(sequence)

    def abort(self, job_id: int) -> bool:
        """Drop a job wherever it is; False if it is not here (finished, or never submitted)."""
        sequence = self._sequences.pop(job_id, None)
        if sequence is None:
            return False
        self._free(sequence)
        queue = self._running if sequence in self._running else self._waiting
        queue.remove(sequence)
        return True

    def step(self) -> StepResult:
        """Compute one step. What it emitted is due `duration_s` after its start; an idle engine takes 0 s."""
        preempted_before = self.preemptions_total
        self._admitted = []
        work = self._schedule()
        duration_s, tokens, prefill_tokens = self._run(work)
        return StepResult(
            duration_s=duration_s,
            batch=len(work),
            tokens=tokens,
            prefill_tokens=prefill_tokens,
            preempted=self.preemptions_total - preempted_before,
            admitted=self._admitted,
            emitted=self._postprocess(work),
        )

    # --- schedule -------------------------------------------------------------------------------------------------

    def _schedule(self) -> list[_Share]:
        """Running sequences first, oldest first; then the queue, unless memory has just run out."""
        budget = self.profile.max_num_batched_tokens
        preempted_before = self.preemptions_total
        work: list[_Share] = []
        position = 0
        while budget and position < len(self._running):
            sequence = self._running[position]
            count = min(self._wanted(sequence), budget)
            if not self._grow(sequence, count):
                return work
            work.append((sequence, count))
            budget -= count
            position += 1
        if self.preemptions_total == preempted_before:
            self._admit(work, budget)
        return work

    def _wanted(self, sequence: _Sequence) -> int:
        missing = sequence.known - sequence.computed
        speculation = self.profile.speculation
        if speculation is None or not sequence.decoding:
            return missing
        return missing + min(speculation.draft_tokens, sequence.job.output_tokens - sequence.produced - 1)

    def _grow(self, sequence: _Sequence, count: int) -> bool:
        """Get memory for so many more tokens, from younger sequences if need be; False: it was the youngest."""
        blocks = -(-(sequence.computed + count) // self._block_size) - sequence.private - len(sequence.shared)
        if blocks <= 0:
            return True
        while not self._blocks.take(blocks):
            victim = self._running.pop()
            self._preempt(victim)
            if victim is sequence:
                return False
        sequence.private += blocks
        return True

    def _preempt(self, sequence: _Sequence) -> None:
        self._free(sequence)
        self._waiting.appendleft(sequence)
        self.preemptions_total += 1

    def _free(self, sequence: _Sequence) -> None:
        self._blocks.release(sequence.private, sequence.shared)
        sequence.private, sequence.shared, sequence.computed = 0, [], 0

    def _admit(self, work: list[_Share], budget: int) -> None:
        """Start jobs in order of arrival while there is budget, a seat and memory; nobody overtakes."""
        while budget and self._waiting and len(self._running) < self.profile.max_num_seqs:
            sequence = self._waiting[0]
            self._attach_prefix(sequence)
            count = min(sequence.known - sequence.computed, budget)
            blocks = -(-(sequence.computed + count) // self._block_size) - len(sequence.shared)
            if not self._blocks.take(blocks):
                self._free(sequence)
                return
            sequence.private = blocks
            if sequence.produced == 0 and self.profile.kv.prefix_cache:
                self.prefix_queries_total += sequence.known
                self.prefix_hits_total += sequence.computed
            self._running.append(self._waiting.popleft())
            self._admitted.append(sequence.job.job_id)
            work.append((sequence, count))
            budget -= count

    def _attach_prefix(self, sequence: _Sequence) -> None:
        """Share what the cache has of this prompt; at least one token is left to compute, to sample from."""
        if not self.profile.kv.prefix_cache:
            return
        most = (sequence.known - 1) // self._block_size
        sequence.shared = list(sequence.job.prefix[: min(self._blocks.matched(sequence.job.prefix), most)])
        for block in sequence.shared:
            self._blocks.share(block)
        sequence.computed = len(sequence.shared) * self._block_size

    # --- run ------------------------------------------------------------------------------------------------------

    def _run(self, work: list[_Share]) -> tuple[float, int, int]:
        """Seconds, tokens and prefill tokens of this step: τ(batch) + c · prefill tokens + d · context tokens."""
        if not work:
            return 0.0, 0, 0
        tokens = prefill = context = drafts = 0
        for sequence, count in work:
            tokens += count
            context += sequence.computed + count
            if sequence.decoding:
                drafts += count - 1
            else:
                prefill += count
        step, speculation = self.profile.step, self.profile.speculation
        cost_ms = step.per_prefill_token_ms * prefill + step.per_kv_token_ms * context
        if drafts and speculation is not None:
            cost_ms += speculation.draft_ms
        return self._tau_s[len(work)] + cost_ms / 1e3, tokens, prefill

    # --- postprocess ----------------------------------------------------------------------------------------------

    def _postprocess(self, work: list[_Share]) -> list[Emitted]:
        """Note what was computed; a sequence whose known tokens all are yields a token, and accepted drafts."""
        emitted: list[Emitted] = []
        any_finished = False
        for sequence, count in work:
            missing = sequence.known - sequence.computed
            if count < missing:
                sequence.computed += count
                self._publish(sequence)
                continue
            accepted = self._accepted(count - missing) if count > missing else 0
            sequence.computed = sequence.known + accepted
            sequence.known += 1 + accepted
            sequence.produced += 1 + accepted
            self._publish(sequence)
            finished = sequence.produced == sequence.job.output_tokens
            any_finished |= finished
            emitted.append(Emitted(sequence.job.job_id, 1 + accepted, finished, "length" if finished else ""))
        if any_finished:
            self._retire()
        return emitted

    def _accepted(self, drafts: int) -> int:
        speculation: Speculation | None = self.profile.speculation
        chance = speculation.acceptance if speculation else 0.0
        return next((n for n in range(drafts) if self._rng.random() >= chance), drafts)

    def _publish(self, sequence: _Sequence) -> None:
        """Full blocks of the prompt become known to the prefix cache once they are computed."""
        if not self.profile.kv.prefix_cache or len(sequence.shared) == len(sequence.job.prefix):
            return
        full = min(sequence.computed, sequence.job.prompt_tokens) // self._block_size
        for block in sequence.job.prefix[len(sequence.shared) : full]:
            self._blocks.publish(block)
            sequence.shared.append(block)
            sequence.private -= 1

    def _retire(self) -> None:
        for sequence in self._running:
            if sequence.produced == sequence.job.output_tokens:
                self._free(sequence)
                del self._sequences[sequence.job.job_id]
        self._running = [s for s in self._running if s.produced < s.job.output_tokens]
