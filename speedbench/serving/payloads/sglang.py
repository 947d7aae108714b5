"""What SGLang tells: `spec_verify_ct` and its neighbours, when the request says `return_spec_tokens_details`.

SGLang 0.5.23: `sglext.spec_tokens_details` of an OpenAI response (sglang #33518), `meta_info` of `/generate`, which
has them unasked. Some 0.5.x call the histogram `spec_accept_histogram` and the counts `spec_accepted_drafts` and
`spec_proposed_drafts`. Definitions: managers/tokenizer_manager.py, `_calculate_spec_decoding_metrics`.

`spec_accept_length` is completion tokens / verify steps: the prefill's token is in it and what a stop cut off is not,
so it is kept as reported and the length is counted anew. Proposed is verify steps times the configured width, which is
too much for n-gram, adaptive and ragged drafts: an upper bound.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from speedbench.serving.payloads.body import Body, dense, node, number, whole
from speedbench.serving.payloads.told import Told, checked

KEY = "spec_verify_ct"
HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")
ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts")
PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts")
DEFINITION = "output tokens, the prefill's too, / verify steps"


def read(body: Body, base: Told) -> Told | None:
    """What it says; None where the response has not this shape."""
    stats = _stats(body)
    if stats is None:
        return None
    histogram = dense(_first(stats, HISTOGRAMS))
    verified, most = whole(stats.get(KEY)), whole(_first(stats, PROPOSED))
    return checked(
        replace(
            base,
            source="sglang counts" if histogram is None else "sglang histogram",
            histogram=histogram,
            drafted=verified,
            most_proposed=most,
            configured=most // verified if most is not None and verified else None,
            accepted=whole(_first(stats, ACCEPTED)),
            reported_al=number(stats.get("spec_accept_length")),
            reported_as=DEFINITION,
        )
    )


def _stats(body: Body) -> Mapping[str, Any] | None:
    places = (
        node(body.root, "sglext", "spec_tokens_details"),
        node(body.choice, "sglext", "spec_tokens_details"),
        node(body.root, "meta_info"),
    )
    return next((place for place in places if place is not None and KEY in place), None)


def _first(stats: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((stats[name] for name in names if stats.get(name) is not None), None)
