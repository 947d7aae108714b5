"""A random Llama of half a megabyte as a GGUF file, whose words are bytes: something for a real llama.cpp to serve."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import numpy as np

LAYERS, WIDTH, HEADS, INNER = 2, 64, 4, 128
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
"""Kinds of tokens as GGUF numbers them."""


def write(path: Path, *, seed: int = 0, context: int = 2048) -> Path:
    """The file; equal seeds make equal models."""
    import gguf

    dice = np.random.default_rng(seed)
    file = gguf.GGUFWriter(str(path), "llama")
    file.add_name("tiny")
    file.add_context_length(context)
    file.add_embedding_length(WIDTH)
    file.add_block_count(LAYERS)
    file.add_feed_forward_length(INNER)
    file.add_head_count(HEADS)
    file.add_head_count_kv(HEADS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(WIDTH // HEADS)
    words = _words()
    file.add_vocab_size(len(words))
    file.add_tokenizer_model("llama")
    file.add_token_list([word for word, _, _ in words])
    file.add_token_types([kind for _, kind, _ in words])
    file.add_token_scores([score for _, _, score in words])
    file.add_unk_token_id(0)
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_add_bos_token(True)
    for name, shape in _shapes(len(words)).items():
        normed = name.endswith("norm.weight")
        file.add_tensor(name, (np.ones(shape) if normed else dice.standard_normal(shape) * 0.08).astype(np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


def _words() -> list[tuple[bytes, int, float]]:
    """(token, kind, score): three controls, every byte, the printable letters and the blank that begins a word."""
    controls = [(b"<unk>", UNKNOWN, 0.0), (b"<s>", CONTROL, 0.0), (b"</s>", CONTROL, 0.0)]
    letters = [bytes([letter]) for letter in range(32, 127)] + ["▁".encode()]
    return [
        *controls,
        *((f"<0x{byte:02X}>".encode(), BYTE, -10.0) for byte in range(256)),
        *((letter, NORMAL, -1.0) for letter in letters),
    ]


def _shapes(words: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (words, WIDTH), "output_norm.weight": (WIDTH,), "output.weight": (words, WIDTH),
    }  # fmt: skip
    for layer in range(LAYERS):
        inside = {
            "attn_norm": (WIDTH,), "ffn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH),
            "attn_v": (WIDTH, WIDTH), "attn_output": (WIDTH, WIDTH), "ffn_gate": (INNER, WIDTH),
            "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER),
        }  # fmt: skip
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in inside.items()}
    return shapes
