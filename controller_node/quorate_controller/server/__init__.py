"""The network side of a controller: listeners, request dispatch, connections to peers, metrics and health
pages.

`port.py` names everything that this package needs from the node behind it; nothing here knows how the node
works.
"""
