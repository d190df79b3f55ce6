"""The record log into a database. In the order in which rows pass through: `exporter` (tails the log), `points`
and `seconds` (rows to points, with `measured`, `cells`, `buckets`), `lines` (points to line protocol), `influx` (takes
them). `push` is the process, `state` what it has done, `command` how others see it, `restored` the way back.
"""
