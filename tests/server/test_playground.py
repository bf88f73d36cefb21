"""The playground's files: what is served, to whom, and what a browser is told it may do with it."""

import re
from html.parser import HTMLParser

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from test_server import running  # noqa: E402

from stcon.server.playground import STATIC  # noqa: E402

SCRIPTS = sorted(STATIC.glob("*.js"))


@pytest.fixture(scope="module")
def client():
    """A client of a server with an API key, without the key."""
    with running(api_key="sesame") as server, httpx.Client(base_url=server.url, timeout=60) as found:
        yield found


class Page(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))


@pytest.fixture(scope="module")
def page(client):
    return Page(client.get("/").text)


def test_page_is_open_and_the_interface_is_not(client):
    """With an API key set the page is there to ask for it; what it calls is not open."""
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/v1/models").status_code == 401
    assert client.post("/v1/grammar/check", json={}).status_code == 401


def test_every_file_is_served_strictly(client):
    """Each file comes with the policy: nothing from elsewhere, nothing inline, nothing framed, no sniffing."""
    for path in ["/", *(f"/playground/{path.name}" for path in STATIC.iterdir() if path.name != "index.html")]:
        answer = client.get(path)
        assert answer.status_code == 200, path
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_unchanged_files_are_not_sent_again(client):
    """A file's ETag, given back, answers 304 without a body."""
    tag = client.get("/playground/main.js").headers["etag"]
    again = client.get("/playground/main.js", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/playground/", "/playground/../app.py", "/playground/%2e%2e/app.py", "/playground/x"]
)
def test_nothing_else_is_served(client, path):
    """There is a route a file, so that no path leads out of the folder."""
    assert client.get(path).status_code == 404


def test_page_has_nothing_inline_and_loads_only_what_is_served(client, page):
    """No handlers, styles or scripts in the markup; every file that it names is one of the server's."""
    assert len(page.tags) > 50
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        assert tag != "style"
        assert tag != "script" or "src" in attributes
        for name in ("src", "href"):
            target = attributes.get(name, "#")
            assert target.startswith("#") or client.get(target).status_code == 200


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_never_make_markup_of_text(path):
    """Output reaches the page as text: no script parses markup or runs text; none names another host."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", text)
    assert set(re.findall(r"https?://[^\"'`\s]+", text)) <= {"http://www.w3.org/2000/svg"}
    for name in re.findall(r'^import .* from "(.+)";$', text, re.MULTILINE):
        assert (STATIC / name).is_file()


def test_every_control_has_a_name(page):
    """Each input, text area and region is labelled, each label names something that is there."""
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    labelled = {attributes["for"] for tag, attributes in page.tags if tag == "label" and "for" in attributes}
    assert labelled <= ids
    for tag, attributes in page.tags:
        if tag in {"input", "textarea"} and attributes.get("type") not in {"radio", "checkbox"}:
            assert attributes["id"] in labelled or "aria-label" in attributes
        for name in ("aria-labelledby", "aria-describedby", "aria-controls"):
            assert set(attributes.get(name, "").split()) <= ids
