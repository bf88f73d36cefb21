"""The playground in a real Chromium, over a model without weights."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
webdriver = pytest.importorskip("selenium.webdriver", reason="the browser's tests need the package selenium")

from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from test_server import running  # noqa: E402

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium with its driver here: apt-get install chromium chromium-driver"
)

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
}


@pytest.fixture(scope="module")
def driver():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    found = webdriver.Chrome(options=options, service=Service(DRIVER))
    found.set_script_timeout(60)
    yield found
    found.quit()


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


@pytest.fixture
def slow(server):
    """Each of the model's answers takes a while, as those of models with weights do."""
    model = server.batch.model.model
    bias = model.bias

    def slowly(_):
        time.sleep(0.03)
        return bias

    model.bias = slowly
    yield
    model.bias = bias


class Play:
    """The page as a user has it."""

    def __init__(self, driver, server):
        self.driver = driver
        self.server = server
        driver.get(server.url)
        self.until(lambda: self.text("model-name") not in {"", "connecting …"})

    def at(self, name):
        return self.driver.find_element(By.ID, name)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, name):
        return self.at(name).text

    def content(self, name):
        """The text with its white space as it is."""
        return self.at(name).get_property("textContent")

    def until(self, condition, patience_s=60):
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline, "what was waited for did not happen"
            time.sleep(0.02)

    def fill(self, name, text):
        """Type `text` (by the clipboard's way: an input event, no key each)."""
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"
        self.driver.execute_script(script, self.at(name), str(text))

    def ask(self, format_, kind="schema", limit=120, free=True):
        """Fill in the form."""
        if kind != "schema":
            self.all(f"input[name=kind][value={kind}]")[0].click()
        self.fill("format", format_ if isinstance(format_, str) else json.dumps(format_, indent=2))
        self.fill("prompt", "Who?")
        self.fill("limit", limit)
        if self.at("compare").is_selected() != free:
            self.at("compare").click()

    def run(self):
        """Run, and wait for the verdicts."""
        self.at("run").click()
        self.until(lambda: self.at("result").get_attribute("data-state") == "done" and self.text("with-verdict"))

    def spans(self, side="with"):
        """(kind, text) of each token shown."""
        script = "return [...arguments[0].children].map((one) => [one.className, one.textContent])"
        return self.driver.execute_script(script, self.at(f"{side}-output"))

    def log(self):
        """What the console has, but for answers that are errors."""
        return [
            entry["message"] for entry in self.driver.get_log("browser") if "Failed to load" not in entry["message"]
        ]


@pytest.fixture
def play(driver, server):
    found = Play(driver, server)
    found.log()
    yield found
    assert found.log() == []  # no exception, nothing that the policy stopped


def test_tokens_come_coloured_and_counted(play):
    """The answer is shown token by token, of both kinds; the counts are those of what is shown, and it is complete."""
    play.ask(PERSON)
    play.run()
    spans = play.spans()
    assert set(json.loads("".join(text for _, text in spans))) == {"name", "ok"}
    kinds = [kind for kind, _ in spans]
    assert {"token sampled", "token forced"} == set(kinds)
    tokens = int(play.text("num-tokens"))
    assert 0 <= tokens - len(spans) <= 1  # the end is a token without a text
    assert int(play.text("num-runs")) < tokens
    assert play.text("saved-note") == f"{tokens - int(play.text('num-runs'))} of {tokens}"
    assert (play.text("need"), play.text("with-verdict")) == ("0", "keeps to the format")
    assert "Done" in play.text("status")
    forced = next(one for one in play.all("#with-output .forced"))
    sampled = next(one for one in play.all("#with-output .sampled"))
    assert forced.value_of_css_property("background-color") != sampled.value_of_css_property("background-color")


def test_need_is_live_and_never_more_than_is_left(play, slow):
    """The steps' counts are drawn, and from each of them the answer can be completed within the limit."""
    play.ask(PERSON, limit=30, free=False)
    script = """
      const seen = [], target = document.getElementById("need-note");
      new MutationObserver(() => seen.push([document.getElementById("need").textContent, target.textContent]))
        .observe(target, {childList: true, characterData: true, subtree: true});
      window.seen = seen;
    """
    play.driver.execute_script(script)
    play.run()
    seen = [(int(need), note) for need, note in play.driver.execute_script("return window.seen") if need.isdigit()]
    assert len(seen) > 2
    for need, note in seen:
        assert note == "it is complete" or need <= int(note.split("; ")[1].split()[0])
    assert play.all("#chart polyline.need")
    assert "0 more would do" in play.at("chart").get_attribute("aria-label")


def test_same_request_without_the_format_stands_beside(play):
    """It has no forced token, and what leaves the format is marked from there on."""
    play.ask(PERSON)
    play.run()
    play.until(lambda: play.text("free-verdict"))
    spans = play.spans("free")
    assert spans
    assert not any("forced" in kind for kind, _ in spans)
    assert "format" in play.text("free-verdict") or "leaves" in play.text("free-verdict")
    off = ["off" in kind for kind, _ in spans]
    assert off == sorted(off)
    assert any(off)


def test_machines_size_is_shown(play):
    """States, memory and the shortest text of the format, before anything runs."""
    play.ask(PERSON)
    play.until(lambda: play.at("check").get_attribute("data-state") == "good")
    assert "states" in play.text("check-text")
    assert "shortest text" in play.text("check-text")


def test_invalid_schema_is_shown_at_its_pointer(play):
    """The error names the pointer and the line, and the place is marked in the editor and selected on a click."""
    bad = {"type": "object", "properties": {"a/b": {"type": "string"}, "year": {"type": "integr"}}}
    play.ask(bad)
    play.until(lambda: play.at("check").get_attribute("data-state") == "bad")
    assert play.text("check-place") == "#/properties/year/type, line 8"
    assert play.content("format-marks").strip() == json.dumps(bad, indent=2)
    assert play.all("#format-marks mark")[0].get_property("textContent") == '"integr"'
    assert play.at("format").get_attribute("aria-invalid") == "true"
    play.at("check-place").click()
    selected = "return arguments[0].value.slice(arguments[0].selectionStart, arguments[0].selectionEnd)"
    assert play.driver.execute_script(selected, play.at("format")) == '"integr"'
    play.run()
    assert play.text("with-verdict") == "refused"
    assert play.text("problem")
    assert play.spans() == play.spans("free") == []


def test_text_that_is_no_json_is_shown_at_its_line(play):
    """What is no JSON never reaches the server; the line and column of the first bad character are said."""
    play.ask('{\n  "type": "object",\n  type: 1\n}')
    play.until(lambda: play.at("check").get_attribute("data-state") == "bad")
    assert play.text("check-place") == "line 3, column 3"
    play.at("run").click()
    assert "not accepted" in play.text("problem")
    assert play.at("result").get_attribute("data-state") == "empty"


def test_requests_that_cannot_be_served_say_why(play):
    """A limit that no answer fits, and numbers that are none, are said beside the form; nothing is written."""
    play.ask(PERSON, limit=3)
    play.run()
    assert "shortest valid output takes" in play.text("problem")
    assert (play.text("with-verdict"), play.spans()) == ("refused", [])
    play.fill("limit", "")
    play.at("run").click()
    assert play.text("problem").startswith("Token limit")
    assert play.driver.switch_to.active_element.get_attribute("id") == "limit"


def test_without_the_budget_an_answer_may_be_cut(play):
    """The box turns the guarantee off: the answer is cut, and said to be, not called complete."""
    play.ask({"type": "array", "items": {"type": "integer"}, "minItems": 50}, limit=20)
    play.at("budget").click()
    play.run()
    assert play.text("with-verdict") == "not finished"
    assert "cut by the limit" in play.text("with-note")
    assert play.text("need") != "0"


def test_stop_frees_the_rows(play, server, slow):
    """Stop ends both answers, in the server as well; Escape does the same."""
    for way in ("button", "key"):
        play.ask({"type": "array", "items": {"type": "integer"}}, limit=3000)
        play.fill("temperature", 1.5)
        play.at("budget").click()
        play.at("run").click()
        play.until(play.spans)
        assert play.at("run").get_attribute("aria-disabled") == "true"
        if way == "button":
            play.at("stop").click()
        else:
            play.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        play.until(lambda: play.text("status") == "Stopped.")
        assert server.idle()
        assert play.driver.switch_to.active_element.get_attribute("id") == "run"
        play.driver.refresh()


def test_hostile_output_stays_text(play):
    """Markup that a model writes is shown, not run: no element is made, no script runs."""
    text = """<img src=x onerror="document.title='owned'"><script>document.title='owned'</script><b>hi</b>"""
    pattern = "".join("\\" + letter if letter in "()[]{}.*+?|^$\\" else letter for letter in text)
    play.ask(pattern, "regex", limit=200, free=False)
    play.run()
    assert play.content("with-output") == text
    assert not play.all("#with-output img, #with-output script, #with-output b")
    assert play.driver.title == "stcon playground"


def test_characters_of_several_tokens_are_whole(play):
    """Bytes of one character that come as several tokens are joined, in exactly the text that was written."""
    play.ask("é😀-中文", "regex", limit=60, free=False)
    play.run()
    assert play.content("with-output") == "é😀-中文"


def test_exports_run(play):
    """The curl command and the Python program, run as they are shown, give answers of the format."""
    pytest.importorskip("openai")
    play.ask(PERSON)
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    if shutil.which("curl"):
        command = ["bash", "-c", play.content("curl-text")]
        done = subprocess.run(command, capture_output=True, check=True, timeout=60, env=environment)
        assert set(json.loads(json.loads(done.stdout)["choices"][0]["message"]["content"])) == {"name", "ok"}
    play.at("budget").click()  # what the client has no parameter for
    program = play.content("python-text")
    assert "extra_body" in program
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60, env=environment)
    assert done.stdout.startswith(b"{")


def test_exports_are_copied(play, driver):
    """The button puts the shown text on the clipboard and says so."""
    permission = {"origin": play.server.url, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    driver.execute_cdp_cmd("Browser.grantPermissions", permission)
    play.at("tab-python").click()
    play.at("copy").click()
    play.until(lambda: play.text("copy") == "Copied")
    copied = driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    assert copied == play.content("python-text")


def test_keyboard_does_everything(play):
    """Tab reaches every control in the order of the page; tabs move by arrows; Control and Enter run."""
    play.ask(PERSON)
    play.driver.execute_script("document.activeElement.blur(); getSelection().removeAllRanges()")
    reached = []
    for _ in range(40):
        webdriver.ActionChains(play.driver).send_keys(Keys.TAB).perform()
        active = play.driver.switch_to.active_element
        reached.append(active.get_attribute("id") or active.text or active.get_attribute("value"))
        if reached[-1] == "copy":
            break
    order = ["prompt", "format", "limit", "temperature", "seed", "budget", "compare", "run", "with-output", "tab-curl"]
    assert [name for name in reached if name in order] == order
    assert reached[0] == "Skip to the result"
    play.at("tab-curl").send_keys(Keys.ARROW_RIGHT)
    assert play.driver.switch_to.active_element.get_attribute("id") == "tab-python"
    assert play.at("export-python").is_displayed()
    assert not play.at("export-curl").is_displayed()
    play.at("prompt").send_keys(Keys.CONTROL, Keys.ENTER)
    play.until(lambda: play.text("with-verdict") == "keeps to the format")


@contextlib.contextmanager
def screen(driver, width, scheme):
    """The page as a device has it."""
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    yield
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


CONTRAST = """
const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const behind = (one) => {
  for (; one; one = one.parentElement) {
    const found = parse(getComputedStyle(one).backgroundColor);
    if (found.length === 3 || found[3] === 1) return found;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll("main *, header *")]
  .filter((one) => one.checkVisibility() && !one.closest("[disabled], #format-marks, svg"))
  .filter((one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
  .map((one) => {
    const [a, b] = [light(parse(getComputedStyle(one).color)), light(behind(one))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.className || one.id || one.tagName];
  })
  .filter(([ratio]) => ratio < 4.5);
"""


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_every_width_in_light_and_dark(driver, server, width):
    """Nothing is wider than the screen, text contrasts with its ground by 4.5 or more (WCAG AA), schemes differ."""
    grounds = []
    for scheme in ("light", "dark"):
        with screen(driver, width, scheme):
            play = Play(driver, server)
            play.ask({"type": "integr"})
            play.until(lambda play=play: play.at("check").get_attribute("data-state") == "bad")
            assert driver.execute_script(CONTRAST) == []
            play.ask(PERSON)
            play.run()
            play.until(lambda play=play: play.text("free-verdict"))
            assert driver.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
            assert driver.execute_script(CONTRAST) == []
            grounds.append(driver.execute_script("return getComputedStyle(document.body).backgroundColor"))
            if width < 600:  # Run and Stop are within reach wherever one reads
                driver.execute_script("scrollTo(0, document.body.scrollHeight)")
                place = driver.execute_script("return arguments[0].getBoundingClientRect().bottom", play.at("stop"))
                assert place <= 844
    assert grounds[0] != grounds[1]


def test_page_asks_for_the_key(driver):
    """Where the server has a key, the page asks for it, says when it is wrong, and works when it is right."""
    with running(api_key="sesame") as server:
        play = Play(driver, server)
        play.until(lambda: play.at("key-dialog").is_displayed())
        play.at("key").send_keys("sesam", Keys.ENTER)
        play.until(lambda: "did not accept" in play.text("key-note"))
        play.at("key").send_keys("sesame", Keys.ENTER)
        play.until(lambda: play.text("model-name") == "fake")
        play.ask(PERSON)
        play.run()
        assert play.text("with-verdict") == "keeps to the format"
        for export in ("curl-text", "python-text"):
            assert "STCON_API_KEY" in play.content(export)
            assert "sesame" not in play.content(export)
