"""The work of decisions and of replay on a large image, counted and not timed: see `python -m kit.work`."""
