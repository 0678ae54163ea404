"""Hostile bytes for everything that reads what others wrote: what may be raised, and nothing else.

`targets` has the readers, `served` the whole way of a request, `mutations` changes of good input by a seeded
source. `make fuzz` drives the same targets by coverage, with atheris (libFuzzer).
"""
