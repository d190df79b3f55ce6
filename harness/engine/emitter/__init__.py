"""A known emitter: answers every POST with token frames of known timing and writes down when it truly sent each. I/O.

It is what a client is measured against, so it does as little as it can: one thread, one epoll, every payload encoded
before it is due, one clock reading and one `send` a token. A stream that started at s owes token k (from 0) at
s + first + k·gap, s being the instant at which the last byte of its request was read; a late token does not move the
ones after it. First gap and later gaps are the same for all, so streams come due in the order in which they queue: two
deques stand for a heap. It takes as much of one core as there is whenever something is due within a millisecond.

A stamp is CLOCK_REALTIME right *before* the `send` that carries the token: on the loopback device the receiving socket
gets the bytes, and their arrival stamp, within that call, so a stamp taken after it could lie behind the arrival.
A token that found the socket full is stamped when the last of what had to wait was handed over.

In the order in which a request passes through: `request` reads it, `payload` encodes its stream, `peer` holds it,
`beat` says when it is due, `loop` sends, `sent` is what was truly sent. `python -m harness.engine.emitter` runs it.
"""

from harness.engine.emitter.beat import Beat
from harness.engine.emitter.request import Unreadable, parsed_request
from harness.engine.emitter.sent import MAGIC, SentStream, read_truth, row

__all__ = ["MAGIC", "Beat", "SentStream", "Unreadable", "parsed_request", "read_truth", "row"]
