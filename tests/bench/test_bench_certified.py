"""The measurement of certified decoding: its jobs, its models without weights, and what makes it red."""

from dataclasses import replace

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from stcon.bench.certified import extractions, failures, fakes, fewer, form, measure
from stcon.bench.near_ties import Divergence
from stcon.vocab.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def vocabulary():
    """Bytes, and what forms are made of."""
    longer = [b'{"', b'":', b'","', b',"', b"field", b"true", b"false", b"medium", b"low", b"high", b"ab", b"12"]
    return Vocabulary.from_bytes([None, *(bytes([byte]) for byte in range(256)), *longer], end_ids=(0,))


def test_jobs_are_eighteen_and_a_form():
    """Three records of six extractions, with prompts of their own; the form's schema is one."""
    jobs = extractions()
    assert len(jobs) == 18
    assert len({job.prompt for job in jobs}) == 18
    job = form(5)
    Draft202012Validator.check_schema(job.schema)
    assert "field_5 is " in job.prompt


def test_measure_fakes_are_identical_and_independent_fields_take_fewer_passes(vocabulary):
    """The outputs are the same; where fields depend on nothing else there are a quarter of the passes."""
    own, whole = (measure(fake, [form()], max_tokens=2000, is_exact=True)[0] for fake in fakes(vocabulary))
    assert not failures([own, whole])
    assert fewer([own]) >= 4
    assert fewer([whole]) >= 1
    assert whole.num_rounds <= 24


def test_failures_names_outputs_that_part(vocabulary):
    """An exact model's must not part; a real one's may where two tokens are nearly as likely."""
    run = measure(fakes(vocabulary)[0], [form(3)], max_tokens=200, is_exact=True)[0]
    parted = replace(run, parted=Divergence(3, 1, 2, 0.01))
    assert len(failures([parted])) == 1
    assert not failures([replace(parted, is_exact=False)])
    assert len(failures([replace(parted, is_exact=False, parted=Divergence(3, 1, 2, 1.0))])) == 1


def test_command_prints_the_table_and_writes_the_result(vocabulary, monkeypatch, tmp_path):
    """The command on a model without weights: a line an output, the sum over the extractions' passes, a file."""
    from stcon.bench import certified as measured
    from stcon.commands import generate
    from stcon.commands.bench import bench

    monkeypatch.setattr(generate, "load", lambda *_: fakes(vocabulary)[0])
    monkeypatch.setattr(measured, "extractions", lambda: [form(2), form(3)])
    result = CliRunner().invoke(
        bench, ["certified", "--json", str(tmp_path / "r.json")], standalone_mode=False, catch_exceptions=False
    )
    assert result.return_value == 0
    assert "form 48" in result.output
    assert '"sequential_passes"' in (tmp_path / "r.json").read_text()


def test_generate_command_shows_rounds(vocabulary, monkeypatch, tmp_path):
    """`--parallel --show-tokens` says on stderr what was drafted and repaired; the answer is the sequential one."""
    import json

    from stcon.commands import generate

    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(form(9).schema))
    monkeypatch.setattr(generate, "load", lambda *_: fakes(vocabulary)[0])
    arguments = ["--schema", str(schema), "--prompt", "a", "--show-tokens"]
    outputs = [
        CliRunner().invoke(generate.generate, [*arguments, *more], standalone_mode=False, catch_exceptions=False)
        for more in ([], ["--parallel"])
    ]
    assert outputs[0].stdout == outputs[1].stdout
    assert "round 1, after" in outputs[1].stderr
