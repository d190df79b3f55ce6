"""Report to and from `summary.json`. No clock, no I/O.

The document is `findings.Report` field by field; its types hold the units and meanings of every field. Within one
`schema_version` it is stable: fields may be added, none is renamed, removed or given another meaning.

    schema_version   1
    header           run_id, version, scenario, host, model, started_ns, workers, command, machine
    stages[]         level, load, warmup_at_ns, hold_at_ns, end_at_ns, drained_by_ns, workers
    levels[]         index, load, axis, hold_s, due, offered_rps, achieved_rps, output_tps, input_tps, goodput_rps,
                     attainment, error_share, tokens_per_event, in_flight, running, time_in_system_s, little, settled,
                     held, why …
      .outcomes      outcome to count, requests due in the hold
      .metrics       metric to spread: {n, absent, mean, p50, p90, p95, p99, max, interval: {p50: [low, high] or null}}
                     for ttft_ms, itl_ms, gap_ms, tpot_ms, e2e_ms, lag_ms, ttfb_ms, ttfat_ms, connect_ms, worst_gap_ms
      .client        lag_p99_ms, hub_delay_p99_ms, cpu, runnable, stolen, coalesced_share, stamp_source, limited,
                     reasons, advice, clock_step_ms
      .clauses[]     name, limit, value, low, high, held, note
    knee             null where none was looked for; found, axis, holds, breaks, binding, probes, text …
    located          null but for a search with the twin; method, load, low, high, binding, sure, corrections, text …
    laws             null in older summaries; levels, peak, kneedle
      .usl           null, or lone_rps, contention, coherence, error
      .missing       usl, peak or kneedle, where it is null: why
    ledger           due, outcomes, lost, balanced
    verdict          held ("held", "broken", "unjudged"), text, exit_code (0, 1, 2)
    notes[], samples[], curves[]

null means "did not happen" or "too few to say"; 0 is a measurement.
"""

import msgspec

from harness.findings import Report

VERSION = 1


class Unreadable(ValueError):
    """The bytes are not a summary this version can read; the message is one line for the user."""


class Stamp(msgspec.Struct, frozen=True):
    """The one field that is looked at before the others are believed."""

    schema_version: int


def summary(report: Report) -> bytes:
    """The report as indented UTF-8 JSON that ends with a line feed. Equal reports give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(report, order="deterministic"), indent=2) + b"\n"


def read(data: bytes) -> Report:
    """The report such bytes were made of. Raises Unreadable."""
    try:
        version = msgspec.json.decode(data, type=Stamp).schema_version
        if version != VERSION:
            raise Unreadable(
                f"summary: schema_version is {version}, expected {VERSION}: read it with the version that wrote it"
            )
        return msgspec.json.decode(data, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Unreadable(f"summary: {fault}; expected a summary.json of this program: make it anew") from fault
