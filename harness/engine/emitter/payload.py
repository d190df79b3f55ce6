"""What the known emitter sends, encoded before it is due. No clock, no I/O."""

from harness.engine.frames import DONE, LAST_CHUNK, chunk


def reply(status: bytes, kind: bytes, body: bytes) -> bytes:
    """A whole answer that is not streamed."""
    return b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (status, kind, len(body), body)


HEADERS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
MODELS = reply(b"200 OK", b"application/json", b'{"object":"list","data":[{"id":"known","object":"model"}]}')
FRAME = b'data: {"id":"chatcmpl-%b","object":"chat.completion.chunk","created":%d,"model":"known","choices":'
ROLE = b'[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
TOKEN = b'[{"index":0,"delta":{"content":" %05d"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'
FINISH = b'[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length","token_ids":null}]}\n\n'
USAGE = b'[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}}\n\n'
TOKEN_BYTES = len(TOKEN % 0)


def frame_start(key: str, created_s: int) -> bytes:
    """What every frame of one stream begins with, up to its choices."""
    return FRAME % (key.encode(), created_s)


def opening(start: bytes) -> bytes:
    """Headers and the role-only frame."""
    return HEADERS + chunk(start + ROLE)


def token_head(start: bytes) -> bytes:
    """The chunk of any token up to where its number makes a difference; the token's `token_tails` follows."""
    return b"%x\r\n%b" % (len(start) + TOKEN_BYTES, start)


def token_tails(count: int) -> list[bytes]:
    """The chunks of tokens 0, 1 … from where they differ: shared by all streams, so a send joins just two pieces."""
    return [TOKEN % k + b"\r\n" for k in range(count)]


def ending(start: bytes, prompt_tokens: int, tokens: int) -> bytes:
    """All that follows the last token, to be sent together with it: finish, usage, [DONE] and the end of the body."""
    usage = USAGE % (prompt_tokens, prompt_tokens + tokens, tokens)
    return chunk(start + FINISH) + chunk(start + usage) + chunk(DONE) + LAST_CHUNK
