"""The network side of a controller: listeners, request dispatch, connections to peers, metrics and health
pages.

`node/port.py` is all that this package asks of the node behind it.
"""
