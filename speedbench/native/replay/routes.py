"""Which way a drafter is replayed, by what it declares of itself; one that has no way is refused with the reason."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

from speedbench.errors import UserError
from speedbench.native.dflash import DFlash
from speedbench.native.external import External
from speedbench.native.oracle import Oracle
from speedbench.native.proposer import LookUp, Proposer
from speedbench.native.replay.block import Blocks
from speedbench.native.replay.external import OneForward
from speedbench.native.replay.forced import Stage
from speedbench.native.replay.lookups import LookUps
from speedbench.native.replay.serial import Passes
from speedbench.native.serial import Serial
from speedbench.types import Labeller


def labeller(label: str, proposer: Proposer, stage: Stage, lengths: Sequence[int]) -> Labeller:
    """The route of a proposer made for the longest of the draft lengths."""
    if isinstance(proposer, Oracle):
        raise UserError(f"drafter '{label}' replays the answer itself, so there is nothing to replay; leave it out")
    if isinstance(proposer, LookUp):
        return LookUps(proposer, stage, lengths)
    if proposer.stateful:
        raise _refused(label, "its proposals depend on more than the committed tokens of their own row")
    if isinstance(proposer, DFlash):
        return Blocks(proposer, stage, lengths)
    if proposer.depends_on_block_length:
        raise _refused(label, "its proposal for a D is no beginning of the one for a larger D")
    if isinstance(proposer, Serial):
        return Passes(proposer, stage)
    if isinstance(proposer, External):
        return OneForward(proposer, stage)
    raise _refused(label, f"nobody has written how a {type(proposer).__name__} runs over many positions at once")


def _refused(label: str, reason: str) -> UserError:
    return UserError(f"drafter '{label}' cannot be replayed: {reason}; measure it with `speedbench run`")
