"""What ends an observation: asking again would not help."""

from quorate_protocol.errors import ErrorCode, ProtocolError
from quorate_protocol.observer.position import Position


class RefusedError(ProtocolError):
    """A controller will not let us fetch: not authorized, another cluster, a request it does not take."""

    def __init__(self, error_code: ErrorCode) -> None:
        super().__init__(
            error_code, f"the controller refuses to be observed: {int(error_code)} {error_code.name.upper()}"
        )


class HistoryLostError(ProtocolError):
    """The leader's log contradicts what was handed out as committed: records were lost, or it is another log.

    Kafka's quorums do that only after a loss of disks, or when a directory was formatted anew.
    """

    def __init__(self, position: Position, leader_end: Position) -> None:
        super().__init__(
            ErrorCode.offset_out_of_range,
            f"what was committed up to {position} is no longer in the log of the leader, which parts from it "
            f"at {leader_end}; read the log from its beginning to see what is there now",
        )
        self.position = position
        self.leader_end = leader_end
