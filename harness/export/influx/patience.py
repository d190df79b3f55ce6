"""How long to wait before trying again. No clock, no I/O."""

FIRST_S = 0.5
MOST_S = 15.0
MOST_ASKED_S = 30.0


def pause_s(attempt: int, retry_after_s: float | None, chance: float) -> float:
    """Before attempt `attempt` + 1, in seconds: what the server asks for, from FIRST_S to MOST_ASKED_S; else FIRST_S
    doubled each time up to MOST_S, of which `chance` (0 … 1) takes up to half away, lest many come at once."""
    if retry_after_s is not None:
        return min(max(retry_after_s, FIRST_S), MOST_ASKED_S)
    return float(min(FIRST_S * 2 ** min(attempt, 10), MOST_S)) * (1 - chance / 2)
