"""A llama-shaped model of random weights behind a real tokenizer, for tests of real servers. Reads and writes files.

It talks nonsense at a steady pace, which is all that a load test asks of a model: its speed follows from its size.
Ask for `ignore_eos`, or an answer may stop anywhere.
"""

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from msgspec import Struct

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


class Shape(Struct, frozen=True, kw_only=True):
    """Size of the model. At one thread the time for a token is about the weights (4 bytes each) / memory bandwidth."""

    width: int = 256
    layers: int = 4
    heads: int = 8
    kv_heads: int = 4
    inner: int = 512
    """Width of the feed-forward part."""
    context: int = 32_768
    seed: int = 7

    @property
    def head_width(self) -> int:
        return self.width // self.heads


def write(out: Path, *, vocab: Path, shape: Shape) -> None:
    """Write the model to `out`, with the tokenizer that `vocab` (a GGUF file, weights not needed) holds."""
    writer = gguf.GGUFWriter(out, "llama")
    tokens = _copy_tokenizer(gguf.GGUFReader(vocab), writer)
    _describe(writer, shape, tokens)
    for name, weights in _tensors(shape, tokens):
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_tokenizer(source: gguf.GGUFReader, writer: gguf.GGUFWriter) -> int:
    """Copy every tokenizer field and return the number of tokens it knows."""
    for name, field in source.fields.items():
        if name.startswith("tokenizer.") and name != "tokenizer.chat_template":
            element = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], element)
    writer.add_chat_template(CHAT_TEMPLATE)
    return len(source.fields["tokenizer.ggml.tokens"].data)


def _describe(writer: gguf.GGUFWriter, shape: Shape, tokens: int) -> None:
    writer.add_name("tiny-random")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(tokens)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_layer_norm_rms_eps(1e-5)


def _tensors(shape: Shape, tokens: int) -> Iterator[tuple[str, Floats]]:
    """Names as llama.cpp knows them. Norms are ones; a matrix is (outputs, inputs), scaled so that activations stay
    near one."""
    draw = np.random.default_rng(shape.seed)
    kv_width = shape.kv_heads * shape.head_width

    def matrix(outputs: int, inputs: int) -> Floats:
        return draw.standard_normal((outputs, inputs), dtype=np.float32) * np.float32(inputs**-0.5)

    ones = np.ones(shape.width, dtype=np.float32)
    yield "token_embd.weight", matrix(tokens, shape.width)
    yield "output_norm.weight", ones
    yield "output.weight", matrix(tokens, shape.width)
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", ones
        yield f"{block}.attn_q.weight", matrix(shape.width, shape.width)
        yield f"{block}.attn_k.weight", matrix(kv_width, shape.width)
        yield f"{block}.attn_v.weight", matrix(kv_width, shape.width)
        yield f"{block}.attn_output.weight", matrix(shape.width, shape.width)
        yield f"{block}.ffn_norm.weight", ones
        yield f"{block}.ffn_gate.weight", matrix(shape.inner, shape.width)
        yield f"{block}.ffn_up.weight", matrix(shape.inner, shape.width)
        yield f"{block}.ffn_down.weight", matrix(shape.width, shape.inner)
