"""SPEED-Bench in small: every kind of row and source that the real one has, with texts of our own."""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow
import pyarrow.parquet
from stub_hub import StubHub

from speedbench.prepare import speed_bench, wording
from speedbench.prepared import MARKER

SHA = "0123456789abcdef0123456789abcdef01234567"
HUB = "https://huggingface.co/datasets"
RAW = "https://raw.githubusercontent.com"
MT101 = f"{RAW}/mtbench101/mt-bench-101/{SHA}/data/subjective/mtbench101.jsonl"
BAMBOO = f"{RAW}/RUCAIBox/BAMBOO/{SHA}/datasets/showspred_4k.jsonl"
SELECT = "http://opencompass.openxlab.space/utils/AdaLEval/stackselect_1k.json"
SORT = "http://opencompass.openxlab.space/utils/AdaLEval/textsort_1k.json"

SORT_INSTRUCTION = "\n    Say in which order the parts belong.\n\n"

WORDING = f'''
class Bench:
    def _generate_stackselect_prompt(question, answers, answer, num_tokens):
        prompt = """
Pick the best answer.
"""
        prompt += "Here is what was asked.\\n"
        prompt += question + "\\n\\n"
        prompt += "Here is what was said.\\n"
        end_prompt = "Now pick. \\n"
        end_prompt += "Say why.\\n"
        for i, answer in enumerate(answers):
            prompt += f"A{{i + 1}}:\\n\\n{{answer}}\\n\\n"
        prompt += end_prompt
        return prompt

    def _generate_textsort_prompt(prompt):
        original_instruction = {SORT_INSTRUCTION!r}
        new_instruction = "\\nWrite the parts in order. \\n"
        return prompt.replace(original_instruction, new_instruction, 1)

    def _generate_writing_prompt(contents):
        content = "".join(contents)
        prompt = f"""
Finish the dialogues. 
{{content}}
"""
        return prompt

    def _generate_chatrag_bench_prompt(external_dataset):
        prompt = "Answer from this.\\n{{context}}\\nAsked: {{question}}"
        return prompt

    def _generate_coser_prompt(external_dataset):
        prompt = """Be {{character}} of {{book_name}}: {{character_profile}}
{{scenario}} | {{other_character_profiles_str}} | {{motivation}}"""
        return prompt

    def _generate_mmlu_pro_prompt(external_dataset, subject):
        prompt = 'Questions on {{subject}}.\\n\\n'
        return prompt

    def _generate_hle_prompt(example, hle_train, num_tokens, rng):
        prompt = (
            "Some examples of "
            + example["category"]
            + ":\\n\\n"
        )
        prompt += hle_train.sample(1)
        return prompt
'''  # noqa: W291 - a space at the end of a line is wording too


class Words:
    """An encoding that anybody can count: a token is letters, or digits, or any other character."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._words: list[str] = []

    def encode(self, text: str, *, disallowed_special: Any = "all") -> list[int]:
        return [self._id(word) for word in re.findall(r"[A-Za-z]+|[0-9]+|[^A-Za-z0-9]", text)]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self._words[token] for token in tokens)

    def _id(self, word: str) -> int:
        if word not in self._ids:
            self._ids[word] = len(self._words)
            self._words.append(word)
        return self._ids[word]


def parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), out)
    return out.getvalue()


def lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def row(name: str, category: str, source: str, source_id: str, turns: Sequence[str], **more: Any) -> dict[str, Any]:
    return {
        "question_id": (name + "-" * 32)[:32],
        "category": category,
        "sub_category": more.get("sub_category", ""),
        "turns": list(turns),
        "source": source,
        "src_id": source_id,
        "difficulty": more.get("difficulty", ""),
        "multiturn": False,
    }


def qualitative() -> list[dict[str, Any]]:
    """Thirteen rows, eleven of which are placeholders, two of HLE's."""
    role = "rolebench_instruction-generalization_1_rolebench_instruction-generalization_3_rolebench_x_9"
    asked = f"{MARKER}\n\n"
    return [
        row("shipped1", "coding", f"{HUB}/bigcode/humanevalpack/tree/{SHA}", "Go/1", ["Write a Go function.\n"]),
        row("hle1", "math", f"{HUB}/cais/hle/tree/{SHA}", "h1", [MARKER], sub_category="Algebra", difficulty="hard"),
        row("cnn", "summarization", f"{HUB}/abisee/cnn_dailymail/tree/{SHA}", "n2", [f"{asked}Sum up: {{article}}"]),
        row("lcb", "coding", f"{HUB}/livecodebench/code_generation_lite/tree/{SHA}", "abc_d",
            [f"{asked}Solve {{question}} from {{starter_code}}"], difficulty="medium"),
        row("cc", "coding", "deepmind/code_contests", "7_B", [f"{asked}Solve {{question}} {{{{here}}}}"]),
        row("mt", "reasoning", MT101, "mtbench_101_1", [MARKER], sub_category="general"),
        row("opus", "multilingual", f"{HUB}/Helsinki-NLP/opus-100/tree/{SHA}", "opus100_de-en_1",
            [f"{asked}Translate {{question[de]}}"], sub_category="de-en"),
        row("opus2", "multilingual", f"{HUB}/Helsinki-NLP/opus-100/tree/{SHA}", "opus100_de-en_0",
            [f"{asked}Translate {{question}}"], sub_category="de-en"),
        row("rag", "rag", f"{HUB}/nvidia/ChatRAG-Bench/tree/{SHA}/data", "chatrag_bench_2", [MARKER]),
        row("mmlu", "reasoning", f"{HUB}/TIGER-Lab/MMLU-Pro/blob/{SHA}/data/test-00000-of-00001.parquet",
            "mmlu_pro_(1, 'law')", [MARKER, MARKER], sub_category="law"),
        row("role", "roleplay", f"{HUB}/ZenMoore/RoleBench/tree/{SHA}/rolebench-eng", role,
            [f"{asked}You are {{role_name}}. {{role_description_and_catchphrases}}", MARKER]),
        row("coser", "roleplay", f"{HUB}/Neph0s/CoSER/tree/{SHA}", "coser_1", [MARKER]),
        row("hle2", "stem", f"{HUB}/cais/hle/tree/{SHA}", "h3", [MARKER], sub_category="Physics", difficulty="hard"),
    ]  # fmt: skip


def throughput() -> list[dict[str, Any]]:
    """Nine rows of the 1k bucket in three tiers; which HLE questions may be asked is drawn, see `asked_of_hle`."""
    hle = [row(f"hle{n}", "mixed", f"{HUB}/cais/hle/tree/{SHA}", f"h{n}", [MARKER]) for n in ASKED_OF_HLE[:3]]
    return [
        row("shipped", "low_entropy", f"{HUB}/tianyang/repobench/tree/{SHA}", "r", ["Complete this code."]),
        row("sort0", "low_entropy", SORT, "textsort_0", [MARKER]),
        row("sort1", "low_entropy", SORT, "textsort_1", [MARKER]),
        row("select0", "mixed", SELECT, "s0", [MARKER]),
        row("select1", "mixed", SELECT, "s1", [MARKER]),
        *hle,
        row("bamboo", "high_entropy", BAMBOO, "bamboo_showspred_1_bamboo_showspred_0", [MARKER]),
    ]


HLE = [
    {
        "id": f"h{n}",
        "question": " ".join(f"q{n}w{word}" for word in range(8 + n)),
        "rationale": " ".join(f"because{n}w{word}" for word in range(20 + 3 * n)),
        "category": "Math" if n % 2 else "Physics",
        "image": "data:image/png" if n == 5 else "",
        "answer": "42",
    }
    for n in range(24)
]


def _asked_of_hle() -> list[int]:
    import numpy as np

    return [int(each) for each in np.random.default_rng(42).permutation(len(HLE))[: len(HLE) // 2]]


ASKED_OF_HLE = _asked_of_hle()
"""The half of the rows that is asked in the buckets; the other half gives the examples."""


def _long(name: str, words: int) -> str:
    return " ".join(f"{name}{word}" for word in range(words))


def fill(stub: StubHub) -> StubHub:
    """Everything that the rows above point to."""
    stub.hub[speed_bench.REPO] = {
        "README.md": b"---\nlicense: other\n---\n",
        "qualitative/test-00000-of-00001.parquet": parquet(qualitative()),
        "throughput_1k/test-00000-of-00001.parquet": parquet(throughput()),
    }
    stub.hub["cais/hle"] = {"data/test-00000-of-00001.parquet": parquet(HLE)}
    stub.hub["abisee/cnn_dailymail"] = {
        "1.0.0/test-00000-of-00001.parquet": parquet([{"id": "n2", "article": "the wrong config"}]),
        "3.0.0/test-00000-of-00001.parquet": parquet([{"id": f"n{n}", "article": f"News {n}."} for n in range(4)]),
        "3.0.0/train-00000-of-00001.parquet": parquet([{"id": "n2", "article": "the wrong split"}]),
    }
    stub.hub["livecodebench/code_generation_lite"] = {
        "test.jsonl": lines([{"question_id": "abc_a", "question_content": "A", "starter_code": ""}]),
        "test2.jsonl": lines([{"question_id": "abc_d", "question_content": "D {x}", "starter_code": "def f"}]),
        "test3.jsonl": lines([{"question_id": "abc_e", "question_content": "E", "starter_code": ""}]),
    }
    stub.hub["deepmind/code_contests"] = {
        "data/test-00000-of-00001.parquet": parquet([{"name": "7_B", "description": "a contest"}]),
    }
    stub.hub["Helsinki-NLP/opus-100"] = {
        "de-en/test-00000-of-00001.parquet": parquet(
            [{"translation": {"de": f"Wort {n}", "en": f"word {n}"}} for n in range(3)]
        ),
    }
    chats = [
        {"ctxs": [{"text": f"c{n}a"}, {"text": f"c{n}b"}], "messages": [
            {"role": "user", "content": f"first {n}?"}, {"role": "assistant", "content": "yes"},
            {"role": "user", "content": f"second {n}?"}]}
        for n in range(3)
    ]  # fmt: skip
    stub.hub["nvidia/ChatRAG-Bench"] = {
        "data/hybridial/test.json": json.dumps(chats[:2]).encode(),
        "data/sqa/test.json": json.dumps(chats[2:], indent=1).encode(),
        "data/doc2dial/test.json": b"[]",
    }
    stub.hub["TIGER-Lab/MMLU-Pro"] = {
        "data/test-00000-of-00001.parquet": parquet(
            [{"question": f"Q{n}?", "options": ["yes", "no"], "category": "law"} for n in range(4)]
        ),
    }
    stub.hub["ZenMoore/RoleBench"] = {
        "profiles-eng/desc.json": json.dumps({"Ada": "A mathematician. {braces}", "Bo": "A cook."}, indent=2).encode(),
        "rolebench-eng/instruction-generalization/role_specific/test.jsonl": lines(
            [{"role": "Ada" if n % 2 else "Bo", "question": f"Ada, what of {n}?"} for n in range(12)]
        ),
    }
    scenes = [
        {"book": f"Book {n}", "scenario": "A room.", "major_characters": ["Zoe", "Al"],
         "character_profiles": {"Zoe": "tall", "Mia": "old", "Al": "young"},
         "key_characters": [{"name": "Zoe", "motivation": "to leave"}, {"name": "Al", "motivation": "to stay"}]}
        for n in range(2)
    ]  # fmt: skip
    stub.hub["Neph0s/CoSER"] = {"test/test_set.json": json.dumps(scenes).encode()}
    stub.github[f"mtbench101/mt-bench-101/{SHA}/data/subjective/mtbench101.jsonl"] = lines(
        [{"task": "t", "history": [{"user": f"u{n}", "bot": "b"}, {"user": f"v{n}", "bot": "b"}]} for n in range(3)]
    )
    stub.github[f"RUCAIBox/BAMBOO/{SHA}/datasets/showspred_4k.jsonl"] = lines(
        [{"content": _long(f"d{n}x", 60)} for n in range(2)]
    )
    answered = [
        {"question_id": f"s{n}", "question": f"Asked {n}", "answer": "A3",
         "all_answers": [_long(f"n{n}a{a}x", 34) for a in range(5)]}
        for n in range(2)
    ]  # fmt: skip
    stub.plain["/utils/AdaLEval/stackselect_1k.json"] = json.dumps(answered).encode()
    stub.plain["/utils/AdaLEval/textsort_1k.json"] = json.dumps(
        [{"prompt": SORT_INSTRUCTION + "Before: " + _long(f"t{n}x", 150 + 150 * n)} for n in range(2)]
    ).encode()
    stub.github[f"{wording.REPO}/{wording.COMMIT}/{wording.FILE}"] = WORDING.encode()
    stub.licences.update({speed_bench.REPO: "other", "cais/hle": "mit"})
    return stub


QUALITATIVE = {
    "shipped1": ["Write a Go function.\n"],
    "hle1": [HLE[1]["question"]],
    "cnn": ["Sum up: News 2."],
    "lcb": ["Solve D {x} from def f"],
    "cc": ["Solve a contest {here}"],
    "mt": ["u1", "v1"],
    "opus": ["Translate Wort 1"],
    "opus2": ["Translate {'de': 'Wort 0', 'en': 'word 0'}"],
    "rag": ["Answer from this.\nc2a\n\nc2b\nAsked: first 2?", "second 2?"],
    "mmlu": [
        "Questions on law.\n\nQuestion: Q1?\n\nOptions: (A) yes\n(B) no\n\n",
        "Question: Q2?\n\nOptions: (A) yes\n(B) no\n\n",
    ],
    "role": ["You are Ada. A mathematician. {braces}\nAda, what of 1?", "what of 3?"],
    "coser": ["Be Al of Book 1: young\nA room. | Zoe: tall\n\nMia: old | to stay"],
    "hle2": [HLE[3]["question"]],
}
"""What the qualitative rows become, by the beginning of their ids."""
