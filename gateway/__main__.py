"""`python -m gateway`: the command line."""

from __future__ import annotations

from gateway.cli import main

if __name__ == "__main__":
    main()
