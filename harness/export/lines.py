"""Columns to InfluxDB line protocol, in bulk: one text a point, each with its own line end. No clock, no I/O.

The value buffer of any run of consecutive lines is a request body as it stands. Names of measurements, tags and fields
come from `schema.MEASUREMENTS` and need no escaping; values do:

- tag: comma, equals sign and space get a backslash. Servers disagree on a backslash in a tag, and none takes a line
  break there, so a backslash becomes a slash and a control character a space. An empty tag is left out.
- text field: in quotes, where quote and backslash get a backslash; a line break stands as it is, which is why lines
  are told apart by the array's offsets and not by looking for their ends.
- int has an `i` and float a decimal point or an exponent, so that the type of a field never changes. NaN and None mean
  absent; an infinity is refused.
"""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.schema import Form, Measurement

TEXT = pa.large_string()
Tag: TypeAlias = str | int | pa.Array


def lines(of: Measurement, tags: Mapping[str, Tag], values: Mapping[str, pa.Array], stamps_ns: pa.Array) -> pa.Array:
    """One line a row, as large_binary; a row without any value makes none.

    ValueError: a tag or value that the measurement has not, a tag missing, or an infinity.
    """
    strangers = {*tags} ^ {*of.tags} | ({*values} - {*of.forms})
    if strangers:
        raise ValueError(f"{of.name} points with {', '.join(sorted(strangers))}: not as schema.MEASUREMENTS has them")
    fields = [field_text(name, form, values[name]) for name, form in of.forms.items() if name in values]
    some = np.zeros(len(stamps_ns), np.bool_)
    for field in fields:
        some |= field.is_valid().to_numpy(zero_copy_only=False)
    parts = [head_text(of.name, tags), *fields, stamps_ns.cast(TEXT)]
    if not some.all():  # also since a join that skips every part of a row skips the row
        parts = [part.filter(pa.array(some)) if isinstance(part, pa.Array) else part for part in parts]
    return ended(parts[0], joined(*parts[1:-1], between=",", skip=True), parts[-1])


def ended(heads: pa.Array | pa.Scalar, fields: pa.Array, stamps: pa.Array) -> pa.Array:
    """Heads, fields and stamps, all texts, to whole lines."""
    return joined(heads, " ", fields, " ", stamps, "\n").cast(pa.large_binary())


def head_text(name: str, tags: Mapping[str, Tag]) -> pa.Array | pa.Scalar:
    """Measurement and tags of each row, tags in the order of their names; a scalar where all tags are constants."""
    texts = [_tag_text(tag, value) for tag, value in sorted(tags.items())]
    return joined(name, *texts, between=",", skip=True)


def field_text(name: str, form: Form, values: pa.Array) -> pa.Array:
    """`name=value`, None where it is absent."""
    if form == "int":
        return joined(f"{name}=", _whole(values).cast(TEXT), "i")
    if form == "float":
        return joined(f"{name}=", _float_text(name, values))
    texts = pc.replace_substring(pc.replace_substring(values.cast(TEXT), "\\", "\\\\"), '"', '\\"')
    return joined(f'{name}="', pc.if_else(pc.equal(texts, ""), pa.scalar(None, TEXT), texts), '"')


def joined(*parts: pa.Array | pa.Scalar | str, between: str = "", skip: bool = False) -> pa.Array:
    """Row by row, with something in between; a None makes the whole None, or is skipped. Texts are the same in every
    row; of texts alone it is a scalar."""
    scalars = [pa.scalar(part, TEXT) if isinstance(part, str) else part for part in (*parts, between)]
    return pc.binary_join_element_wise(*scalars, null_handling="skip" if skip else "emit_null")


def tag_value(value: Tag) -> pa.Array | pa.Scalar:
    """What a tag can hold of a value: different values may become one."""
    texts = pa.scalar(str(value), TEXT) if isinstance(value, str | int) else value.cast(TEXT)
    return pc.replace_substring_regex(pc.replace_substring(texts, "\\", "/"), r"[\x00-\x1f\x7f]", " ")


def _tag_text(name: str, value: Tag) -> pa.Array | pa.Scalar:
    texts = tag_value(value)
    for special in (",", "=", " "):
        texts = pc.replace_substring(texts, special, f"\\{special}")
    return joined(f"{name}=", pc.if_else(pc.equal(texts, ""), pa.scalar(None, TEXT), texts))


def _whole(values: pa.Array) -> pa.Array:
    return values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values


def _float_text(name: str, values: pa.Array) -> pa.Array:
    """The shortest text that reads back as the same number."""
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if np.isinf(numbers).any():
        raise ValueError(
            f"{name}: infinite in row {int(np.flatnonzero(np.isinf(numbers))[0])}; a database has no infinity"
        )
    texts = pa.array(numbers, from_pandas=True).cast(TEXT)
    is_real = pc.or_(pc.match_substring(texts, "."), pc.match_substring(texts, "e"))
    return pc.if_else(is_real, texts, joined(texts, ".0"))
