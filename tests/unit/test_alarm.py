"""harness/run/alarm.py: never too soon, early only for what is far away, and others run meanwhile."""

import gevent
import pytest

from harness import clock
from harness.run.alarm import EARLY_NS, SELDOM_NS, TimerfdAlarm, YieldingAlarm, early_ns, yield_until


@pytest.mark.parametrize("make", [TimerfdAlarm, YieldingAlarm])
def test_an_alarm_wakes_at_its_instant_and_not_before(make: type[TimerfdAlarm | YieldingAlarm]) -> None:
    timer, at_ns = make(), clock.wall_ns() + 20 * clock.MS
    try:
        timer.wait_until(at_ns)
        assert clock.wall_ns() >= at_ns
        timer.wait_until(at_ns)  # passed already: others get a turn, and no more
    finally:
        timer.close()


def test_only_what_is_far_away_is_worth_being_early_for() -> None:
    now_ns = clock.wall_ns()
    far_ns = now_ns + 100 * SELDOM_NS
    assert early_ns(far_ns) == far_ns - EARLY_NS
    assert early_ns(now_ns + SELDOM_NS // 2) == now_ns + SELDOM_NS // 2
    assert early_ns(now_ns - clock.S) == now_ns - clock.S


def test_others_run_while_one_waits_awake() -> None:
    turns = []
    other = gevent.spawn(lambda: turns.append(clock.wall_ns()))
    at_ns = clock.wall_ns() + 5 * clock.MS
    yield_until(at_ns)
    other.join()
    assert turns[0] < at_ns <= clock.wall_ns()
