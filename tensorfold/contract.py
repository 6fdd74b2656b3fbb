"""`python -m tensorfold.contract` runs the kernel contract, which lives in `tensorfold.proof`. Knows no kernel."""

from __future__ import annotations

import sys

from tensorfold.proof.contract.command import main

if __name__ == "__main__":
    sys.exit(main())
