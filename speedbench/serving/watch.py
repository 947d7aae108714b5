"""What a server lets be seen of its passes' seconds while a block is held, kept raw; `ladder` reads it."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from speedbench.errors import UserError
from speedbench.serving.ladder import llamacpp_block, sglang_block, vllm_forward_slim
from speedbench.serving.prometheus import server_info
from speedbench.serving.running import Running
from speedbench.types import Settings


def forward(engine: Settings) -> list[dict[str, Any]]:
    """The results of `vllm bench forward` that a runner names. Raises `UserError` for a file that holds none."""
    return [vllm_forward_slim(result) for path in engine.get("forward") or () for result in _results(str(path))]


def _results(path: str) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"engine.forward: cannot read '{path}' ({error.strerror})") from None
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(each, dict) and "median_us" in each for each in found):
        raise UserError(f"engine.forward: '{path}' is no --output-json of `vllm bench forward`")
    return found


class Watch:
    """Begins with a block; `kept` ends it."""

    def __init__(self, up: Running, measured: Sequence[Mapping[str, Any]] = ()) -> None:
        self._up, self._forward = up, measured
        self._log, self._steps = self._logged(), self._step_seconds()

    def kept(self) -> dict[str, Any]:
        """`passes`, by the reader of `ladder` that understands it; empty where the engine shows nothing."""
        if self._up.plan.engine == "llamacpp" and self._log:
            return {"passes": {"llamacpp": llamacpp_block(self._log, self._logged()[len(self._log) :])}}
        if self._up.plan.engine == "sglang":
            return {"passes": {"sglang": sglang_block(self._steps, self._step_seconds())}}
        return {"passes": {"vllm_forward": list(self._forward)}} if self._forward else {}

    def _logged(self) -> str:
        log = self._up.log if self._up.plan.engine == "llamacpp" else None
        return log.read_text("utf-8", "replace") if log is not None and log.is_file() else ""

    def _step_seconds(self) -> Mapping[int, Sequence[float]]:
        if self._up.plan.engine != "sglang":
            return {}
        try:
            return server_info(self._up.info() or {}).step_seconds
        except UserError:  # it is gone, as the block says
            return {}
