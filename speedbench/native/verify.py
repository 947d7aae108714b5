"""Verification: which drafts the target accepts, and the token it adds. Greedy, rejection, and relaxed (lossy).

Shapes: logits [B, W, V] for a window of the anchor and W-1 drafts; drafts [B, W-1] int64; counts [B] int64, the drafts
that are real in each row. Row j of the logits judges draft j; all rules return (accepted [B], next token [B]) int64.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import torch
from torch import Tensor

from speedbench.types import Sampling


def _leading(matches: Tensor, counts: Tensor) -> Tensor:
    """How many drafts match without a gap from the first, padded ones never counted."""
    real = torch.arange(matches.shape[1], device=matches.device) < counts[:, None]
    return (matches & real).long().cumprod(1).sum(1)


def best(logits: Tensor) -> Tensor:
    """The argmax over the last axis, the first of equals; in bfloat16 on CPU max is four times as fast as argmax."""
    return logits.max(-1).indices


def greedy(logits: Tensor, drafts: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Accept while a draft is the target's argmax; the next token is the argmax after the last accepted one."""
    picks = best(logits)
    if not drafts.shape[1]:
        return torch.zeros_like(counts), picks[:, 0]
    accepted = _leading(drafts == picks[:, :-1], counts)
    return accepted, picks.gather(1, accepted[:, None])[:, 0]


def relaxed(logits: Tensor, drafts: Tensor, counts: Tensor, top_k: int, delta: float) -> tuple[Tensor, Tensor]:
    """Lossy: accept a draft among the top_k tokens whose probability is at least the best one's less delta
    (TensorRT-LLM's relaxed acceptance, `relaxed_topk` and `relaxed_delta`)."""
    chances, ids = logits.float().softmax(-1).topk(min(top_k, logits.shape[-1]), -1)
    allowed = chances[:, :-1] >= chances[:, :-1, :1] - delta
    accepted = _leading(((drafts[:, :, None] == ids[:, :-1]) & allowed).any(-1), counts)
    return accepted, ids[..., 0].gather(1, accepted[:, None])[:, 0]


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """Logits [..., V] → float32 probabilities after temperature, top-k and top-p, in that order; temperature > 0."""
    scores = logits.float() / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < scores.shape[-1]:
        least = scores.topk(sampling.top_k, -1).values[..., -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if sampling.top_p is not None and sampling.top_p < 1:
        ordered, order = scores.softmax(-1).sort(-1, descending=True)
        drop = ordered.cumsum(-1) - ordered >= sampling.top_p
        scores = scores.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), -torch.inf)
    return scores.softmax(-1)


def draw(weights: Tensor, uniform: Tensor) -> Tensor:
    """Sample an index from weights [B, V] (need not sum to 1) by inverting the cumulative sum at uniform [B]."""
    cumulative = weights.double().cumsum(-1)
    at = (uniform.double() * cumulative[:, -1])[:, None]
    index = torch.searchsorted(cumulative, at, right=True)[:, 0]
    last = (weights > 0).long().mul(torch.arange(weights.shape[-1], device=weights.device)).amax(-1)
    return torch.minimum(index, last)


def rejection(p: Tensor, drafts: Tensor, counts: Tensor, q: Tensor | None, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Lossless rejection sampling (Leviathan et al. 2023, algorithm 1; Chen et al. 2023).

    p [B, W, V] are the target's probabilities; q [B, W-1, V] those each draft was drawn from, None for deterministic
    drafts, which count as one-hot. uniform [B, W] in [0, 1): one per draft, the last for the next token. Draft x is
    accepted with probability min(1, p(x)/q(x)); the first rejected one is replaced from max(p - q, 0), normalised.
    """
    rows = torch.arange(len(p), device=p.device)
    chance = p[:, :-1].gather(2, drafts[:, :, None])[:, :, 0]
    if q is not None:
        chance = chance / q.gather(2, drafts[:, :, None])[:, :, 0]
    accepted = _leading(uniform[:, :-1] < chance, counts)
    at_stop = p[rows, accepted]
    rejected = accepted < counts
    if bool(rejected.any()):
        slot = accepted.clamp(max=drafts.shape[1] - 1)
        if q is None:
            residual = at_stop.scatter(1, drafts[rows, slot][:, None], 0.0)
        else:
            residual = (at_stop - q[rows, slot]).clamp(min=0)
        usable = rejected & (residual.sum(-1) > 0)
        at_stop = torch.where(usable[:, None], residual, at_stop)
    return accepted, draw(at_stop, uniform[:, -1])
