"""`stcon opencode`: what it writes and what it leaves alone; one task by the OpenCode agent, where it is installed."""

import json
import os
import shutil
import stat
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from test_batch_files import TEMPLATE, make_model
from test_server import running

from stcon.cli import cli
from stcon.models.fake import FakeModel

OPENCODE = os.environ.get("OPENCODE") or shutil.which("opencode")


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


@pytest.fixture(autouse=True)
def _without_key(monkeypatch):
    monkeypatch.delenv("STCON_API_KEY", raising=False)


def opencode(*arguments):
    """The command's exit code and what it said."""
    done = CliRunner().invoke(cli, ["opencode", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_new_file_points_at_the_server(server, tmp_path):
    """The provider has the server's address and its context; every model that OpenCode uses is ours."""
    path = tmp_path / "opencode.json"
    assert opencode("--url", server.url + "/v1/", "-o", path)[0] == 0
    written = json.loads(path.read_text())
    provider = written["provider"]["stcon"]
    assert provider["options"] == {"baseURL": f"{server.url}/v1", "apiKey": "none"}
    assert provider["models"]["default"]["limit"] == {"context": 4096, "output": 1024}
    assert written["model"] == written["small_model"] == "stcon/default"
    assert opencode("--url", server.url, "-o", path)[0] == 0  # again: the same, so nothing is lost
    code, shown, _ = opencode("--url", server.url, "-o", "-")
    assert (code, json.loads(shown)) == (0, written)


@pytest.mark.parametrize("content", ['{"model": "mine/x"}', "// mine\n{}", "", '{"provider": {"stcon": {}}}'])
def test_a_file_that_exists_is_never_overwritten(server, tmp_path, content):
    """Without --merge it is refused and stays as it was, byte for byte."""
    path = tmp_path / "opencode.json"
    path.write_text(content)
    code, _, said = opencode("--url", server.url, "-o", path)
    assert code == 2
    assert "--merge" in said
    assert path.read_text() == content


def test_merge_adds_and_keeps(server, tmp_path):
    """Other providers, settings, a chosen model, the permissions and a link stay; our provider is added."""
    theirs = {"model": "mine/x", "theme": "dark", "provider": {"mine": {"models": {"x": {}}}, "stcon": {"name": "old"}}}
    path, link = tmp_path / "real.json", tmp_path / "opencode.json"
    path.write_text(json.dumps(theirs))
    path.chmod(0o600)
    link.symlink_to(path)
    assert opencode("--url", server.url, "-o", link, "--merge")[0] == 0
    merged = json.loads(path.read_text())
    assert (merged["model"], merged["theme"]) == ("mine/x", "dark")
    assert merged["provider"]["mine"] == theirs["provider"]["mine"]
    assert merged["provider"]["stcon"]["options"]["baseURL"] == f"{server.url}/v1"
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(one.name for one in tmp_path.iterdir()) == ["opencode.json", "real.json"]
    assert "unchanged" in opencode("--url", server.url, "-o", link, "--merge")[2]


@pytest.mark.parametrize("content", ["// mine\n{}", "[]", "", '{"provider": []}'])
def test_merge_leaves_alone_what_it_cannot_read(server, tmp_path, content):
    """Comments would be lost and other data is no configuration: refused, untouched."""
    path = tmp_path / "opencode.json"
    path.write_text(content)
    assert opencode("--url", server.url, "-o", path, "--merge")[0] == 2
    assert path.read_text() == content


def test_key_is_named_not_written(tmp_path, monkeypatch):
    """With a key the file names the variable; without it the refusal says which."""
    with running(api_key="sesame") as server:
        path = tmp_path / "opencode.json"
        code, _, said = opencode("--url", server.url, "-o", path)
        assert (code, path.exists()) == (2, False)
        assert "STCON_API_KEY" in said
        monkeypatch.setenv("STCON_API_KEY", "sesame")
        assert opencode("--url", server.url, "-o", path)[0] == 0
        assert json.loads(path.read_text())["provider"]["stcon"]["options"]["apiKey"] == "{env:STCON_API_KEY}"
        assert "sesame" not in path.read_text()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ftp://127.0.0.1", "127.0.0.1:8000", "http://a:b@127.0.0.1"])
def test_no_server_no_file(tmp_path, url):
    """Nothing is written for an address where no server answers."""
    path = tmp_path / "opencode.json"
    code, _, said = opencode("--url", url, "-o", path)
    assert (code, path.exists()) == (2, False)
    assert len(said.splitlines()) == 1


# ------------------------------------------------------------------------------------------------- the agent itself


def scripted_model(reply, answered):
    """A model that writes what `reply` says to a conversation, as far as its constraint lets it.

    `answered` gets each conversation with its answer.
    """
    plain = make_model()
    vocabulary = plain.vocabulary
    data = [vocabulary.token_bytes(token) or b"" for token in range(vocabulary.size)]
    mark, (end,) = b"[assistant]", vocabulary.end_ids
    replies = {}

    def bias(tokens):
        text = b"".join(data[token] for token in tokens)
        prompt, _, written = text.rpartition(mark)
        script = replies.setdefault(prompt, reply(prompt.decode("utf-8", "replace"))).encode()
        row = np.zeros(vocabulary.size, np.float32)
        left = script[len(written) :] if script.startswith(written) else b""
        row[end] = 0 if left else 1000
        if written and not left:
            answered.setdefault(prompt.decode("utf-8", "replace"), written.decode())
        for token, piece in enumerate(data):
            if piece and left.startswith(piece):
                row[token] = 100 * len(piece)
        return row

    return FakeModel(vocabulary, 1, bias=bias, chat_template=TEMPLATE, context_length=1 << 17)


@pytest.mark.skipif(not OPENCODE, reason="no opencode here: npm install -g opencode-ai, or OPENCODE=path of its binary")
def test_opencode_does_a_task(tmp_path):
    """Headless OpenCode, configured by the command, calls its write tool through the server, and reports."""
    (work := tmp_path / "work").mkdir()
    (home := tmp_path / "home").mkdir()
    target = work / "hello.txt"
    answered = {}

    def reply(prompt):
        if "<tools>" not in prompt:
            return "A greeting"  # the title of the session
        if "<tool_response>" in prompt:
            return "The file is there."
        call = {"name": "write", "arguments": {"content": "Hello, world!\n", "filePath": str(target)}}
        return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"

    with running(model=scripted_model(reply, answered)) as server:
        assert opencode("--url", server.url, "-o", work / "opencode.json")[0] == 0
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "NO_PROXY": "127.0.0.1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        }
        command = [OPENCODE, "run", "--model", "stcon/default", f"Write a greeting to {target}."]
        done = subprocess.run(
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert target.read_text() == "Hello, world!\n"
        assert "The file is there." in done.stdout
        first, second = [prompt for prompt in answered if "<tools>" in prompt]
        assert second.startswith(first.removesuffix("[assistant]"))
        assert "Wrote file successfully" in second.rpartition("<tool_response>")[2]
        assert server.idle()
