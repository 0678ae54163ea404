"""One controller of a KRaft quorum."""

import quorate_protocol  # noqa: F401 - first of all: it imports kio without what kio's tests would need
