"""Decoding on CUDA from a model's directory to its tokens: the same as on the CPU, for every runner and option.

    python benchmarks/gpu_end_to_end.py --json docs/measurements/gpu-end-to-end-<card>.json

Small random models are saved as a user would have them and loaded by `stcon.load_model` twice, in float32: on the CPU,
where the plain loop decodes, and on the GPU, where graphs and kernels do. Tokens must be equal; where a greedy output
parts at a near-tie (`stcon.bench.near_ties`), it is listed, and anything else is red. Then ``stcon generate`` runs as a
command on each. The table comes last. Needs the extra ``cuda``, a torch with CUDA, transformers and tokenizers.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from models_shapes import SMALL
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import stcon
from stcon.bench.near_ties import divergence
from stcon.engine.device_loop import engine_for

LARGEST_TIE = 1e-3
COMMAND = "from stcon.cli import main; main()"  # what the script `stcon` does
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LINES = (
    '{"name":"Anna Bell","age":34,"status":"approved","tags":["a","bc"],"children":[]}',
    "the man of the moon is here, and café or über 日本",
    "Hello world 123 approved pending rejected",
)
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<|im_start|>"
# transformers' family and the runner asked for; what the lean runner does not know goes to the generic one by itself
MODELS = {
    "llama, lean": ("llama", "lean"),
    "qwen3_5_text, lean": ("qwen3_5_text", "lean"),
    "llama, transformers": ("llama", "transformers"),
    "qwen3_5_text, transformers": ("qwen3_5_text", "transformers"),
    "gemma3_text": ("gemma3_text", "auto"),
    "gpt_neox": ("gpt_neox", "auto"),
}
EXTRA: dict[str, dict[str, Any]] = {
    "gemma3_text": {**SMALL["qwen3"], "sliding_window": 1024},
    "gpt_neox": {key: value for key, value in SMALL["qwen3"].items() if key not in ("num_key_value_heads", "head_dim")},
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "status": {"enum": ["approved", "pending", "rejected"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
    },
    "required": ["name", "age", "status", "tags"],
}
TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name", "children"],
}
UNIQUE = {"type": "array", "items": {"enum": ["a", "b", "c", "approved"]}, "uniqueItems": True, "minItems": 2}
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature": {"temperature": 0.8, "seed": 1},
    "top-k": {"temperature": 1.0, "top_k": 20, "seed": 2},
    "top-p": {"temperature": 1.0, "top_p": 0.8, "seed": 3},
    "min-p": {"temperature": 1.0, "min_p": 0.05, "seed": 2**64 - 4},
    "all": {"temperature": 0.7, "top_k": 50, "top_p": 0.95, "min_p": 0.01, "seed": 5},
}
PROMPTS = ("Anna Bell is 34 and was approved. Anna Bell has the tags a and bc.", "the moon is here 123")


@dataclass
class Row:
    """What is said of one model."""

    model: str
    runner: str = ""
    compared: int = 0
    tokens: int = 0
    on_device: int = 0
    ties: list[str] = field(default_factory=list)
    red: list[str] = field(default_factory=list)
    command: str = ""
    seconds: float = 0.0


def main() -> int:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cuda", help="cpu: everything but the device, to try the script")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--json", type=Path, help="write the report here")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with tempfile.TemporaryDirectory() as folder:
        rows = [check(name, Path(folder) / str(number), options.device) for number, name in enumerate(options.models)]
    report = {"machine": machine(options.device), "command": " ".join(sys.argv), "models": [vars(row) for row in rows]}
    if options.json:
        options.json.write_text(json.dumps({**report, "table": table(rows)}, indent=1, ensure_ascii=False) + "\n")
    print("\n".join(table(rows)))
    return 1 if any(row.red for row in rows) else 0


def machine(device: str) -> dict[str, str]:
    """What it ran on."""
    card = torch.cuda.get_device_name() if device.startswith("cuda") else device
    found = {name: version(name) for name in ("torch", "transformers", "numpy")}
    return {"card": card, "python": platform.python_version(), **found}


# ------------------------------------------------------------------------------------------------- models


def save(family: str, folder: Path) -> None:
    """A random float32 network of `family` with a byte-level tokenizer, as a directory."""
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"special_tokens": list(SPECIAL), "initial_alphabet": alphabet, "show_progress": False}
    backend.train_from_iterator(LINES * 3, trainers.BpeTrainer(vocab_size=400, **options))
    words = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=SPECIAL[2], bos_token=SPECIAL[1], chat_template=TEMPLATE
    )
    changes = {"vocab_size": len(words) + 3, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**(EXTRA.get(family) or SMALL[family]), **changes})
    network = AutoModelForCausalLM.from_config(config).eval()
    words.save_pretrained(folder)
    network.save_pretrained(folder)


def cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, prompt and options of `Model.generate`."""
    grammars = {
        "person": stcon.compile(PERSON),
        "tree": stcon.compile(TREE),
        "unique": stcon.compile(UNIQUE),
        "regex": stcon.compile_regex(r"(Anna|Bell|the)( (Anna|Bell|moon|[0-9]{1,3})){2,9}\."),
    }
    for number, (name, sampling) in enumerate(SAMPLINGS.items()):
        yield f"free, {name}", PROMPTS[number % 2], {"max_tokens": 40, **sampling}
        for turn, (kind, grammar) in enumerate(grammars.items()):
            for mode in ("canonical", ("mask", "any")[(number + turn) % 2]):
                limit = (24, 80)[(number + turn + len(mode)) % 2]
                options = {"grammar": grammar, "mode": mode, "max_tokens": limit, **sampling}
                yield f"{kind}, {mode}, {limit}, {name}", PROMPTS[turn % 2], options


# ------------------------------------------------------------------------------------------------- checks


def check(name: str, folder: Path, device: str) -> Row:
    """One model, every case, and the command."""
    started = perf_counter()
    family, runner = MODELS[name]
    row = Row(name)
    try:
        save(family, folder)
    except (ValueError, KeyError) as error:
        row.red.append(f"this version of transformers cannot make it: {error}")
        return row
    options = {"dtype": "float32", "runner": runner}
    reference = stcon.load_model(folder, device="cpu", **options)
    model = stcon.load_model(folder, device=device, **options)
    row.runner = "none: the plain loop" if model.static is None else type(model.static).__name__
    engine = engine_for(model)
    if device.startswith("cuda") and engine is None:
        row.red.append("it has no device engine: the plain loop decodes")
    for case, prompt, given in cases():
        before = 0 if engine is None or engine._graphs is None else engine._graphs.launches
        expected, found = reference.generate(prompt, **given), model.generate(prompt, **given)
        if engine is not None and engine._graphs is not None:
            row.on_device += engine._graphs.launches != before
        compare(row, case, reference, list(reference.prompt_ids(prompt)), found, expected)
    command(row, folder, device)
    row.seconds = perf_counter() - started
    print(f"{name}: {row.compared} outputs, {len(row.red)} red, {row.seconds:.0f} s", flush=True)
    return row


def compare(row: Row, case: str, judge: Any, prompt: list[int], found: Any, expected: Any) -> None:
    """Tokens, kinds and how it ended."""
    row.compared += 1
    row.tokens += len(expected.tokens)
    ids, right = [token.id for token in found.tokens], [token.id for token in expected.tokens]
    kinds = [token.kind for token in found.tokens] == [token.kind for token in expected.tokens]
    if ids == right and kinds and found.finish_reason == expected.finish_reason:
        return
    parted = divergence(judge, prompt, ids, right) if case.endswith("greedy") else None
    if parted is not None and parted.gap is not None and abs(parted.gap) <= LARGEST_TIE:
        row.ties.append(f"{case}: gap {parted.gap:.2g}")
    else:
        row.red.append(f"{case}: {found.text!r} where the CPU has {expected.text!r}")


def command(row: Row, folder: Path, device: str) -> None:
    """``stcon generate`` in a process of its own, in the type that it chooses, beside the same call here."""
    schema = folder / "schema.json"
    schema.write_text(json.dumps(PERSON), "utf-8")
    model = stcon.load_model(folder, device=device)
    wanted = model.generate(PROMPTS[0], stcon.compile(PERSON), 80, temperature=0.8, top_p=0.9, seed=7)
    asked = ["--model", str(folder), "--device", device, "--prompt", PROMPTS[0], "--schema", str(schema)]
    drawn = ["--max-tokens", "80", "--temperature", "0.8", "--top-p", "0.9", "--seed", "7"]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "generate", *asked, *drawn], capture_output=True, encoding="utf-8", check=False
    )
    runs = MODELS[row.model][1] in ("auto", "lean") or row.model.startswith("qwen")
    same = done.returncode == 0 and done.stdout.strip() == wanted.text.strip()
    row.command = "same" if same else f"exit {done.returncode}"
    if not same and runs:
        row.red.append(f"command: {done.stdout!r} {done.stderr[-300:]!r} where the library gives {wanted.text!r}")


def table(rows: list[Row]) -> list[str]:
    """One line a model, then what parted."""
    head = f"{'model':<28}{'static form':<22}{'outputs':>8}{'tokens':>8}{'on GPU':>8}{'ties':>6}{'red':>5}  command"
    lines = [head]
    for row in rows:
        numbers = f"{row.compared:>8}{row.tokens:>8}{row.on_device:>8}{len(row.ties):>6}{len(row.red):>5}"
        lines.append(f"{row.model:<28}{row.runner:<22}{numbers}  {row.command}")
    for row in rows:
        lines += [f"tie, {row.model}: {line}" for line in row.ties[:5]]
        lines += [f"RED, {row.model}: {line[:300]}" for line in row.red[:5]]
    return lines


if __name__ == "__main__":
    sys.exit(main())
