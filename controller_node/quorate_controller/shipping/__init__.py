"""Shipping a metadata log's closed segments and checkpoints to where a lake is made of them.

    HISTORY/<cluster id>/<node id>/meta.properties
                                  /__cluster_metadata-0/%020d.log, %020d-%010d.checkpoint
                                  /superseded/…                  what a log had before it was truncated

Beside a running controller, ours or Java's: nothing is locked and nothing at the source is changed. A file appears
whole, under a temporary name first, and nothing that was shipped is ever deleted.
"""
