"""What the lake's tables must have, by replaying random histories record after record: slow and obvious.

:mod:`.quorums` makes logs of several nodes with lost leaders and aborted transactions, for the tables of the quorum.
:mod:`.worlds` makes logs of brokers, topics and security. Both have gaps and checkpoints. Nothing here imports the
product's code for tables.
"""
