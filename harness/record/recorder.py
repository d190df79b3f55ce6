"""In the worker: what happens, gathered into batches. No clock, no I/O but what `deliver` does."""

from collections import deque
from collections.abc import Callable

import pyarrow as pa

from harness.model import Arrival, Health, Record
from harness.record.batch import Batch, Kind
from harness.record.columns import health_batch, open_record, records_batch, server_batch
from harness.record.messages import message
from harness.record.vitals import Vitals


class Recorder:
    """Gathers what happens on one worker and hands it on in batches. Mutable; one per worker process.

    `born`, `sent`, `put`, `beat` and `look` only append, and may go on while `flush` runs in another thread. Of a
    worker that is killed, what came after its last flush is lost; requests born before that and not ended are found
    censored.
    A worker index names one process per run: a second process under it would repeat (worker, seq).
    """

    def __init__(self, worker: int, deliver: Callable[[Batch], None]) -> None:
        self._worker = worker
        self._deliver = deliver
        self._born: list[Arrival] = []
        self._sent: list[tuple[int, int]] = []
        self._records: list[Record] = []
        self._beats: list[Health] = []
        self._looks: list[Vitals] = []
        self._due = 0
        self._ended = 0
        self._seq: dict[Kind, int] = {"records": 0, "health": 0, "server": 0}
        self._undelivered: deque[Batch] = deque()
        self._turns = [None]  # one flush at a time; not a Lock, which under gevent hangs between native threads

    @property
    def due(self) -> int:
        """Requests born so far."""
        return self._due

    @property
    def ended(self) -> int:
        """Records put so far."""
        return self._ended

    @property
    def in_flight(self) -> int:
        """Requests born and not ended."""
        return self._due - self._ended

    def born(self, arrival: Arrival) -> None:
        """Note a due request. From the next flush on it cannot vanish from the ledger."""
        self._due += 1
        self._born.append(arrival)

    def sent(self, request_id: int, start_ns: int) -> None:
        """Note the start of a request born just now. Optional: only seen should the process be lost, and only when it
        comes before the first flush after the birth."""
        self._sent.append((request_id, start_ns))

    def put(self, record: Record) -> None:
        """Keep the final record of a request. Its timeline must not grow any more."""
        self._ended += 1
        self._records.append(record)

    def beat(self, health: Health) -> None:
        """Keep one health row."""
        self._beats.append(health)

    def look(self, vitals: Vitals) -> None:
        """Keep what a server said of itself."""
        self._looks.append(vitals)

    def flush(self) -> bool:
        """Encode what gathered and deliver it, in order. Whatever `deliver` raises passes through; the batch it was
        raised for and all after it are kept, and go first at the next flush under the same seq.

        True: all that was there at the call is delivered. False: another flush is under way; call again after it.
        """
        try:
            turn = self._turns.pop()  # atomic, and never waits
        except IndexError:
            return False
        try:
            self._encode_records()
            self._encode_health()
            self._encode_looks()
            while self._undelivered:
                self._deliver(self._undelivered[0])
                self._undelivered.popleft()
        finally:
            self._turns.append(turn)
        return True

    def _encode_records(self) -> None:
        # Copies first and deletion last: appends may come in between, and a failure in between loses nothing. The
        # order matters: a request in the copy of records is then also in this copy of births, or in an earlier one.
        records, sent, born = self._records[:], self._sent[:], self._born[:]
        ended = {record.request_id for record in records}
        start_ns = dict(sent)
        still_open = [
            open_record(arrival, self._worker, start_ns.get(arrival.request_id))
            for arrival in born
            if arrival.request_id not in ended
        ]
        if records or still_open:
            self._enqueue("records", records_batch(records, still_open))
        del self._records[: len(records)], self._sent[: len(sent)], self._born[: len(born)]

    def _encode_health(self) -> None:
        beats = self._beats[:]
        if beats:
            self._enqueue("health", health_batch(beats))
        del self._beats[: len(beats)]

    def _encode_looks(self) -> None:
        looks = self._looks[:]
        if looks:
            self._enqueue("server", server_batch(looks))
        del self._looks[: len(looks)]

    def _enqueue(self, kind: Kind, rows: pa.RecordBatch) -> None:
        seq = self._seq[kind]
        data = message(rows, seq)
        self._undelivered.append(Batch(kind=kind, worker=self._worker, seq=seq, rows=rows.num_rows, data=data))
        self._seq[kind] = seq + 1
