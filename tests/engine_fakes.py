"""Strict stand-ins for the engines' own configuration classes, by version: fields, words, and unknown keys refused.

Written from the engines' sources (TensorRT-LLM llmapi/llm_args.py, vLLM config/speculative.py); they run nothing.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from types import ModuleType
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, create_model, model_validator


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


# ---- TensorRT-LLM ---------------------------------------------------------------------------------------------------


class KvCacheConfig(Strict):
    enable_block_reuse: bool = True
    free_gpu_memory_fraction: float | None = None


class CudaGraphConfig(Strict):
    batch_sizes: list[int] | None = None
    max_batch_size: int = 0
    enable_padding: bool = False


class Base12(Strict):
    max_draft_len: int | None = None
    max_total_draft_tokens: int | None = None
    speculative_model_dir: str | None = None
    max_concurrency: int | None = None
    load_format: str | None = None
    acceptance_window: int | None = None
    acceptance_length_threshold: float | None = None


class Base13(Strict):
    max_draft_len: int | None = Field(default=None, ge=0)
    max_total_draft_tokens: int | None = None
    speculative_model: str | None = Field(
        default=None, validation_alias=AliasChoices("speculative_model", "speculative_model_dir")
    )
    max_concurrency: int | None = None
    draft_len_schedule: dict[int, int] | None = None
    load_format: str | None = None
    acceptance_rate_window_size: int | None = None
    acceptance_rate_threshold: float | None = None
    use_rejection_sampling: bool = False


class NGram(Strict):
    max_matching_ngram_size: int = 2
    is_keep_all: bool = True
    is_use_oldest: bool = True
    is_public_pool: bool = True


class MTP12(Base12):
    num_nextn_predict_layers: int = 1
    use_relaxed_acceptance_for_thinking: bool = False

    @property
    def drafted(self) -> int:
        return self.num_nextn_predict_layers


class MTP13(Base13):
    """Takes D by its old name too, and then by no other."""

    num_nextn_predict_layers: int | None = None
    use_relaxed_acceptance_for_thinking: bool = False

    @model_validator(mode="before")
    @classmethod
    def remapped(cls, data: dict[str, Any]) -> dict[str, Any]:
        if "num_nextn_predict_layers" in data:
            old = data.pop("num_nextn_predict_layers")
            data.setdefault("max_draft_len", old)
        return data

    @property
    def drafted(self) -> int | None:
        return self.max_draft_len


class Eagle12(Base12):
    eagle3_one_model: bool | None = True


class DSpark14(Base13):
    mask_token_id: int | None = None
    block_size: int | None = None

    @model_validator(mode="after")
    def matched(self) -> DSpark14:
        assert self.block_size in (None, self.max_draft_len)
        return self


class Block13(Base13):
    mask_token_id: int | None = None
    target_layer_ids: list[int] | None = None


class SA13(Base13):
    max_matching_ngram_size: int = -1
    enable_global_pool: bool = False


def _both(name: str, *bases: type[BaseModel]) -> type[BaseModel]:
    return create_model(name, __base__=bases)


def trtllm(version: str) -> ModuleType:
    """`tensorrt_llm.llmapi` of a version: only the classes that it has."""
    module = ModuleType("tensorrt_llm.llmapi")
    classes: dict[str, type[BaseModel]] = {"KvCacheConfig": KvCacheConfig, "CudaGraphConfig": CudaGraphConfig}
    if version == "1.2":
        classes |= {
            "MTPDecodingConfig": MTP12,
            "EagleDecodingConfig": Eagle12,
            "DraftTargetDecodingConfig": Base12,
            "NGramDecodingConfig": _both("NGramDecodingConfig", Base12, NGram),
        }
    else:
        classes |= {
            "MTPDecodingConfig": MTP13,
            "Eagle3DecodingConfig": Base13,
            "DraftTargetDecodingConfig": Base13,
            "NGramDecodingConfig": _both("NGramDecodingConfig", Base13, NGram),
            "SADecodingConfig": SA13,
            "DFlashDecodingConfig": Block13,
        }
    if version == "1.4":
        classes["DSparkDecodingConfig"] = DSpark14
    for name, one in classes.items():
        setattr(module, name, one)
    return module


# ---- vLLM -----------------------------------------------------------------------------------------------------------

_METHODS = Literal[
    "ngram", "ngram_gpu", "draft_model", "suffix", "custom_class", "eagle", "eagle3", "mtp", "dflash", "dspark"
]


class SpeculativeConfig(Strict):
    """vLLM 0.32 and 0.33, as far as both go."""

    method: _METHODS
    num_speculative_tokens: int = Field(gt=0)
    model: str | None = None
    prompt_lookup_max: int | None = Field(default=None, ge=1)
    prompt_lookup_min: int | None = Field(default=None, ge=1)
    suffix_decoding_max_tree_depth: int = 24
    suffix_decoding_max_cached_requests: int = Field(default=10000, ge=0)
    suffix_decoding_max_spec_factor: float = Field(default=1.0, ge=0)
    suffix_decoding_min_token_prob: float = Field(default=0.1, ge=0, le=1)
    parallel_drafting: bool = False
    rejection_sample_method: Literal["standard", "synthetic", "block"] = "standard"
    synthetic_acceptance_rates: list[float] | None = None
    synthetic_acceptance_length: float | None = None

    @model_validator(mode="after")
    def consistent(self) -> SpeculativeConfig:
        rates, length, n = (
            self.synthetic_acceptance_rates,
            self.synthetic_acceptance_length,
            self.num_speculative_tokens,
        )
        if self.rejection_sample_method == "synthetic":
            assert (rates is None) != (length is None)
            assert length is None or 1 <= length <= n + 1
            assert rates is None or (len(rates) == n and rates == sorted(rates, reverse=True))
        if self.method in ("draft_model", "eagle3", "dflash"):
            assert self.model, "num_speculative_tokens was provided but without speculative model"
        return self
