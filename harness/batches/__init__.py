"""The batch dimension: one search per setting of the server, and the map of what they found. I/O.

In the order in which a map is made: `settings` says what is asked for, `command` how a server is started with it,
`serving` starts and ends one, `watch` notices that it died, `searches` runs one search a setting, `cells` turns reports
and predictions into cells, `survey` decides with the twin which settings are measured, `written` keeps the map.
"""
