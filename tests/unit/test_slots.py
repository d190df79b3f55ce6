"""Slot numbers: never two at once, and always the lowest."""

from hypothesis import given
from hypothesis import strategies as st

from harness.run.slots import Slots


@given(st.lists(st.integers(-3, 9)))
def test_the_lowest_number_that_is_free(steps: list[int]) -> None:
    """A step below 0 takes a number; any other frees one of those in use."""
    slots, used, most = Slots(), list[int](), 0
    for step in steps:
        if step < 0:
            number = slots.take()
            assert number == min(set(range(len(used) + 1)) - set(used))
            used.append(number)
            most = max(most, len(used))
        elif used:
            slots.free(used.pop(step % len(used)))
    assert all(number < most for number in used)
