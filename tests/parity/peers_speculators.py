"""Heads of speculators' own classes as cases: EAGLE-3, MTP, DFlash and DSpark (see peers.py, which calls these)."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from noise import (
    DEPTH,
    HIDDEN,
    KEPT,
    PROMPT,
    SIZES,
    TAPS,
    VOCAB,
    YARN,
    anchor_after,
    chained,
    fill,
    numbers,
    picked,
    states,
    target,
    write,
)
from torch import Tensor


def _layers(kind: str, count: int = 1, **more: Any) -> Any:
    from transformers import AutoConfig

    config = AutoConfig.for_model(kind, **SIZES, num_hidden_layers=count, **more)
    config._attn_implementation = "eager"
    return config


def _common(algorithm: str, tokens: int) -> Any:
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig

    methods = [GreedyTokenProposalConfig(speculative_tokens=tokens)]
    verifier = VerifierConfig(name_or_path=None, architectures=["Qwen3ForCausalLM"])
    return SpeculatorsConfig(
        algorithm=algorithm, proposal_methods=methods, default_proposal_method="greedy", verifier=verifier
    )


def _with_target(model: Any, made: Any) -> Any:
    """A head of theirs with noise for weights, the target's embedding, and its head where it has none of its own."""
    fill(model)
    with torch.no_grad():
        model.embed_tokens.weight.copy_(made.model.embed_tokens.weight)
        if model.use_draft_vocab:
            kept = torch.tensor(KEPT)
            model.d2t.copy_(kept - torch.arange(len(KEPT)))
            model.t2d.copy_(torch.isin(torch.arange(VOCAB), kept))
        elif not any(name == "lm_head.weight" for name in _saved(model)):
            model.lm_head.weight.copy_(made.lm_head.weight)
    return model


def _saved(model: Any) -> set[str]:
    return set(model.state_dict()) - set(model._keys_to_ignore_on_save or ())


def _ids(model: Any) -> Tensor:
    """The target's id of each of the head's."""
    return torch.tensor(KEPT) if model.use_draft_vocab else torch.arange(VOCAB)


EAGLE3: dict[str, tuple[str, bool, dict[str, Any], dict[str, Any]]] = {
    "plain": ("llama", True, {}, {}),
    "normed": ("llama", True, {"norm_before_residual": True, "norm_before_fc": True, "norm_output": True}, {}),
    "taps-normed": ("llama", True, {"fc_norm": True}, {}),
    "qwen3": ("qwen3", False, {"norm_before_residual": True}, {}),
    "yarn": ("llama", True, {}, {"rope_parameters": YARN}),
}  # fmt: skip


def eagle3(folder: Path) -> None:
    """`forced[k][i]`: logits of step k where the true pairs end at i and true tokens were fed after them; `logits` and
    `drafts`: the same where it feeds itself, behind the whole prompt."""
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

    made = target()
    hs = states(made, PROMPT)
    features = torch.cat([hs[tap] for tap in TAPS], -1)[None]
    for name, (kind, reduced, flags, layer) in EAGLE3.items():
        config = Eagle3SpeculatorConfig(
            transformer_layer_config=_layers(kind, **layer), draft_vocab_size=len(KEPT) if reduced else VOCAB,
            eagle_aux_hidden_state_layer_ids=list(TAPS), speculators_config=_common("eagle3", DEPTH), **flags,
        )  # fmt: skip
        model = _with_target(Eagle3DraftModel(config), made)
        said: list[Tensor] = []
        model.lm_head.register_forward_hook(lambda module, args, out, to=said: to.append(out[0]))
        ids, n = [*PROMPT[1:], anchor_after(made, PROMPT)], len(PROMPT)

        def steps(tokens: list[int], to: list[Tensor] = said, model: Any = model) -> list[Tensor]:
            to.clear()
            more = len(tokens) - len(PROMPT)
            padded = torch.cat([features, torch.zeros(1, more, features.shape[2])], 1)
            model(padded, torch.tensor([tokens]), torch.zeros(1, len(tokens), dtype=torch.long), ttt_steps=DEPTH)
            return list(to)

        forced = [said_at[: n - k] for k, said_at in enumerate(steps(ids)[:3])]
        logits, drafts = [], []
        for k in range(DEPTH):
            logits.append(steps([*ids, *drafts])[k][n - 1])
            drafts.append(int(_ids(model)[picked(logits[-1])]))
        found = {
            "mechanism": "eagle3", "forced": [numbers(x) for x in forced],
            "logits": numbers(torch.stack(logits)), "drafts": drafts,
        }  # fmt: skip
        write(folder, f"speculators-eagle3-{name}", "speculators", made, model, found)


def mtp(folder: Path) -> None:
    """`forced[0][i]`: what their forward says of step 0. Its later steps attend to their own step's keys alone, which
    no engine does, so further drafts come from their layer, run as engines do."""
    from speculators.models.mtp import MTPDraftModel, MTPSpeculatorConfig

    made = target()
    config = MTPSpeculatorConfig(transformer_layer_config=_layers("qwen3"), speculators_config=_common("mtp", 1))
    model = _with_target(MTPDraftModel(config), made)
    model.lm_head.load_state_dict(made.lm_head.state_dict())
    ids, hs = [*PROMPT[1:], anchor_after(made, PROMPT)], states(made, PROMPT)[-1]
    sequence = torch.tensor([[PROMPT[0], *ids, 0]])
    forced, _, _ = model(sequence, torch.cat([hs, torch.zeros(2, HIDDEN)])[None])

    def step(hidden: Tensor, tokens: list[int]) -> tuple[Tensor, Tensor]:
        at = torch.arange(len(tokens))[None]
        mask = torch.full((len(tokens), len(tokens)), -torch.inf).triu(1)[None, None]
        out = model.mtp_layers[0](
            hidden_states=hidden[None], token_embeddings=model.embed_tokens(torch.tensor([tokens])),
            attention_mask=mask, position_ids=at, position_embeddings=model.rotary_emb(hidden[None], at),
        )[0, -1]  # fmt: skip
        return out, model.lm_head(out)

    found = {"mechanism": "mtp", "forced": [numbers(forced[0][0, : len(PROMPT)])]}
    write(folder, "speculators-mtp", "speculators", made, model, {**found, **chained(hs, ids, step)})


BLOCK = 5
DFLASH: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "dflash-plain": ("dflash", False, {}),
    "dflash-reduced": ("dflash", True, {}),
    "dspark-vanilla": ("dspark", False, {}),
    "dspark-reduced": ("dspark", True, {}),
    "dspark-gated": ("dspark", False, {"markov_head_type": "gated", "confidence_head_with_markov": False}),
    "dspark-rnn": ("dspark", True, {"markov_head_type": "rnn"}),
    "dspark-rnn-bonus": ("dspark", False, {"markov_head_type": "rnn", "sample_from_anchor": False}),
}


def blocks(folder: Path) -> None:
    """One block behind the prompt; a Markov head is asked again with each draft in the place of the true token."""
    from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig
    from speculators.models.dspark import DSparkDraftModel, DSparkSpeculatorConfig

    made, n = target(), len(PROMPT)
    hs, anchor = states(made, PROMPT), anchor_after(made, PROMPT)
    features = torch.cat([hs[tap] for tap in TAPS], -1)
    features = torch.cat([features, torch.zeros(BLOCK + 1, features.shape[1])])[None]
    for name, (kind, reduced, more) in DFLASH.items():
        classes = {
            "dflash": (DFlashDraftModel, DFlashSpeculatorConfig),
            "dspark": (DSparkDraftModel, DSparkSpeculatorConfig),
        }
        rank = {"markov_rank": 4} if kind == "dspark" else {}
        config = classes[kind][1](
            transformer_layer_config=_layers("qwen3", 2), draft_vocab_size=len(KEPT) if reduced else VOCAB,
            block_size=BLOCK, aux_hidden_state_layer_ids=list(TAPS), mask_token_id=23,
            speculators_config=_common(kind, BLOCK), **rank, **more,
        )  # fmt: skip
        model = _with_target(classes[kind][0](config), made)
        first = 0 if config.sample_from_anchor else 1
        logits, sure, drafts = torch.zeros(0), None, list[int]()
        for _ in range(BLOCK - first):
            logits, sure = _block(model, kind, features, [*PROMPT, anchor, *drafts], n)
            drafts.append(int(_ids(model)[picked(logits[first + len(drafts)])]))
        found = {"mechanism": kind, "logits": numbers(logits[first:]), "drafts": drafts}
        if sure is not None:
            found["confidence"] = numbers(sure[first:].sigmoid())
        write(folder, f"speculators-{name}", "speculators", made, model, found)


def _block(model: Any, kind: str, features: Tensor, tokens: list[int], anchor: int) -> tuple[Tensor, Tensor | None]:
    """Logits [BLOCK, ids] and the confidence head's [BLOCK] of the block at `anchor`, as their loss is handed them."""
    import speculators.models.dflash.core as backbone

    core = sys.modules[f"speculators.models.{kind}.core"]
    kept: dict[str, Any] = {"compute_metrics": core.compute_metrics, "select_anchors": backbone.select_anchors}
    said: list[Any] = []

    def noting(*args: Any, **more: Any) -> tuple[Tensor, dict[str, Any]]:
        said.extend(args)
        return torch.zeros(()), {}

    length = features.shape[1]
    ids = torch.tensor([[*tokens, *([0] * (length - len(tokens)))]])
    core.compute_metrics = noting
    backbone.select_anchors = lambda *args, **more: (torch.tensor([anchor]), torch.tensor([True]))
    try:
        zeros = torch.zeros(1, length, dtype=torch.long)
        model(features, ids, torch.ones(1, length), torch.zeros(1, length, HIDDEN), zeros, max_anchors=1)
    finally:
        core.compute_metrics, backbone.select_anchors = kept["compute_metrics"], kept["select_anchors"]
    return said[0][0], (said[2][0] if kind == "dspark" else None)
