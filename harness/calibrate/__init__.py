"""`tokenswarm calibrate`: what can this machine time truly? Our client against the known emitter, level by level."""

from harness.calibrate.climb import calibrate
from harness.calibrate.rung import Calibration, Rung
from harness.calibrate.words import HEADING, line, text

__all__ = ["HEADING", "Calibration", "Rung", "calibrate", "line", "text"]
