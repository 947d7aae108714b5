"""What llama.cpp's server tells: `timings` with `draft_n` and `draft_n_accepted`; and mlx-vlm's, which adds rounds.

llama.cpp b11549: `timings` at the root, of a stream in its last event. The draft fields are there only if something
was drafted, so without them nothing was: 0. There is no count of steps (ggml-org/llama.cpp #27676); proposals are cut
to what the cap leaves, so only a stop inside a step makes accepted tokens that were never sent.

mlx-vlm (Blaizzy/mlx-vlm #1788, #2324): the same and `draft_rounds`, the steps with drafts. Its accepted tokens may lie
beyond the answer's end, and its counts are one request's own only while that is the only one in flight.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace

from speedbench.serving.payloads.body import Body, node, seconds, whole
from speedbench.serving.payloads.told import Told, checked


def read(body: Body, base: Told) -> Told | None:
    """What it says; None where the response has not this shape."""
    timings = node(body.root, "timings")
    if timings is None or "predicted_n" not in timings:
        return None
    rounds = whole(timings.get("draft_rounds"))
    proposed, accepted = (whole(timings.get(name) or 0) for name in ("draft_n", "draft_n_accepted"))
    return checked(
        replace(
            base,
            source="llamacpp timings" if rounds is None else "mlx-vlm timings",
            drafted=0 if proposed == 0 else rounds,
            proposed=proposed,
            accepted=accepted,
            prefill=seconds(timings.get("prompt_ms")),
            decode=seconds(timings.get("predicted_ms")),
        )
    )
