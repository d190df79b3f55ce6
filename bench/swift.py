"""`twin.fast.run`, open loop, in C and some twenty times as fast: for benches that search hundreds of times. ctypes."""

import ctypes

import numpy as np
from compiled import library

from harness.twin import fast
from harness.twin.server import Server
from harness.twin.trace import Lives, Steps

RUNS_A_REQUEST = 4
"""Room for runs of steps at first; where they are more, the flight is flown again with room for all."""


class Flight(ctypes.Structure):
    """`struct flight` of swift.c."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("due_s", "prompt", "output", "tau_s")),
        *((name, ctypes.c_double) for name in ("prefill_s", "kv_s")),
        *((name, ctypes.c_int64) for name in ("seats", "tokens")),
        *((name, ctypes.c_void_p) for name in ("first_s", "last_s")),
        ("room", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("batch", "decoding", "count", "end_s")),
    ]


def run(server, trace):
    """What `fast.run` gives for the same server and trace; closed loop is handed to it."""
    if trace.arrival_s is None:
        return fast.run(server, trace)
    n, kv_s = len(trace), server.per_kv_token_ms / 1e3
    given = {
        "due_s": np.append(trace.arrival_s + server.constant_ms / 1e3, np.inf),
        "prompt": np.ascontiguousarray(trace.prompt_tokens, np.int64),
        "output": np.ascontiguousarray(trace.output_tokens, np.int64),
        "tau_s": np.array([server.tau_s(batch) for batch in range(server.max_num_seqs + 1)]),
        "first_s": np.zeros(n),
        "last_s": np.zeros(n),
    }
    room = RUNS_A_REQUEST * n
    while True:
        noted = {
            "batch": np.zeros(room, np.int32),
            "decoding": np.zeros(room, np.int32),
            "count": np.zeros(room, np.int64),
            "end_s": np.zeros(room),
        }
        flight = Flight(
            prefill_s=server.per_prefill_token_ms / 1e3, kv_s=kv_s, seats=server.max_num_seqs,
            tokens=server.max_num_batched_tokens, room=room,
            **{name: array.ctypes.data for name, array in {**given, **noted}.items()},
        )  # fmt: skip
        flown = library("swift").flown
        flown.restype = ctypes.c_int64
        runs = flown(ctypes.byref(flight))
        if runs < 0:
            raise MemoryError("swift.c: no memory for the seats")
        if runs <= room:
            steps = Steps(per_kv_token_s=kv_s, **{name: array[:runs] for name, array in noted.items()})
            return Lives(
                arrived_s=trace.arrival_s, first_s=given["first_s"], last_s=given["last_s"],
                output_tokens=trace.output_tokens, steps=steps,
            )  # fmt: skip
        room = runs


def check(traces):
    """Raises AssertionError unless swift.c and fast.py agree bit for bit on these traces, one random server each."""
    for seed, trace in enumerate(traces):
        rng = np.random.default_rng(seed)
        server = Server(
            knots=((1, 8.0), (4, 9.1), (32, 8.0 + 30 * rng.random())), per_prefill_token_ms=0.03,
            per_kv_token_ms=float(rng.choice([0.0, 1e-4])), constant_ms=5.0, max_num_seqs=32,
            max_num_batched_tokens=int(rng.choice([512, 8192])),
        )  # fmt: skip
        ours, theirs = run(server, trace), fast.run(server, trace)
        for name in ("first_s", "last_s"):
            assert np.array_equal(getattr(ours, name), getattr(theirs, name)), f"trace {seed}: {name} differs"
        for name in ("batch", "decoding", "count", "end_s"):
            assert np.array_equal(getattr(ours.steps, name), getattr(theirs.steps, name)), f"trace {seed}: {name}"
