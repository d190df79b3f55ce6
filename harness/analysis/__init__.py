"""Records to levels: tables in, findings out. Pandas lives here and nowhere else; no clock, no I/O."""
