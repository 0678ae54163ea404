"""The same script of stock tools and clients at a cluster with Java's controllers and at one with ours.

`clusters` starts both, `comparison` runs each step at both and compares what is printed, the others are the scripts.
"""
