"""The words around other people's texts in a SPEED-Bench prompt, read from the file that NVIDIA publishes them in.

They are its authors' and part of its prompts, so they are fetched as the prompts are, at a pinned commit, and not kept
here. The file is Python; it is parsed and never run.
"""

# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from speedbench.errors import UserError
from speedbench.prepare.origins import Origins

REPO = "NVIDIA/Model-Optimizer"
COMMIT = "33bfa8b1fe47d1a86a1a421e24d84a6acd53aad2"
FILE = "examples/specdec_bench/specdec_bench/datasets/speed.py"
SHA256 = "c0b24776b7ceb7f5eba74b945a132c2a2c860121d08599ac791d0715b513602a"
LICENCE = "Apache-2.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Texts with {names} in braces, as `str.format` fills them, but for those without any."""

    dialogue: str
    """{content}: finish dialogues."""
    select: str
    """Before the question whose best answer is to be found."""
    question: str
    answers: str
    """The lines before the question, and before its answers."""
    choose: str
    """After the answers."""
    sort_as_published: str
    sort: str
    """The instruction of a sorting task as its source has it, and as it is put instead."""
    context: str
    """{context}, {question}."""
    character: str
    """{character}, {book_name} and more: play somebody."""
    exam: str
    """{subject}."""
    examples: str
    """{category}: before questions with their answers."""


def fetch(origins: Origins) -> Wording:
    """The wording at the pinned commit."""
    return read(origins.github(REPO, COMMIT, FILE, SHA256))


def read(path: Path) -> Wording:
    """The texts that each prompt-making function assigns, by the function's name and the variable's."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

    def texts(function: str, variable: str) -> list[str]:
        if function not in functions:
            raise UserError(f"{path.name} has no function '{function}': it is not the file that this speedbench knows")
        return [text for text in _assigned(functions[function], variable) if text]

    select = texts("_generate_stackselect_prompt", "prompt")
    return Wording(
        dialogue=texts("_generate_writing_prompt", "prompt")[0],
        select=select[0],
        question=select[1],
        answers=select[3],  # select[2] is the question itself
        choose="".join(texts("_generate_stackselect_prompt", "end_prompt")),
        sort_as_published=texts("_generate_textsort_prompt", "original_instruction")[0],
        sort=texts("_generate_textsort_prompt", "new_instruction")[0],
        context=texts("_generate_chatrag_bench_prompt", "prompt")[0],
        character=texts("_generate_coser_prompt", "prompt")[0],
        exam=texts("_generate_mmlu_pro_prompt", "prompt")[0],
        examples=texts("_generate_hle_prompt", "prompt")[0],
    )


def _assigned(function: ast.FunctionDef, variable: str) -> list[str]:
    """Every constant text that a function sets a variable to, or adds to it, in the order of the lines."""
    found = []
    for node in ast.walk(function):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == variable for target in targets):
            assert isinstance(node, (ast.Assign, ast.AugAssign))
            found.append((node.lineno, _text(node.value)))
    return [text for _, text in sorted(found)]


def _text(node: ast.expr) -> str:
    """A constant, or constants with names between them; empty where anything else is in it, or no constant at all."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = _terms(node)
    elif isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
    else:
        return ""
    texts = [_piece(part) for part in parts]
    return "" if None in texts else "".join(text for text in texts if text is not None)


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _piece(node: ast.expr) -> str | None:
    """A constant as a template has it, or what stands there as a name: `example["category"]` is {category}."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace("{", "{{").replace("}", "}}")
    if isinstance(node, ast.Name):
        return "{" + node.id + "}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return "{" + str(node.slice.value) + "}"
    return None
