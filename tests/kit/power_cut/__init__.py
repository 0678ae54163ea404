"""The moment after a power cut: what doctor, tools, play and operator say while controllers come back, one by one."""
