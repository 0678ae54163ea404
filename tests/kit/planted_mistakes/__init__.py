"""Mistakes that a careful developer could make, as data, and a command that shows which test finds each.

Modules are named after what they break; `catalogue` has all of them, `planting` runs tests against a copy with one.
"""
