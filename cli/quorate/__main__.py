"""`python -m quorate`."""

from quorate.main import main

main()
