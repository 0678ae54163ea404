"""A seeded world in which the real raft, control and storage code runs on simulated disks, network and time."""
