"""The engine under test: a continuous-batching core in virtual time, and the same core behind HTTP."""
