"""T_verif on GPUs that one does not own: from the kernels that AIConfigurator's authors measured there (an extra)."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import logging
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from speedbench.advise.roofline import Deployment, Roofline
from speedbench.costs.linear import Place, Refused
from speedbench.errors import Missing, UnknownName, UserError, first_line
from speedbench.types import Prefill, Priced

ENGINES = ("trtllm", "vllm", "sglang")
"""Whose kernels were measured."""

PROMPTS = (512, 4096)
"""Lengths at which a prompt is priced, for `--fleet`."""

_FORMATS = {"bfloat16": "bfloat16", "float16": "bfloat16", "fp8": "fp8", "fp4": "nvfp4", "int4": "int4_wo"}
"""Of weights, by our names."""


class Handle(Protocol):
    """What is used of `aiconfigurator_core.sdk.EngineHandle`, 0.12. Milliseconds."""

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int = 0) -> float: ...

    def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float: ...


@dataclass(frozen=True)
class Tabled(Roofline):
    """T_verif by the tables; T_draft, and what share of a pass is attention's, by the constants as ever."""

    handle: Handle = field(kw_only=True)
    tables: str = field(kw_only=True)

    @property
    def name(self) -> str:
        return f"tables of {self.tables}"

    @property
    def trust(self) -> str:
        return (
            f"T_verif, at {self.on.gpus} devices, is made of kernels that others measured ({self.tables}), T_draft "
            "guessed from published peaks, and nothing measured how wrong their sum is: profile before relying on a "
            "ratio near 1"
        )

    def verify(self, place: Place) -> Priced:
        """A chain is verified as a prefill of 1 + D tokens behind S cached ones. Asked for speculation itself, the
        tables would price each draft as a sequence with a cache of its own. The two paths differ by up to a quarter at
        D = 0, so only the ratio is taken from the first: decode(B, S) · prefill(1 + D) / prefill(1)."""
        low = math.floor(place.draft_length)
        part = place.draft_length - low
        seconds = self._verify(place, low)
        if part:
            seconds += part * (self._verify(place, low + 1) - seconds)
        return Priced(seconds=seconds, doubt=None, origin="estimated")

    def _verify(self, place: Place, draft_length: int) -> float:
        batch, context = round(place.batch), round(place.context)
        plain = _asked(self.handle.predict_decode_latency, batch, context)
        if not draft_length:
            return plain
        reading = self.handle.predict_prefill_latency
        wide = _asked(reading, batch, context + 1 + draft_length, context)
        return plain * wide / _asked(reading, batch, context + 1, context)

    def prefills(self) -> tuple[Prefill, ...]:
        """Of one row."""
        return tuple(Prefill(tokens=n, seconds=_asked(self.handle.predict_prefill_latency, 1, n)) for n in PROMPTS)


def _asked(ask: Callable[..., float], *place: int) -> float:
    """Seconds; raises `Refused` where the tables do not have it."""
    try:
        milliseconds = ask(*place)
    except Exception as error:  # many classes, none of them promised
        raise Refused(f"AIConfigurator's tables do not tell it: {first_line(error)}") from None
    if not milliseconds > 0:
        raise Refused(f"AIConfigurator's tables say {milliseconds} ms, which cannot be")
    return milliseconds / 1e3


def compiled(
    on: Deployment, config: Mapping[str, Any], engine: str, weights: str | None, cache: str | None
) -> tuple[Handle, str]:
    """The tables for a model on a device, and what they are called.

    `weights` and `cache` are formats by our names; None leaves them to the config. Raises `UserError` for what the
    tables do not have, `Missing` where the package is not installed.
    """
    if engine not in ENGINES:
        raise UnknownName("engine of AIConfigurator", engine, ENGINES)
    if on.hardware.tables is None:
        raise UserError(f"--times aiconfigurator: it has no tables of {on.hardware.title}; use --times constants")
    if weights is not None and weights not in _FORMATS:
        raise UserError(f"--weights {weights}: AIConfigurator's tables know {', '.join(_FORMATS)}")
    try:
        from aiconfigurator_core.sdk import EngineHandle
    except ModuleNotFoundError:
        raise Missing(
            '--times aiconfigurator needs aiconfigurator-core: pip install "speedbench[aiconfigurator]" (Linux on '
            "x86-64, Python from 3.11)"
        ) from None
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)  # a line for every table that it opens
    name = f"aiconfigurator-core {version('aiconfigurator-core')}, {engine} on {on.hardware.tables}"
    format = None if weights is None else _FORMATS[weights]
    wide = {"moe_ep_size": on.gpus, "moe_quant_mode": format} if on.facts.mixture else {}
    with tempfile.TemporaryDirectory() as folder:  # it reads a config from a folder, or fetches it
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        try:
            handle: Handle = EngineHandle.compile(
                folder, on.hardware.tables, engine, tp_size=on.gpus, gemm_quant_mode=format, kvcache_quant_mode=cache,
                **wide,
            )  # fmt: skip
        except Exception as error:  # many classes, none of them promised
            raise UserError(
                f"{name} cannot price {on.facts.name}: {type(error).__name__}: {first_line(error)}"
            ) from None
    return handle, name
