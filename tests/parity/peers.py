"""Heads of other packages' own classes, saved by their own functions, and what those classes say: cases to be held to.

`python peers.py FOLDER`, in an environment that has some of the packages (dflash, speculators, transformers with
MtpModel); speedbench is not needed there. Writes FOLDER/CASE/{config.json, model.safetensors, case.json}; a package
that is not there is said on stderr and skipped. Weights are noise by name: a case holds names and shapes only.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import peers_speculators
import torch
from noise import (
    HIDDEN,
    LAYERS,
    PROMPT,
    SIZES,
    YARN,
    Helped,
    anchor_after,
    chained,
    fill,
    greedy,
    noise,
    note,
    numbers,
    states,
    target,
    write,
)
from torch import Tensor

# ---- dflash --------------------------------------------------------------------------------------------------------


def of_dflash(folder: Path) -> None:
    """The package's whole loop, its block's logits noted on the way; `commits` of the passes that ran a whole block
    (towards the end of an answer theirs is shorter)."""
    import dflash.model as theirs
    from transformers.models.qwen3.configuration_qwen3 import Qwen3Config

    made, block, count = target(), 6, 40
    answer = greedy(made, count)
    theirs._cuda_time = time.perf_counter
    for name, more in {"plain": {}, "causal": {"is_causal": True}, "yarn": {"rope_parameters": YARN}}.items():
        config = Qwen3Config(**SIZES, num_hidden_layers=2, **more)
        config.block_size, config.num_target_layers = block, LAYERS
        config.dflash_config = {"mask_token_id": 23, "target_layer_ids": [0, 2]}
        config.architectures = ["DFlashDraftModel"]
        model = fill(theirs.DFlashDraftModel(config))
        noted: list[Tensor] = []
        plain, helped = model.compute_logits, Helped(answer)

        def noting(states: Tensor, head: Any, to: Any = noted, plain: Any = plain, helped: Any = helped) -> Tensor:
            to.append(plain(states, head))
            return helped(to[-1][0])[None]

        model.compute_logits = noting
        out = theirs.dflash_generate(model, made, torch.tensor([PROMPT]), count, None, return_stats=True)
        del model.compute_logits
        said, commits = out.output_ids[0, len(PROMPT) :].tolist(), out.acceptance_lengths
        assert said == answer
        whole = sum(1 + sum(commits[:i]) + block <= count + 1 for i in range(len(commits)))
        found = {
            "mechanism": "dflash", "rounds": [numbers(x[0]) for x in noted[:5]], "answer": answer,
            "commits": commits[:whole],
        }  # fmt: skip
        write(folder, f"dflash-{name}", "dflash", made, model, found)


# ---- transformers --------------------------------------------------------------------------------------------------


def of_transformers_mtp(folder: Path) -> None:
    """A Llama with one decoder layer more, in DeepSeek's names, read by transformers' own MtpModel. It writes none, so
    the tensors are put beside the target's by hand. `unlike`: what of the head's spec is changed to agree."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM
    from transformers.modeling_layers import MtpModel

    if not hasattr(MtpModel, "forward_layer"):
        raise ImportError("this transformers has no MtpModel.forward_layer")
    where, at = folder / "transformers-mtp", f"model.layers.{LAYERS}."
    made = target("llama")
    made.config.num_mtp_layers = made.config.num_nextn_predict_layers = 1
    made.save_pretrained(where)
    tensors = load_file(where / "model.safetensors")
    own = {name.replace("layers.0.", f"layers.{LAYERS}."): t for name, t in tensors.items() if "layers.0." in name}
    shapes = {name: tuple(t.shape) for name, t in own.items()}
    shapes |= {f"{at}{name}.weight": (HIDDEN,) for name in ("enorm", "hnorm", "shared_head.norm")}
    shapes[f"{at}eh_proj.weight"] = (HIDDEN, 2 * HIDDEN)
    tensors |= {name: noise(name, shape) for name, shape in shapes.items()}
    save_file(tensors, where / "model.safetensors", metadata={"format": "pt"})
    made = AutoModelForCausalLM.from_pretrained(where)
    made._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{LAYERS}.*"]
    model = MtpModel.from_pretrained(made)
    ids, hs = [*PROMPT[1:], anchor_after(made, PROMPT)], states(made, PROMPT)[-1]

    def step(hidden: Tensor, tokens: list[int]) -> tuple[Tensor, Tensor]:
        at = torch.arange(len(tokens))[None]
        out = model.forward_layer(0, hidden[None], at, None, input_ids=torch.tensor([tokens]))[0]
        return out[-1], model._project_to_logits(out)[-1]

    out = model.forward_layer(0, hs[None], torch.arange(len(ids))[None], None, input_ids=torch.tensor([ids]))
    found = {"mechanism": "mtp", "forced": [numbers(model._project_to_logits(out[0]))]}
    found["unlike"] = {"zero_first_embedding": False}  # ours zeroes it for DeepSeek's names, as vLLM does
    note(folder, "transformers-mtp", "transformers", made, {**found, **chained(hs, ids, step)})


def main() -> None:
    folder = Path(sys.argv[1])
    theirs = (peers_speculators.eagle3, peers_speculators.mtp, peers_speculators.blocks)
    for work in (of_dflash, *theirs, of_transformers_mtp):
        try:
            with torch.no_grad():
                work(folder)
        except ImportError as error:
            print(f"{work.__module__} {work.__name__}: not here ({error})", file=sys.stderr)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
