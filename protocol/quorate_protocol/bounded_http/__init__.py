"""The HTTP server of controllers, operator and `quorate play`, with limits for unauthenticated clients."""
