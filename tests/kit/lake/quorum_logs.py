"""Random logs of the nodes of a quorum, as Raft allows: leaders lose what was not committed, followers truncate."""

import random

from kit.lake.logs import NO_OP, NodeLog, topic


class QuorumLogs:
    """The logs of three or five nodes. `step` changes one of them."""

    def __init__(self, chance: random.Random) -> None:
        self.nodes = {3000 + number: NodeLog() for number in range(chance.choice((3, 5)))}
        self.truncations = 0
        self._chance = chance
        self._epoch = 0
        self._leader = 0
        self._topics = 0
        self._elect()

    def step(self) -> None:
        """The leader appends, a follower fetches, a log rolls, or another leader is elected."""
        chance = self._chance
        action = chance.choices((self._append, self._fetch, self._roll, self._elect), (4, 6, 1, 4))[0]
        action()
        if chance.random() < 0.05:
            # A clock that jumps, also back.
            leader = self.nodes[self._leader]
            self.nodes[self._leader] = leader.later(chance.randrange(-7_200_000, 86_400_000))

    def settle(self) -> None:
        """Another leader is elected, and all others have its log."""
        self._elect()
        for node in self.nodes:
            self.nodes[node] = self.nodes[node].fetched(self.nodes[self._leader])

    def _append(self) -> None:
        values = []
        for _ in range(self._chance.randrange(1, 4)):
            self._topics += 1
            values.append(NO_OP if self._chance.random() < 0.3 else topic(f"topic-{self._topics}"))
        self.nodes[self._leader] = self.nodes[self._leader].appended(*values)

    def _roll(self) -> None:
        node = self._chance.choice(sorted(self.nodes))
        self.nodes[node] = self.nodes[node].roll()

    def _fetch(self) -> None:
        followers = [node for node in self.nodes if node != self._leader]
        node, leader = self._chance.choice(followers), self.nodes[self._leader]
        before = self.nodes[node]
        end = self._chance.choice((None, self._chance.randrange(max(leader.end - 5, 0), leader.end + 1)))
        fetched = before.fetched(leader, end)
        self.truncations += not set(before.batches) <= set(fetched.batches)
        self.nodes[node] = fetched

    def _elect(self) -> None:
        """Elect a node whose log is as new as that of a majority. It appends the first record of its epoch."""
        ordered = sorted(self.nodes, key=lambda node: (self.nodes[node].epoch, self.nodes[node].end))
        self._leader = self._chance.choice(ordered[len(ordered) // 2 :])
        self._epoch += self._chance.choice((1, 1, 2))
        self.nodes[self._leader] = self.nodes[self._leader].elected(self._epoch, self._leader)
        for _ in range(self._chance.choice((0, 0, 1, 3))):
            self._append()  # which may never be committed
