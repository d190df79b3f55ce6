"""Bytes to records, sans-io: HTTP/1.1 responses, SSE framing, dialects, and the Exchange that joins them."""
