"""Tokenswarm: load tests for streaming LLM inference that tell the truth about every token."""

__version__ = "0.1.0"
