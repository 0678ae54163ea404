"""The raft core of a KRaft controller: elections, replication, snapshots and voter sets, without any IO.

Events in, effects out: `RaftNode.step(event, now_ms) -> Ready`. Start reading at `events`, `messages` and `node`. The
state that handlers and roles share is in `replica`, the changes of role in `transitions`. `roles` do what is due when
time passes, `handlers` what a message requests.

The roles of a replica and the transitions between them (KIP-595, KIP-853, KIP-996). The code checks this very
table (`transitions.TRANSITIONS`):

    from         to           epoch           when
    -----------  -----------  --------------  --------------------------------------------------------------
    unattached   unattached   higher          a peer names a higher epoch, but no leader
    unattached   prospective  same            a voter's election timeout passed
    unattached   follower     same or higher  a leader was found
    prospective  unattached   same or higher  the pre-vote was lost and no leader is known; or a higher epoch
    prospective  candidate    next            a majority would vote for us, or a voter does not support pre-votes
    prospective  follower     same or higher  the pre-vote was lost and the leader is known, or one was found
    candidate    unattached   higher          a peer names a higher epoch, but no leader
    candidate    prospective  same            the election was not won in time
    candidate    leader       same            a majority voted for us
    candidate    follower     same or higher  another one leads
    leader       unattached   higher          a peer names a higher epoch, but no leader
    leader       resigned     same            shutdown, removal, request, or a majority no longer fetches
    leader       follower     higher          another one leads
    follower     unattached   higher          a peer names a higher epoch, but no leader
    follower     prospective  same            a voter's fetch timeout passed, or the leader went away
    follower     follower     higher          a new leader was found
    resigned     unattached   higher          no other voter was elected in time, or a higher epoch was seen
    resigned     prospective  same            after a restart, as the only voter
    resigned     follower     higher          a new leader was found
"""
