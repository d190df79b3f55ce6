"""InfluxDB in all its versions. In the order in which lines pass through: `target` (which database, whose rights),
`writer` (waits, halves, sets aside) with `batches`, `patience`, `refusal` and `set_aside`, `database` (finds out which
version it is, counts, queries) with `ways` (of writing), `answer` and `influxql`.
"""
