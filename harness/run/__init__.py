"""Levels and phases of a run: what the master conducts and what every worker process does."""
