"""A Prometheus page to our vocabulary: text → samples → one value a column. No clock, no I/O."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from harness.scrape.vocabulary import LARGEST, RANKS, SPLITS, TABLE, WANTED, Column, Source, plain

Samples = Mapping[str, Sequence[Sample]]
"""Finite samples by plain name."""

_Rest = frozenset[tuple[str, str]]
"""Labels that tell one engine or model from another."""


def told(text: str) -> dict[str, float]:
    """What a page says, by column: of the engine of which it says most; {} where it speaks of none.

    Several label sets are several engines or models: they add up, and of KV caches the fullest is told (see
    `vocabulary` for labels that mean something else). NaN and infinite count as not told. ValueError: a line of
    interest is not Prometheus text.
    """
    samples = _samples(text)
    return max((_columns(engine, samples) for engine in TABLE.values()), key=len)


def _samples(text: str) -> Samples:
    # the parser goes through a page character by character: only lines that matter are worth that
    lines = "\n".join(line for line in text.splitlines() if _name(line) in WANTED)
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(lines + "\n"):
        for sample in family.samples:
            if isfinite(sample.value):
                found.setdefault(plain(sample.name), []).append(sample)
    return {name: _undivided(samples) for name, samples in found.items()}


def _name(line: str) -> str:
    """The metric that a line is a sample of, plain."""
    words = line.partition("{")[0].split(maxsplit=1)
    return plain(words[0]) if words else ""


def _undivided(samples: Sequence[Sample]) -> list[Sample]:
    """Without the parts of a total that is there itself."""
    totals = [sample for sample in samples if not any(sample.labels.get(label) for label in SPLITS)]
    return totals or list(samples)


def _columns(engine: Mapping[str, Column], samples: Samples) -> dict[str, float]:
    values = {column: _value(sources, samples, column) for column, sources in engine.items()}
    return {column: value for column, value in values.items() if value is not None}


def _value(sources: Column, samples: Samples, column: str) -> float | None:
    fold = max if column in LARGEST else sum
    for source in sources:
        told_of = [_told_by(samples.get(plain(name), ()), source) for name in source.names]
        if all(told_of):
            return float(fold(value for values in told_of for value in values))
    return None


def _told_by(samples: Sequence[Sample], source: Source) -> list[float]:
    """One value for each engine or model; [] where nothing is told."""
    if source.where is None:
        return list(_each(samples).values())
    parts = _each(_bearing(samples, *source.where), source.where[0])
    if source.out_of is None:
        return list(parts.values())
    wholes = _each(_bearing(samples, *source.out_of), source.out_of[0])
    return [part / wholes[rest] for rest, part in parts.items() if wholes.get(rest)]


def _bearing(samples: Iterable[Sample], label: str, value: str) -> list[Sample]:
    return [sample for sample in samples if sample.labels.get(label) == value]


def _each(samples: Iterable[Sample], besides: str = "") -> dict[_Rest, float]:
    """The value of each engine or model; of its ranks the largest, for they look at slightly different moments."""
    found: dict[_Rest, float] = {}
    for sample in samples:
        rest = frozenset(item for item in sample.labels.items() if item[0] not in RANKS and item[0] != besides)
        found[rest] = max(found.get(rest, sample.value), sample.value)
    return found
