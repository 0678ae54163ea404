"""One controller of a KRaft quorum."""
