"""What people would use instead: a plain Locust user with requests, sseclient-py and json, timing in the user. I/O.

Every user posts in a closed loop and reads its stream event by event; TTFT runs from right before the post to the first
content it sees, a gap from content to content, both by `perf_counter`. Nothing here is made slow on purpose: one
session a user, kept connections, one JSON parse an event, lists that are summed up at the end.

    python bench/plain_user.py --host http://127.0.0.1:PORT --users 100 --ramp-s 2 --window-s 8

Prints one JSON object: what it would have reported, and what it cost.
"""

import argparse
import json
from itertools import count
from time import perf_counter, process_time

import gevent
import numpy as np
from locust import HttpUser, task
from locust.env import Environment
from sseclient import SSEClient

from harness.clock import runnable_ns

BODY = {"model": "known", "stream": True, "messages": [{"role": "user", "content": "as fast as it goes"}]}


class PlainUser(HttpUser):
    """One simulated user. The lists belong to the class: all users of the process report into them."""

    stagger_s = 0.0
    """Users begin one by one, so far apart, and not in Locust's batches of a second."""
    seats = count()
    ttfts: list[tuple[float, float]] = []
    """When the request began and its TTFT, in seconds."""
    gaps: list[tuple[float, float]] = []
    """When the later token was seen and the gap before it, in seconds."""

    def on_start(self):
        gevent.sleep(next(self.seats) * self.stagger_s)

    @task
    def chat(self):
        began = perf_counter()
        seen = None
        response = self.client.post("/v1/chat/completions", json=BODY, stream=True)
        if response.status_code != 200:  # Locust has counted it as a failure
            return
        for event in SSEClient(response).events():
            if event.data == "[DONE]":
                continue
            choices = json.loads(event.data)["choices"]
            if not choices or not choices[0]["delta"].get("content"):
                continue
            now = perf_counter()
            if seen is None:
                self.ttfts.append((began, now - began))
            else:
                self.gaps.append((now, now - seen))
            seen = now


def spread_ms(values):
    """P50 and P99 (linear) in ms; None where there is nothing."""
    if not values:
        return {"p50": None, "p99": None}
    p50, p99 = np.percentile(np.array(values) * 1e3, [50, 99])
    return {"p50": round(float(p50), 3), "p99": round(float(p99), 3)}


def measured(host, users, ramp_s, window_s):
    """Runs the users and gives what they saw in the window after the ramp."""
    PlainUser.stagger_s = ramp_s / users
    env = Environment(user_classes=[PlainUser], host=host)
    runner = env.create_local_runner()
    runner.start(users, spawn_rate=users)
    gevent.sleep(ramp_s)
    opened, cpu_before, queued_before_ns = perf_counter(), process_time(), runnable_ns()
    gevent.sleep(window_s)
    closed, cpu_after, queued_after_ns = perf_counter(), process_time(), runnable_ns()
    runner.quit()
    ttfts = [ttft for began, ttft in PlainUser.ttfts if opened <= began and began + ttft < closed]
    gaps = [gap for at, gap in PlainUser.gaps if opened <= at < closed]
    firsts = sum(opened <= began + ttft < closed for began, ttft in PlainUser.ttfts)
    tokens = len(gaps) + firsts
    return {
        "users": users,
        "window_s": round(closed - opened, 3),
        "requests": len(ttfts),
        "errors": env.stats.total.num_failures,
        "ttft_ms": spread_ms(ttfts),
        "gap_ms": spread_ms(gaps),
        "token_events": tokens,
        "tokens_per_s": round(tokens / (closed - opened)),
        "queued": round((queued_after_ns - queued_before_ns) / 1e9 / (closed - opened), 4),
        "cpu_share": round((cpu_after - cpu_before) / (closed - opened), 3),
        "cpu_us_per_token": round((cpu_after - cpu_before) * 1e6 / max(1, tokens), 1),
    }


def main():
    parser = argparse.ArgumentParser(description="A plain Locust user against a streaming endpoint.")
    parser.add_argument("--host", required=True)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--ramp-s", type=float, default=2.0)
    parser.add_argument("--window-s", type=float, default=8.0)
    args = parser.parse_args()
    print(json.dumps(measured(args.host, args.users, args.ramp_s, args.window_s)))


if __name__ == "__main__":
    main()
