"""Heads of other packages against ours, held anew: `python tests/parity/run.py --python PATH [--freeze]`.

PATH is the Python of an environment with the packages (`pip install torch==2.13.0 dflash speculators`; MtpModel's steps
need transformers 5.24, which speculators 0.9.0 does not take: two environments, two runs). Prints a line a case;
`--freeze` also keeps each as `cases/NAME.json`, which `tests/test_parity.py` holds ours to without any package.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from parity.compare import compare, frozen  # noqa: E402


def main() -> None:
    wanted = argparse.ArgumentParser(description=__doc__)
    wanted.add_argument("--python", required=True, help="of an environment with dflash, speculators or transformers")
    wanted.add_argument("--freeze", action="store_true", help="keep the cases for the tests")
    given = wanted.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([given.python, str(HERE / "peers.py"), scratch], check=True)
        for file in sorted(Path(scratch).glob("*/case.json")):
            case = json.loads(file.read_text("utf-8"))
            found = compare(case, file.parent)
            said = ", ".join(f"{name} {version}" for name, version in case["versions"].items())
            said += "".join(f"; with {key} {value}" for key, value in case.get("unlike", {}).items())
            same = "the same" if found.same_drafts else "OTHERS"
            print(
                f"{case['case']}: {found.logits} numbers, furthest {found.furthest:.1e}, best the same in "
                f"{100 * found.agreeing:.0f} %, drafts {same} ({said})"
            )
            if given.freeze:
                text = json.dumps(frozen(case, file.parent), separators=(",", ":"))
                (HERE / "cases").mkdir(exist_ok=True)
                (HERE / "cases" / f"{case['case']}.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
