"""A draft vocabulary smaller than the target's: the map between them, as offsets, and what can be wrong with it.

`d2t[k]` is an offset: draft token k is the target's token k + d2t[k] (SafeAILab/EAGLE `eagle/traineagle3/cnets.py`,
vLLM `model_executor/models/llama_eagle3.py`); the kept ids are sorted before it is made, so the image ascends. `t2d`
marks the target's tokens that the draft has, and only training reads it.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import torch
from torch import Tensor

from speedbench.errors import UserError


def vocabulary_map(
    name: str, d2t: Tensor | None, t2d: Tensor | None, draft: int, target: int
) -> tuple[Tensor | None, tuple[str, ...]]:
    """The offsets [draft] int64, None where both vocabularies are one, and warnings. Raises for a map that is wrong."""
    if d2t is None:
        if draft != target:
            raise UserError(
                f"the drafter '{name}' has a draft vocabulary of {draft} of its target's {target} tokens but no tensor "
                "'d2t' that maps one to the other"
            )
        return None, ()
    if d2t.dtype != torch.int64 or tuple(d2t.shape) != (draft,):
        raise UserError(f"tensor 'd2t' of '{name}' is {d2t.dtype} {list(d2t.shape)}; it should be int64 [{draft}]")
    identity = not bool(d2t.any())
    ids = torch.arange(draft) + d2t
    _refuse_image(name, d2t, ids, target)
    if t2d is not None and (bool(t2d.any()) or not identity):
        _refuse_disagreement(name, ids, t2d, target)
    if draft == target:
        return None, ()
    first = f"'d2t' of '{name}' is all zeros: its {draft} draft tokens are taken for the target's first {draft}"
    return d2t, (first,) if identity else ()


def _refuse_image(name: str, d2t: Tensor, ids: Tensor, target: int) -> None:
    """Raise for the first draft token whose id is none of the target's, or not above the one before it."""
    bad = (ids < 0) | (ids >= target)
    if bool(bad.any()):
        k = int(bad.nonzero()[0])
        raise UserError(
            f"'d2t' of '{name}' maps draft token {k} to {k} + {int(d2t[k])} = {int(ids[k])}, and the target has tokens "
            f"0 … {target - 1}; does it hold ids instead of offsets?"
        )
    falls = ids[1:] <= ids[:-1]
    if bool(falls.any()):
        k = int(falls.nonzero()[0]) + 1
        raise UserError(
            f"'d2t' of '{name}' maps draft token {k} to {int(ids[k])}, not above the {int(ids[k - 1])} of the token "
            "before it; a map's ids go up, each once"
        )


def _refuse_disagreement(name: str, ids: Tensor, t2d: Tensor, target: int) -> None:
    """Raise for the first token of which d2t and t2d say different things."""
    if tuple(t2d.shape) != (target,):
        raise UserError(f"tensor 't2d' of '{name}' is {list(t2d.shape)}; it should be [{target}]")
    marked = t2d.bool()
    unmarked = (~marked[ids]).nonzero()
    if len(unmarked):
        k = int(unmarked[0])
        raise UserError(f"'d2t' of '{name}' maps draft token {k} to {int(ids[k])}, which its 't2d' leaves out")
    marked = marked.clone()
    marked[ids] = False
    if bool(marked.any()):
        raise UserError(
            f"'t2d' of '{name}' has target token {int(marked.nonzero()[0])}, to which its 'd2t' maps nothing"
        )
