"""What vendors send beside the words is kept where a body that was not streamed has it, for readers of acceptance."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from scripted_server import DONE, chunk, last, measured, text_chunk, usage


def test_case_19_extras_are_kept_where_a_body_that_was_not_streamed_has_them() -> None:
    vllm = {"speculative_decoding": {"num_spec_steps": 4, "acceptance_histogram": [1, 1, 1, 1]}}
    found = measured(
        (0.1, chunk("", role="assistant", prompt_token_ids=[1, 2, 3])),
        (0.5, chunk("a", choice={"token_ids": [4], "avg_decoded_tokens_per_iter": 1.0})),
        (0.6, chunk("b", choice={"token_ids": [5, 6], "avg_decoded_tokens_per_iter": 2.7}, timings={"draft_n": 2})),
        (0.7, chunk("", finish="stop", choice={"stop_reason": 2, "speculative_decoding": {"accepted": 3}},
                    sglext={"spec_tokens_details": {"spec_verify_ct": 4}}, timings={"draft_n": 5})),
        (0.7, last(3, 3, metrics=vllm) + DONE),
    )  # fmt: skip
    assert found.payload == {
        "id": "c", "model": "m", "prompt_token_ids": [1, 2, 3], "usage": usage(3, 3), "metrics": vllm,
        "sglext": {"spec_tokens_details": {"spec_verify_ct": 4}}, "timings": {"draft_n": 5},
        "choices": [{"token_ids": [4, 5, 6], "avg_decoded_tokens_per_iter": 2.7, "finish_reason": "stop",
                     "stop_reason": 2, "speculative_decoding": {"accepted": 3}}],
    }  # fmt: skip
    assert (found.token_ids, found.prompt_token_ids) == ((4, 5, 6), (1, 2, 3))


def test_a_number_that_is_none_is_unknown() -> None:
    found = measured((0.5, b'data: {"choices": [{"text": "a", "finish_reason": "stop"}], "timings": {"ms": NaN}}\n\n'))
    assert (found.failure, found.payload["timings"]) == (None, {"ms": None})


def test_completions_say_their_words_and_the_prompts_ids_elsewhere() -> None:
    found = measured((0.5, text_chunk("ab", choice={"prompt_token_ids": [1, 2], "token_ids": [3]})),
                     (0.6, text_chunk("c", finish="length", choice={"token_ids": [4]}) + DONE))  # fmt: skip
    assert (found.text, found.prompt_token_ids, found.token_ids) == ("abc", (1, 2), (3, 4))


def test_logprobs_are_joined_over_the_chunks() -> None:
    found = measured((0.5, chunk("a", choice={"logprobs": {"content": [{"token": "a"}], "refusal": None}})),
                     (0.6, chunk("b", choice={"logprobs": {"content": [{"token": "b"}]}}, finish="stop")))  # fmt: skip
    assert found.payload["choices"][0]["logprobs"]["content"] == [{"token": "a"}, {"token": "b"}]
