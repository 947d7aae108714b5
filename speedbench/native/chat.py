"""The target's own words: prompts through its chat template with one BOS, its stop tokens, and its vocabulary."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError

from speedbench.errors import UserError, first_line
from speedbench.types import Request


class Chat:
    """A tokenizer with its template, read from a model folder."""

    def __init__(self, home: Path, vocab: int, *, trust_remote_code: bool = False) -> None:
        from transformers import AutoTokenizer

        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(home, trust_remote_code=trust_remote_code)
            template = self.tokenizer.get_chat_template() if self.tokenizer.chat_template else None
        except (ValueError, OSError, ImportError) as error:
            raise UserError(f"transformers cannot read the tokenizer of '{home}': {first_line(error)}") from None
        self.template_sha = None if template is None else hashlib.sha256(template.encode()).hexdigest()[:16]
        self.warnings: list[str] = []
        self.stops = self._stops(home, vocab)

    def _stops(self, home: Path, vocab: int) -> frozenset[int]:
        """The union of what config, generation config and tokenizer call end tokens."""
        found: set[int] = set()
        for name in ("config.json", "generation_config.json"):
            if (home / name).is_file():
                said = json.loads((home / name).read_text("utf-8")).get("eos_token_id")
                found.update([said] if isinstance(said, int) else said or [])
        if self.tokenizer.eos_token_id is not None:
            found.add(self.tokenizer.eos_token_id)
        inside = frozenset(t for t in found if 0 <= t < vocab)
        for token in sorted(found - inside):
            self.warnings.append(f"end token {token} is outside the vocabulary of {vocab} and can never stop an answer")
        return inside

    def prompt(self, request: Request, answers: Sequence[Sequence[int]]) -> list[int]:
        """Token ids of the conversation up to the next answer: turn len(answers), with the model's own earlier ones."""
        messages = [] if request.system is None else [{"role": "system", "content": request.system}]
        for turn, said in enumerate(request.turns[: len(answers) + 1]):
            messages.append({"role": "user", "content": said})
            if turn < len(answers):
                kept = [t for t in answers[turn] if t not in self.stops]
                messages.append({"role": "assistant", "content": self.tokenizer.decode(kept, skip_special_tokens=True)})
        return self.encoded(messages, f"request '{request.id}', turn {len(answers)}")

    def encoded(self, messages: list[dict[str, str]], at: str) -> list[int]:
        """Token ids of a conversation up to the assistant's next words; `at` is what an error calls it."""
        if self.template_sha is None:
            ids = self.tokenizer("\n\n".join(m["content"] for m in messages))["input_ids"]
        else:
            ids = self.tokenizer(self._rendered(messages, at), add_special_tokens=False)["input_ids"]
        if not ids:
            raise UserError(f"{at}: the prompt has no tokens")
        return self._one_bos(list(ids))

    def _rendered(self, messages: list[dict[str, str]], at: str) -> str:
        try:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        except TemplateError as error:
            raise UserError(f"{at}: the model's chat template refuses it: {error}") from None

    def _one_bos(self, ids: list[int]) -> list[int]:
        bos = self.tokenizer.bos_token_id
        while bos is not None and len(ids) > 1 and ids[0] == ids[1] == bos:
            ids = ids[1:]
        return ids


def sha(ids: Sequence[int]) -> str:
    """Equal prompts, equal sha: sha256 of the ids as comma-separated decimal text, 16 hex digits."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:16]


def shared_vocab(target: Any, drafter: Any, target_rows: int, drafter_rows: int) -> int:
    """Ids below the returned number mean the same to both tokenizers; padding rows beyond may differ.

    Raises `UserError` with the first ids that differ in meaning.
    """
    ours, theirs = ({i: t for t, i in tokenizer.get_vocab().items()} for tokenizer in (target, drafter))
    if ours == theirs:
        return int(min(max(ours) + 1, target_rows, drafter_rows))
    differing = sorted(i for i in ours.keys() | theirs.keys() if ours.get(i) != theirs.get(i))
    shown = ", ".join(f"{i}: {ours.get(i)!r} ≠ {theirs.get(i)!r}" for i in differing[:3])
    raise UserError(
        f"the drafter's tokenizer is not the target's: {len(differing)} ids differ in meaning, first {shown}; "
        "an external drafter needs the same tokenizer"
    )
