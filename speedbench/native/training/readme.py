"""The README beside trained drafters, written from what their trainings left: `*/training.json`."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_HEAD = ("drafter", "trained parameters", "corpus tokens", "steps of the last round", "answer tokens seen", "seconds",
         "seed", "AL at D=4, in distribution", "accepted at 1, 2, 3, 4")  # fmt: skip


def readme(out: Path, model: str, licence: str, made: Mapping[str, Any]) -> None:
    """Write `README.md` for every drafter that was trained into `out`; `made` is the corpus's `corpus.json`."""
    every = [json.loads(path.read_text("utf-8")) for path in sorted(out.glob("*/training.json"))]
    rows = [_row(facts) for facts in every]
    table = "\n".join(" | ".join(("", *row, "")).strip() for row in (_HEAD, ("---",) * len(_HEAD), *rows))
    (out / "README.md").write_text(
        f"# Drafters trained for `{model}`\n\n"
        f"Made by `speedbench train` on the target's own answers. The target's licence: {licence}. The weights derive\n"
        "from the target's and come under the same licence; the templates of the prompts are CC0-1.0.\n\n"
        f"{_corpus(made, max(every, key=lambda facts: int(facts['corpus_tokens'])))}\n\n{table}\n\n"
        "In distribution: on held-out answers to prompts of the same making, greedy, simulated from the target's own\n"
        "states. Prompts of another kind accept less: measure them with `speedbench run`.\n\n"
        "A folder with a `packed.json` holds its matrices in int8. speedbench reads it as it is; for another engine\n"
        "write it out in bfloat16: `speedbench unpack FOLDER --out NEW_FOLDER`.\n",
        encoding="utf-8",
    )


def _corpus(made: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    making, dropped = made["making"], {k: v for k, v in made["prompts"].items() if k != "kept"}
    gone = ", ".join(f"{count} ({why})" for why, count in sorted(dropped.items())) or "none"
    return (
        f"{facts['corpus_tokens']:,} answer tokens in {facts['sequences'] + facts['held_out']:,} conversations, "
        f"{facts['held_out']} of them held out; prompts: {made['by']['target']} written by the target, "
        f"{made['by']['template']} from templates.\n"
        f"{1 - making['sampled']:.0%} of the answers are greedy, the rest sampled at {making['temperature']}; "
        f"at most {making['longest']} tokens each. Seed {making['seed']}.\n"
        f"Dropped prompts: {gone}; `overlap` shares eight tokens in a row with a shipped task."
    )


def _row(facts: Mapping[str, Any]) -> Sequence[str]:
    al = "-" if facts["val_al_d4"] is None else f"{facts['val_al_d4']:.2f}"
    accepted = ", ".join(f"{share:.2f}" for share in facts["val_accepted_at"]) or "-"
    counts = [f"{facts[key]:,}" for key in ("trained_parameters", "corpus_tokens", "steps", "tokens_seen")]
    return f"`{facts['drafter']}`", *counts, f"{facts['seconds']:.0f}", str(facts["seed"]), al, accepted
