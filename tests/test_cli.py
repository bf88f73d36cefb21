"""The command line, with a model without weights: what goes where, exit codes, one-line errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import stcon
from stcon.cli import cli
from stcon.models.fake import FakeModel, prefer
from stcon.vocab.vocabulary import Vocabulary

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age", "ok"],
    "additionalProperties": False,
}

Run = Callable[..., Result]


def make_vocabulary() -> Vocabulary:
    """All bytes, some words, one end token."""
    tokens: list[bytes | None] = [bytes([value]) for value in range(256)]
    tokens += [b'{"', b'":', b'":"', b'","', b"name", b"age", b"true", b"false", b"Maria", None]
    return Vocabulary.from_bytes(tokens, end_ids=(len(tokens) - 1,))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> FakeModel:
    """The model that the commands load; it likes letters, so that strings are readable."""
    vocabulary = make_vocabulary()
    fake = FakeModel(vocabulary, seed=3, bias=prefer(vocabulary, bytes.isalnum), context_length=400)
    monkeypatch.setattr(stcon, "load_model", lambda name, **options: fake, raising=False)
    return fake


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return str(path)


@pytest.fixture
def run() -> Run:
    """Run the command line in this process."""

    def invoke(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(cli, list(arguments), input=stdin, prog_name="stcon")

    return invoke


def assert_refused(result: Result, *parts: str) -> None:
    """Exit code 2, nothing on stdout, one line on stderr that holds `parts`."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("stcon: ")
    for part in parts:
        assert part in lines[0]


# ----------------------------------------------------------------------------------------------------- generate


@pytest.mark.usefixtures("model")
def test_generate_schema_writes_the_json_alone(run: Run, schema_file: str) -> None:
    """stdout is one line, the JSON, which satisfies the schema; stderr is empty; exit code 0."""
    result = run("generate", "--schema", schema_file, "--prompt", "Who?")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 1
    value = json.loads(result.stdout)
    assert list(value) == ["name", "age", "ok"]
    assert len(value["name"]) <= 8
    assert 0 <= value["age"] <= 99
    assert isinstance(value["ok"], bool)
    assert result.stderr == ""


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("mode", ["mask", "any", "canonical"])
def test_generate_every_mode_is_valid(run: Run, schema_file: str, mode: str) -> None:
    """Each mode gives a valid answer."""
    result = run("generate", "--schema", schema_file, "--prompt", "Who?", "--mode", mode)
    assert result.exit_code == 0, result.output
    assert stcon.compile(SCHEMA).accepts(result.stdout.rstrip("\n"))


@pytest.mark.usefixtures("model")
def test_generate_regex(run: Run) -> None:
    """A regular expression constrains the whole output."""
    result = run("generate", "--regex", "(yes|no)!", "--prompt", "Well?")
    assert result.exit_code == 0
    assert result.stdout in ("yes!\n", "no!\n")


def test_generate_prompt_from_stdin_and_file_are_the_prompt(
    run: Run, model: FakeModel, schema_file: str, tmp_path: Path
) -> None:
    """--prompt TEXT, --prompt - and --prompt-file give the same answer for the same text."""
    path = tmp_path / "prompt.txt"
    path.write_text("Who is it?")
    answers = [
        run("generate", "--schema", schema_file, "--prompt", "Who is it?"),
        run("generate", "--schema", schema_file, "--prompt", "-", stdin="Who is it?"),
        run("generate", "--schema", schema_file, "--prompt-file", str(path)),
        run("generate", "--schema", "-", "--prompt", "Who is it?", stdin=json.dumps(SCHEMA)),
    ]
    assert {answer.exit_code for answer in answers} == {0}
    assert len({answer.stdout for answer in answers}) == 1
    starts = {tokens[: len("Who is it?")] for tokens in model.passes if len(tokens) > 10}
    assert tuple(b"Who is it?") in starts


@pytest.mark.usefixtures("model")
def test_generate_seed_repeats(run: Run, schema_file: str) -> None:
    """The same seed gives the same sample; some other seed another."""

    def sample(seed: int) -> str:
        options = ("--temperature", "1.5", "--seed", str(seed), "--max-tokens", "300")
        return run("generate", "--schema", schema_file, "--prompt", "Who?", *options).stdout

    assert sample(1) == sample(1)
    assert len({sample(seed) for seed in range(4)}) > 1


@pytest.mark.usefixtures("model")
def test_generate_cut_off_is_exit_code_1(run: Run, schema_file: str) -> None:
    """With --no-budget an answer that --max-tokens cuts is written, said to be incomplete, and exits with 1."""
    result = run("generate", "--schema", schema_file, "--prompt", "Who?", "--max-tokens", "3", "--no-budget")
    assert result.exit_code == 1
    assert result.stdout.startswith('{"')
    assert "not complete" in result.stderr
    assert "--max-tokens" in result.stderr


@pytest.mark.usefixtures("model")
def test_generate_show_tokens_spells_the_answer(run: Run, schema_file: str) -> None:
    """--show-tokens writes every token to stderr, forced ones in ‹ ›, and leaves stdout alone."""
    result = run("generate", "--schema", schema_file, "--prompt", "Who?", "--show-tokens")
    shown, counts = result.stderr.splitlines()
    assert shown.replace("|", "").replace("‹", "").replace("›", "").replace("«", "").replace("»", "") == (
        result.stdout.rstrip("\n")
    )
    assert "‹" in shown
    assert "forced" in counts
    assert "passes" in counts


@pytest.mark.usefixtures("model")
def test_generate_json_file_holds_the_counts(run: Run, schema_file: str, tmp_path: Path) -> None:
    """--json writes text, value, counts and tokens; the counts add up."""
    path = tmp_path / "out.json"
    result = run("generate", "--schema", schema_file, "--prompt", "Who?", "--json", str(path))
    data = json.loads(path.read_text())
    assert data["text"] == result.stdout.rstrip("\n")
    assert data["value"] == json.loads(result.stdout)
    assert data["sampled"] + data["forced"] == len(data["tokens"])
    assert data["sampled"] == data["passes"]
    assert "".join(token["text"] for token in data["tokens"]) == data["text"]
    assert data["python"]


def test_generate_decoding_error_is_exit_code_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the vocabulary cannot spell the constraint, one line says so and the exit code is 1."""
    letters = Vocabulary.from_bytes([b"a", b"b", None], end_ids=(2,))
    monkeypatch.setattr(stcon, "load_model", lambda name, **options: FakeModel(letters), raising=False)
    result = run("generate", "--regex", "a(x|y)b", "--prompt", "ab")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


# ----------------------------------------------------------------------------------------------------- bad input


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("command", ["generate", "explain"])
@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b'{"type": "object",\n "x": }', ["line 2, column 7"]),
        (b"", ["line 1, column 1"]),
        (b"\xff\xfe", ["UTF-8"]),
        (b"[1, 2]", ["#"]),
        (b'{"type": "strin"}', ["/type"]),
        (b'{"properties": {"a": {"minLength": -1}}}', ["/properties/a"]),
        (b'{"$ref": "#/$defs/none"}', ["$defs/none"]),
        (b"false", []),
        (b'{"type": "integer", "minimum": 3, "maximum": 2}', []),
        (b'{"type": "string", "pattern": "(a"}', ["/pattern"]),
    ],
)
def test_bad_schema_is_one_line_and_exit_code_2(
    run: Run, tmp_path: Path, command: str, content: bytes, parts: list[str]
) -> None:
    """Not JSON, not a schema, unsatisfiable, a bad pattern in it: refused with the place, without a traceback."""
    path = tmp_path / "schema.json"
    path.write_bytes(content)
    prompt = ["--prompt", "x"] if command == "generate" else []
    assert_refused(run(command, "--schema", str(path), *prompt), *parts)


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--regex", "a(b", "--prompt", "x"], ["position"]),
        (["--regex", "[z-a]", "--prompt", "x"], []),
        (["--regex", r"(a)\1", "--prompt", "x"], []),
        (["--regex", "a(?!)", "--prompt", "x"], []),
        (["--schema", "no/such/file.json", "--prompt", "x"], ["no/such/file.json", "no such file"]),
        (["--schema", ".", "--prompt", "x"], ["directory"]),
        (["--prompt-file", "no/such/file.txt"], ["no/such/file.txt", "no such file"]),
        (["--prompt", "  "], ["empty"]),
        ([], ["--prompt"]),
        (["--prompt", "a", "--prompt-file", "b"], ["--prompt"]),
        (["--schema", "a", "--regex", "b", "--prompt", "x"], ["not both"]),
        (["--prompt", "x", "--mode", "mask"], ["--schema, --regex or --grammar"]),
        (["--prompt", "x", "--mode", "fast"], ["canonical"]),
        (["--prompt", "x", "--max-tokens", "0"], ["--max-tokens"]),
        (["--prompt", "x", "--temperature", "-1"], ["temperature"]),
        (["--prompt", "x", "--top-p", "0"], ["top_p"]),
        (["--prompt", "x", "--nonsense"], ["--nonsense"]),
    ],
)
def test_generate_bad_input_is_one_line_and_exit_code_2(run: Run, arguments: list[str], parts: list[str]) -> None:
    """Each kind of bad input ends in one line that names it, and exit code 2."""
    assert_refused(run("generate", *arguments), *parts)


@pytest.mark.usefixtures("model")
def test_generate_prompt_and_schema_cannot_both_be_stdin(run: Run) -> None:
    """Standard input is one thing."""
    assert_refused(run("generate", "--schema", "-", "--prompt", "-", stdin="{}"), "standard input")


@pytest.mark.usefixtures("model")
def test_generate_prompt_longer_than_the_context(run: Run, schema_file: str) -> None:
    """A prompt that does not fit is refused with both lengths."""
    assert_refused(run("generate", "--schema", schema_file, "--prompt", "x" * 500), "500", "context")


def test_generate_missing_model(run: Run, schema_file: str) -> None:
    """A model that is not there is named, with what to do."""
    pytest.importorskip("torch")
    result = run("generate", "--schema", schema_file, "--prompt", "x", "--model", "./no/such/model")
    assert_refused(result, "no/such/model")


def test_unknown_command_is_exit_code_2(run: Run) -> None:
    """A command that does not exist is one line."""
    assert_refused(run("nonsense"), "nonsense")


def test_interrupt_is_exit_code_130(run: Run, schema_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with 130 and without a traceback."""

    def interrupt(name: str, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stcon, "load_model", interrupt, raising=False)
    result = run("generate", "--schema", schema_file, "--prompt", "x")
    assert result.exit_code == 130
    assert "Traceback" not in result.output


# ----------------------------------------------------------------------------------------------------- explain


def test_explain_table_fits_80_columns(run: Run, schema_file: str) -> None:
    """The table names every size, and no line is longer than 80 characters."""
    result = run("explain", "--schema", schema_file)
    assert result.exit_code == 0, result.output
    for name in ("states", "byte classes", "return symbols", "actions", "machine", "token table", "shortest text"):
        assert name in result.stdout
    assert ',"age":' in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_explain_json_agrees_with_the_machine(run: Run, schema_file: str, tmp_path: Path) -> None:
    """--json holds the machine's own sizes, 3·Q·V, and a shortest text that the grammar accepts."""
    path = tmp_path / "out.json"
    run("explain", "--schema", schema_file, "--json", str(path))
    facts = json.loads(path.read_text())
    grammar = stcon.compile(SCHEMA).build()
    assert facts["complete"]
    assert facts["states"] == grammar.num_states
    assert facts["machine_nbytes"] == grammar.nbytes
    assert facts["token_table_nbytes"] == 3 * facts["states"] * facts["vocabulary_size"]
    assert grammar.accepts(facts["shortest"])
    assert ',"age":' in facts["forced_chains"]


def test_explain_says_when_a_history_is_kept(run: Run, tmp_path: Path) -> None:
    """An array of distinct items needs memory beside the machine, and the table says so; a plain one does not."""
    for unique in (True, False):
        path = tmp_path / "schema.json"
        path.write_text(json.dumps({"type": "array", "items": {"type": "integer"}, "uniqueItems": unique}))
        result = run("explain", "--schema", str(path))
        assert result.exit_code == 0, result.output
        assert ("history" in result.stdout) is unique


def test_explain_past_the_state_budget_describes_what_is_built(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine too large to build whole is described as far as it is built, and said to be incomplete."""

    def refuse(machine: object) -> None:
        raise stcon.TooLarge("states", given=200_001, limit=200_000)

    monkeypatch.setattr("stcon.grammar.analysis.sizes", refuse)
    result = run("explain", "--regex", "ab")
    assert result.exit_code == 0, result.output
    assert "so far" in result.stdout
    assert "shortest" not in result.stdout


def test_explain_dot_is_written(run: Run, tmp_path: Path) -> None:
    """--dot writes a Graphviz graph and says where."""
    path = tmp_path / "machine.dot"
    result = run("explain", "--regex", "ab?c", "--dot", str(path))
    assert result.exit_code == 0, result.output
    assert path.read_text().startswith("digraph")
    assert str(path) in result.stderr


def test_explain_vocabulary_of_a_tokenizer_file(run: Run, tmp_path: Path) -> None:
    """--vocabulary takes a tokenizer.json, and compares with its size."""
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(sorted(alphabet))}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    out = tmp_path / "out.json"
    result = run("explain", "--regex", "ab", "--vocabulary", str(tmp_path), "--json", str(out))
    assert result.exit_code == 0, result.output
    facts = json.loads(out.read_text())
    assert facts["vocabulary_size"] == 257
    assert facts["packed_vocabulary_nbytes"] > 0


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff"])
def test_explain_bad_vocabulary(run: Run, tmp_path: Path, content: bytes | None) -> None:
    """A vocabulary that is missing or not one is refused in one line."""
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    assert_refused(run("explain", "--regex", "ab", "--vocabulary", str(path)), "tokenizer.json")


def test_explain_needs_a_constraint(run: Run) -> None:
    """Without a schema or a pattern there is nothing to explain."""
    assert_refused(run("explain"), "--schema")


# ----------------------------------------------------------------------------------------------------- the script


def test_version_and_help(run: Run) -> None:
    """--version prints name and version; --help of every command works."""
    assert run("--version").stdout == f"stcon {stcon.__version__}\n"
    for command in ([], ["generate"], ["explain"], ["pull"], ["bench"], ["bench", "extract"]):
        result = run(*command, "--help")
        assert result.exit_code == 0
        assert result.stdout.startswith("Usage: stcon")


def test_script_reports_in_one_line_without_a_traceback(tmp_path: Path) -> None:
    """As a process: exit code 2, an empty stdout, one line on stderr."""
    program = "import sys; from stcon.cli import main; sys.argv = ['stcon', 'explain', '--regex', '(a']; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="pipes as in a POSIX shell")
def test_script_survives_a_reader_that_leaves(tmp_path: Path) -> None:
    """A closed pipe ends the command without a traceback."""
    program = "import sys; from stcon.cli import main; sys.argv = ['stcon', 'explain', '--regex', 'a{1,50}']; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert b"Traceback" not in errors


def test_a_notice_of_slow_work_is_given_once() -> None:
    """What listens for compiling is called before the first function is compiled, and not again."""
    from stcon import _notices

    heard: list[str] = []
    _notices.compiling.append(lambda: heard.append("compiling"))
    _notices.tell_compiling()
    _notices.tell_compiling()
    assert heard == ["compiling"]
    assert not _notices.compiling


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_complete(shell: str) -> None:
    """The script names the program, and what it calls gives commands and options."""
    script = CliRunner().invoke(cli, ["completion", shell])
    assert script.exit_code == 0
    assert "_STCON_COMPLETE" in script.stdout
    words = {"COMP_WORDS": "stcon expl", "COMP_CWORD": "1" if shell != "fish" else "expl"}
    done = subprocess.run(
        [sys.executable, "-c", "from stcon.cli import cli; cli.main(prog_name='stcon')"],
        env={**os.environ, "_STCON_COMPLETE": f"{shell}_complete", **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "explain" in done.stdout
