"""Prompts counted in the target's own tokens, and those that are to have a size cut to it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol, runtime_checkable

from speedbench.errors import Missing, UserError
from speedbench.types import Fit, Request, Runner, Session, Sized

TOLERANCE = 0.01
"""Of its size, by which a prompt may miss it."""
AIM = 0.008
"""Beyond this it is cut again."""
ROUNDS = 4
NEAT = 0.004
"""Of its size, which a prompt may give up for ending with a line, or else with a word."""


@runtime_checkable
class Counting(Protocol):
    """Whoever has the target's tokenizer: a session, or a counter beside one."""

    def fits(self, requests: Sequence[Request], max_tokens: int) -> tuple[Fit, ...]:
        """Prompt sizes, chat template included."""

    def token_ends(self, texts: Sequence[str]) -> Sequence[Sequence[int]]:
        """For each text, the character at which each of its tokens ends."""


def measured(
    requests: Sequence[Request], session: Session, runner: Runner, max_tokens: int
) -> tuple[tuple[Request, ...], tuple[Fit, ...]]:
    """The requests, cut to size where they have one, and how each fits. Raises `UserError` where a size is wanted and
    nothing here can count."""
    counting = _counting(session, runner)
    if not any(request.sized for request in requests):
        return tuple(requests), (counting or session).fits(requests, max_tokens)
    if counting is None:
        raise UserError(
            f"these prompts are to be cut to a size in the target's own tokens, which '{runner.backend}' cannot count "
            "before it is up; name its tokenizer in the runner, as tokenizer: ORG/NAME or a folder"
        )
    return _cut(requests, counting, max_tokens)


def _counting(session: Session, runner: Runner) -> Counting | None:
    if isinstance(session, Counting):
        if runner.tokenizer:
            raise UserError(f"runner.tokenizer: '{runner.backend}' has the target's own; leave it out")
        return session
    if not runner.tokenizer:
        return None
    try:
        from speedbench.native.counting import counter

        return counter(runner.tokenizer)
    except ModuleNotFoundError as error:
        raise Missing(f"runner.tokenizer needs the package {error.name}: pip install transformers") from None


# ---- cutting to size ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Cut:
    """A prompt's pieces on a rule of tokens."""

    sized: Sized
    ends: list[Sequence[int]]
    """Of each piece, where its tokens end."""
    upto: list[int]
    """Tokens of the pieces up to each."""

    def text(self, room: int) -> str:
        """The prompt with so many tokens of material, or a few less so that it ends neatly."""
        pieces = list(self.sized.pieces[: bisect_right(self.upto, room)])
        rest, spare = room - (self.upto[len(pieces) - 1] if pieces else 0), int(NEAT * self.sized.tokens)
        is_neat = bool(pieces) and pieces[-1].endswith("\n") and rest <= spare
        if rest and not is_neat and len(pieces) < len(self.ends):
            pieces.append(_neatly(self.sized.pieces[len(pieces)], self.ends[len(pieces)], rest, spare))
        at = round(self.sized.depth * len(pieces))
        middle = "".join((*pieces[:at], self.sized.needle, *pieces[at:]))
        return f"{self.sized.before}{middle}{self.sized.after}"


def _neatly(piece: str, ends: Sequence[int], tokens: int, spare: int) -> str:
    """The first so many tokens of a piece, or up to `spare` less so that they end with a line, or else with a word."""
    end, least = ends[tokens - 1], ends[max(0, tokens - 1 - spare)]
    for mark in ("\n", " "):
        near = piece.rfind(mark, max(0, least - 1), end)
        if near >= 0:
            return piece[: near + 1]
    return piece[:end]


def _cut(
    requests: Sequence[Request], counting: Counting, max_tokens: int
) -> tuple[tuple[Request, ...], tuple[Fit, ...]]:
    """Every piece is encoded once; a prompt's cut is then looked up on the rule of its pieces, and its size counted."""
    made, sizes = list(requests), [request.sized for request in requests]
    cuts = dict(zip((i for i, sized in enumerate(sizes) if sized), _rules(filter(None, sizes), counting), strict=True))
    bare = counting.fits([replace(made[i], turns=(cut.text(0),)) for i, cut in cuts.items()], max_tokens)
    rooms = {i: cut.sized.tokens - (fit.prompt_tokens or 0) for (i, cut), fit in zip(cuts.items(), bare, strict=True)}
    fits: dict[int, Fit] = {}
    todo = list(range(len(made)))
    for _ in range(ROUNDS):
        for i in todo:
            if i in cuts:
                made[i] = replace(made[i], turns=(_refusing(made[i], cuts[i], rooms[i]).text(rooms[i]),))
        fits |= dict(zip(todo, counting.fits([made[i] for i in todo], max_tokens), strict=True))
        off = {i: (fits[i].prompt_tokens or 0) - cut.sized.tokens for i, cut in cuts.items()}
        todo = [i for i, cut in cuts.items() if abs(off[i]) > AIM * cut.sized.tokens]
        rooms |= {i: rooms[i] - off[i] for i in todo}
        if not todo:
            break
    for i in todo:
        if abs(off[i]) > TOLERANCE * cuts[i].sized.tokens:
            raise UserError(
                f"'{made[i].id}' came out at {fits[i].prompt_tokens} tokens, not {cuts[i].sized.tokens} within 1 %: "
                "this tokenizer counts its text otherwise in one piece than in parts"
            )
    return tuple(made), tuple(fits[i] for i in range(len(made)))


def _rules(sizes: Iterable[Sized], counting: Counting) -> list[_Cut]:
    """A letter stands behind each piece while it is counted, as another piece will: tokenizers take the last line break
    of a text apart from one with text behind it."""
    wanted = list(sizes)
    pieces = list(dict.fromkeys(piece for sized in wanted for piece in sized.pieces))
    ends = {
        piece: told[: bisect_right(told, len(piece))]
        for piece, told in zip(pieces, counting.token_ends([f"{piece}a" for piece in pieces]), strict=True)
    }
    made = []
    for sized in wanted:
        own = [ends[piece] for piece in sized.pieces]
        made.append(_Cut(sized, own, list(accumulate(map(len, own)))))
    return made


def _refusing(request: Request, cut: _Cut, room: int) -> _Cut:
    if room < 1:
        raise UserError(
            f"'{request.id}' is to have {cut.sized.tokens} tokens, and has {cut.sized.tokens - room} without any "
            "material; ask for more"
        )
    if room > cut.upto[-1]:
        raise UserError(
            f"'{request.id}' is to have {cut.sized.tokens} tokens, and there is material for {cut.upto[-1]} of {room}"
        )
    return cut
