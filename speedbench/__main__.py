"""The console script and `python -m speedbench`; Ctrl-C while the command line is being loaded is no fault either."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sys


def main() -> None:
    try:
        from speedbench.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
