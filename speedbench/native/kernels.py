"""The C half of the lean forward on CPU: `kernels.c`, compiled once by the machine's own compiler, kept in the cache.

Without a C compiler, or with SPEEDBENCH_KERNELS=0, the same is done by torch operators; results agree within rounding.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_FLAGS = (
    "-O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math -fassociative-math -fno-signed-zeros -shared -fPIC"
)
"""No -ffast-math: linked into a shared object it would change how the whole process rounds tiny numbers."""

WIDEST_HEAD = 256
"""Entries of a head that kernels.c has room for."""

_POINTERS = {"add_norm": 4, "swiglu": 2, "attend": 7}
_NUMBERS = {"add_norm": 2, "swiglu": 2, "attend": 6}
_SCALED = ("add_norm", "attend")


class Kernels:
    """The three operations for one dtype; tensors are contiguous, on CPU, and written in place where it says so."""

    def __init__(self, library: ctypes.CDLL, dtype: torch.dtype) -> None:
        self._add_norm, self._swiglu, self._attend = (_function(library, name, dtype) for name in _POINTERS)

    def add_norm(self, x: Tensor, y: Tensor | None, weight: Tensor, out: Tensor, rows: int, eps: float) -> None:
        """x[:rows] += y; out[:rows] = RMSNorm(x)·weight."""
        added = None if y is None else y.data_ptr()
        self._add_norm(x.data_ptr(), added, weight.data_ptr(), out.data_ptr(), rows, x.shape[1], eps)

    def swiglu(self, both: Tensor, out: Tensor, rows: int) -> None:
        """out[:rows] = silu(gate)·up of both [M, 2·F]."""
        self._swiglu(both.data_ptr(), out.data_ptr(), rows, out.shape[1])

    def attend(
        self,
        qkv: Tensor,
        cos: Tensor,
        sin: Tensor,
        slots: Tensor,
        place: Tensor,
        scratch: Tensor,
        out: Tensor,
        heads: int,
    ) -> None:
        """Turn q and k of qkv, store k and v in slots [B, 2·kv, length, size] at place [B, W] int64, and attend.

        out [·, heads·size]; scratch holds B·heads·length floats.
        """
        (batch, width), (_, double, length, size) = place.shape, slots.shape
        self._attend(
            qkv.data_ptr(), cos.data_ptr(), sin.data_ptr(), slots.data_ptr(), place.data_ptr(), scratch.data_ptr(),
            out.data_ptr(), batch, width, heads, double // 2, size, length, size**-0.5,
        )  # fmt: skip


def kernels(dtype: torch.dtype) -> Kernels | None:
    """The operations for a dtype; None where they cannot be had."""
    library = _library() if dtype in (torch.float32, torch.bfloat16) else None
    return None if library is None else Kernels(library, dtype)


def _function(library: ctypes.CDLL, name: str, dtype: torch.dtype) -> Any:
    function = getattr(library, f"{name}_{str(dtype).removeprefix('torch.')}")
    scale = [ctypes.c_float] if name in _SCALED else []
    function.argtypes = [ctypes.c_void_p] * _POINTERS[name] + [ctypes.c_long] * _NUMBERS[name] + scale
    function.restype = None
    return function


@cache
def _library() -> ctypes.CDLL | None:
    """Compiled for this very CPU, under a name that changes with source, flags and machine."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None or platform.system() != "Linux" or os.environ.get("SPEEDBENCH_KERNELS") == "0":
        return None
    source = files("speedbench.native") / "kernels.c"
    code = source.read_bytes()
    digest = hashlib.sha256(code + _FLAGS.encode() + _cpu().encode()).hexdigest()[:16]
    from speedbench.native.weights import cache as home

    kept = home() / "kernels" / f"{digest}.so"
    try:
        if not kept.is_file():
            _compile(compiler, code, kept)
        return ctypes.CDLL(str(kept))
    except (OSError, subprocess.CalledProcessError):
        return None


def _compile(compiler: str, code: bytes, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        source, made = Path(scratch) / "kernels.c", Path(scratch) / "kernels.so"
        source.write_bytes(code)
        command = [compiler, *_FLAGS.split(), "-o", str(made), str(source), "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        made.replace(kept)


def _cpu() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("flags")), platform.processor())
