"""The HTTP server of controllers, operator and `quorate play`, with bounds of everything that a stranger may hold."""
