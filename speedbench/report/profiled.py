"""What the charts of a profile are made of: its points, and the cost model fitted to them."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from speedbench import modelfacts
from speedbench.costs.linear import Fit, Refused
from speedbench.costs.passes import Passes
from speedbench.errors import UserError
from speedbench.types import Kernel, Profile, Timed


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """One profile and the name that its page gives it."""

    name: str
    profile: Profile

    @cached_property
    def plain(self) -> Sequence[Timed]:
        """Passes of the target, its drafts given."""
        return [each for each in self.profile.timed if each.drafter is None]

    @cached_property
    def lengths(self) -> Sequence[str]:
        """`D=0` and so on: a D has the same colour and shape in every chart."""
        timed = {each.draft_length for each in self.profile.timed}
        return [f"D={d}" for d in sorted(timed | {each.draft_length for each in self.study("gemm")})]

    @cached_property
    def fitted(self) -> tuple[Passes | None, str]:
        """The cost model, or None and why there is none."""
        try:
            found = Passes(self.plain, modelfacts.of(self.profile.config))
            _ = found.verifying
        except Refused as error:
            return None, str(error)
        except UserError as error:
            return None, f"the model's shapes are not known: {error}"
        return found, ""

    @property
    def fit(self) -> Fit | None:
        passes, _ = self.fitted
        return passes.verifying if passes else None

    def study(self, name: str) -> Sequence[Kernel]:
        return [each for each in self.profile.kernels if each.study == name]
