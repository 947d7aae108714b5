"""Engines to race, one a process: each reads a case a line on stdin, answers with seconds and tokens on stdout.

`python peers.py NAME FOLDER DRAFT_FOLDER DTYPE`, with NAME ours, transformers or vllm. Every engine gets the same
prompt ids, decodes greedily, and ignores stop tokens, so that all write the same number of tokens.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Case = dict[str, Any]
"""kind: plain, ngram or external; D; prompts: ids; tokens: to write for each; all prompts run side by side."""
Race = Callable[[Case], int]
"""Runs a case and returns how many tokens it wrote."""


def ours(folder: str, draft: str, dtype: str) -> Race:
    from speedbench.backends.native import BACKEND
    from speedbench.types import Conversation, Drafting, Load, Record, Request, Runner, Sampling

    runner = Runner(name="race", title="", backend="native", model=folder, engine={"dtype": dtype, "threads": 2})
    session = BACKEND.open(runner).__enter__()
    session.chat.stops = frozenset()
    prompts: dict[str, list[int]] = {}
    session.chat.prompt = lambda request, answers: list(prompts[request.id])
    engines: dict[str, Any] = {}
    settings = {"external": {"model": draft}, "ngram": {"rule": "transformers"}}

    def race(case: Case) -> int:
        prompts.update({str(i): ids for i, ids in enumerate(case["prompts"])})
        key = f"{case['kind']} {case['D']} {len(case['prompts'])} {case['tokens']}"
        if key not in engines:
            longest = max(map(len, case["prompts"])) + case["tokens"]
            load = Load(sampling=Sampling(max_tokens=case["tokens"]), longest=longest + 64, widest=case["D"])
            kind = "none" if case["kind"] == "plain" else case["kind"]
            drafting = Drafting(label=kind, drafter=kind, settings=settings.get(kind, {}))
            engines[key] = session.engine(drafting, case["D"], len(case["prompts"]), load)
        work = [Conversation(request=Request(id=i, category="", turns=("",))) for i in prompts][: len(case["prompts"])]
        return sum(len(one.output) for one in engines[key].serve(work) if isinstance(one, Record))

    return race


def transformers(folder: str, draft: str, dtype: str) -> Race:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(2)
    target = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    small = AutoModelForCausalLM.from_pretrained(draft, dtype=getattr(torch, dtype))
    small.generation_config.assistant_confidence_threshold = 0.0
    small.generation_config.num_assistant_tokens_schedule = "constant"

    def race(case: Case) -> int:
        extra: dict[str, Any] = {}
        if case["kind"] == "ngram":
            extra = {"prompt_lookup_num_tokens": case["D"]}
        if case["kind"] == "external":
            small.generation_config.num_assistant_tokens = case["D"]
            extra = {"assistant_model": small}
        ids = torch.tensor(case["prompts"])
        out = target.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=case["tokens"],
            min_new_tokens=case["tokens"], pad_token_id=0, **extra,
        )  # fmt: skip
        return int(out.numel() - ids.numel())

    return race


def vllm(folder: str, draft: str, dtype: str) -> Race:
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_NO_USAGE_STATS": "1"}
    from vllm import LLM, SamplingParams

    llm = LLM(folder, dtype=dtype, max_model_len=1024, max_num_seqs=8, enable_prefix_caching=False, seed=0)

    def race(case: Case) -> int:
        params = SamplingParams(temperature=0, max_tokens=case["tokens"], ignore_eos=True, detokenize=False)
        outs = llm.generate([{"prompt_token_ids": ids} for ids in case["prompts"]], params, use_tqdm=False)
        return sum(len(out.outputs[0].token_ids) for out in outs)

    return race


def main() -> None:
    name, folder, draft, dtype = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not come between the answers
    race = {"ours": ours, "transformers": transformers, "vllm": vllm}[name](folder, draft, dtype)
    print(json.dumps({"ready": name}), file=answers, flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        tokens = race(json.loads(line))
        print(json.dumps({"seconds": time.perf_counter() - began, "tokens": tokens}), file=answers, flush=True)


if __name__ == "__main__":
    main()
