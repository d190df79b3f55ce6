"""The record log: every due request on disk before anything is computed from it."""
