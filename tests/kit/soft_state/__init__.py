"""The state of a controller that is in memory alone: what each attribute is, and what ends it.

`table` has a row for each attribute of the objects that a node is made of, `attributes` finds these attributes, and
`page` renders docs/soft-state.md.
"""
