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
from array import array
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from speedbench.content import user_cache

_FLAGS = "-O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math -shared -fPIC"
"""No -ffast-math: linked into a shared object it would change how the whole process rounds tiny numbers, and sums whose
order the compiler chooses differ from one number of rows to the next."""

_SOURCES = ("kernels.c", "kernels_product.h", "kernels_rows.h", "kernels_attention.h", "kernels_pass.h")

WIDEST_HEAD = 256
"""Entries of a head that kernels.c has room for."""

_P, _N, _F = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


def _structure(name: str, **fields: Any) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


Matrix = _structure("Matrix", weight=_P, bias=_P, rows=_N, depth=_N)
Layer = _structure(
    "Layer", norm=_P, mlp_norm=_P, q_norm=_P, k_norm=_P, qkv=Matrix, out=Matrix, gate_up=Matrix, down=Matrix
)
Window = _structure(
    "Window", batch=_N, width=_N, heads=_N, kv=_N, size=_N, length=_N, context=_N, start=_P, cosine=_P, sine=_P,
    scale=_F,
)  # fmt: skip
Pass = _structure(
    "Pass", window=Window, layers=_N, hidden=_N, inner=_N, vocab=_N, last_only=_N, eps=_F, ids=_P, embedding=_P,
    norm=_P, layer=ctypes.POINTER(Layer), head=Matrix, slots=ctypes.POINTER(_P),
    taps=ctypes.POINTER(_P), logits=_P,
)  # fmt: skip
"""The structures of kernels.c, field by field."""

_ARGUMENTS: dict[str, list[Any]] = {
    "pays": [],
    "pack": [_P, _P, _N, _N],
    "linear": [_P, ctypes.POINTER(Matrix), _P, _N],
    "add_norm": [_P, _P, _P, _P, _N, _N, _F],
    "swiglu": [_P, _P, _N, _N],
    "best": [_P, _P, _N, _N],
    "attend": [ctypes.POINTER(Window), _P, _P, _P],
    "forward": [ctypes.POINTER(Pass)],
}


class Kernels:
    """The operations for one dtype; tensors are contiguous, on CPU, and written in place where it says so."""

    def __init__(self, library: ctypes.CDLL, dtype: torch.dtype) -> None:
        self.dtype = dtype
        pays, self._pack, self.linear, self._add_norm, self._swiglu, self._best, self._attend, self.forward = (
            _function(library, name, dtype) for name in _ARGUMENTS
        )
        self.pays = bool(pays())
        """Whether the products of kernels.c beat oneDNN's on this machine."""

    def pack(self, weight: Tensor) -> Tensor:
        """A weight [N, K], K even, in the panels of kernels.c, filled up with zeros to a multiple of 32 rows."""
        rows, depth = weight.shape
        panels = torch.empty(-(-rows // 32) * 32 * depth, dtype=weight.dtype)
        self._pack(weight.contiguous().data_ptr(), panels.data_ptr(), rows, depth)
        return panels

    def add_norm(self, x: Tensor, y: Tensor | None, weight: Tensor, out: Tensor, rows: int, eps: float) -> None:
        """x[:rows] += y; out[:rows] = RMSNorm(x)·weight."""
        added = None if y is None else y.data_ptr()
        self._add_norm(x.data_ptr(), added, weight.data_ptr(), out.data_ptr(), rows, x.shape[1], eps)

    def swiglu(self, both: Tensor, out: Tensor, rows: int) -> None:
        """out[:rows] = silu(gate)·up of both [M, 2·F]."""
        self._swiglu(both.data_ptr(), out.data_ptr(), rows, out.shape[1])

    def best(self, logits: Tensor) -> list[list[int]]:
        """The argmax of logits [B, W, V], the first of equals, for each row and token."""
        (batch, width, vocab), logits = logits.shape, logits.contiguous()
        picks = (_N * (batch * width))()
        self._best(logits.data_ptr(), picks, batch * width, vocab)
        return [picks[b * width : (b + 1) * width] for b in range(batch)]

    def attend(self, window: Any, qkv: Tensor, slots: Tensor, out: Tensor) -> None:
        """Turn q and k of qkv [B·W, (heads + 2·kv)·size], store k and v in slots [B, 2·kv, length, size], and attend:
        out [B·W, heads·size]."""
        if self._attend(window, qkv.data_ptr(), slots.data_ptr(), out.data_ptr()):
            raise MemoryError("no memory for attention")


def kernels(dtype: torch.dtype) -> Kernels | None:
    """The operations for a dtype, on as many threads as torch; None where they cannot be had."""
    library = _library() if dtype in (torch.float32, torch.bfloat16) else None
    if library is None:
        return None
    library.use_threads(torch.get_num_threads())
    return Kernels(library, dtype)


def pointers(tensors: Sequence[Tensor | None]) -> Any:
    """A C array of where they lie; a null for None."""
    return (_P * len(tensors))(*(None if t is None else t.data_ptr() for t in tensors))


def window(heads: int, kv: int, cos: Tensor, sin: Tensor) -> Any:
    """Who attends to what, yet without tokens; cos and sin [context, size], which it does not keep alive."""
    context, size = cos.shape
    angles = {"cosine": cos.data_ptr(), "sine": sin.data_ptr()}
    return Window(heads=heads, kv=kv, size=size, context=context, scale=size**-0.5, **angles)


def place(window: Any, start: Sequence[int], width: int, length: int) -> None:
    """Row b has `width` tokens from position start[b] on, in slots of which a row has `length`."""
    window.kept = starts = array("q", start)
    window.batch, window.width, window.length, window.start = len(start), width, length, starts.buffer_info()[0]


def _function(library: ctypes.CDLL, name: str, dtype: torch.dtype) -> Any:
    function = getattr(library, f"{name}_{str(dtype).removeprefix('torch.')}")
    function.argtypes = _ARGUMENTS[name]
    function.restype = ctypes.c_int if name in ("pays", "attend", "forward") else None
    return function


@cache
def _library() -> ctypes.CDLL | None:
    """Compiled for this very CPU, under a name that changes with source, flags and machine."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None or platform.system() != "Linux" or os.environ.get("SPEEDBENCH_KERNELS") == "0":
        return None
    code = sources()
    digest = hashlib.sha256(b"".join(code.values()) + _FLAGS.encode() + _cpu().encode()).hexdigest()[:16]
    kept = user_cache() / "kernels" / f"{digest}.so"
    try:
        if not kept.is_file():
            build(compiler, code, kept)
        return ctypes.CDLL(str(kept))
    except (OSError, subprocess.CalledProcessError):
        return None


def sources() -> dict[str, bytes]:
    return {name: (files("speedbench.native") / name).read_bytes() for name in _SOURCES}


def build(compiler: str, code: dict[str, bytes], kept: Path, *more: str) -> None:
    """Compile the sources, with more flags after ours, into the shared object `kept`."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        for name, text in code.items():
            (Path(scratch) / name).write_bytes(text)
        made = Path(scratch) / "kernels.so"
        command = [compiler, *_FLAGS.split(), *more, "-o", str(made), str(Path(scratch) / _SOURCES[0]), "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        made.replace(kept)


def _cpu() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("flags")), platform.processor())
