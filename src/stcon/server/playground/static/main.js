// The page: reads the form, runs the request with its format and without, shows both as they come.

import { Api } from "./api.js";
import { drawChart } from "./chart.js";
import { Editor } from "./editor.js";
import { EXAMPLES } from "./examples.js";
import { asCurl, asPython } from "./exports.js";
import { JsonError } from "./places.js";
import { Pane, Run } from "./run.js";

const at = (id) => document.getElementById(id);
const NARROW = matchMedia("(max-width: 900px)");
const CALM = matchMedia("(prefers-reduced-motion: reduce)");

const api = new Api();
const editor = new Editor(
  {
    textarea: at("format"),
    marks: at("format-marks"),
    state: at("check"),
    checkText: at("check-text"),
    checkPlace: at("check-place"),
  },
  (fields, signal) => api.check(fields, signal),
);
const panes = { with: new Pane(at("with-output")), free: new Pane(at("free-output")) };
const drafts = {}; // kind → the text last edited under it
let stopper = null; // of the run that is under way
let shown = { run: new Run(), limit: 1 };

// ------------------------------------------------------------------------------------------------ the request

/** The fields of a request without its format. Throws what is wrong with a number. */
function plainBody() {
  const body = {
    model: "default",
    messages: [{ role: "user", content: at("prompt").value }],
    max_tokens: whole("limit", "Token limit"),
    temperature: number("temperature", "Temperature"),
  };
  if (at("seed").value !== "") body.seed = whole("seed", "Seed");
  return body;
}

/** The request with its format. Throws `JsonError` where the schema is not JSON. */
function formattedBody() {
  const own = at("budget").checked ? {} : { stcon: { budget: false } };
  return { ...plainBody(), ...editor.fields(), ...own };
}

function number(id, name) {
  const { value, validity } = at(id);
  if (value === "" || !validity.valid) throw new FieldError(`${name}: ${at(id).validationMessage || "a number is missing"}`, id);
  return Number(value);
}

function whole(id, name) {
  const value = number(id, name);
  if (!Number.isSafeInteger(value)) throw new FieldError(`${name}: a whole number is needed`, id);
  return value;
}

class FieldError extends Error {
  constructor(message, id) {
    super(message);
    this.id = id;
  }
}

// ------------------------------------------------------------------------------------------------ running

async function start() {
  if (stopper) return;
  let body, free;
  try {
    [body, free] = [formattedBody(), plainBody()];
  } catch (error) {
    return complain(error);
  }
  complain(null);
  stopper = new AbortController();
  const { signal } = stopper;
  const compare = at("compare").checked;
  begin(body.max_tokens, compare);
  const runs = { with: shown.run, free: new Run() };
  await Promise.all([
    follow(runs.with, panes.with, api.chat(body, signal), "with"),
    compare ? follow(runs.free, panes.free, api.chat(free, signal), "free") : null,
  ]);
  ended();
  const { error } = runs.with;
  if (error && error.name !== "AbortError") return refused(error);
  say(signal.aborted ? "Stopped." : summary(runs.with));
  const format = { ...body, messages: [] };
  await Promise.all([judge("with", runs.with, format), compare ? judge("free", runs.free, format) : null]);
}

/** The request with its format was refused, or broke off; the other one was stopped. */
function refused(error) {
  verdict("with", "bad", error.status === 400 ? "refused" : "failed");
  panes.free.clear();
  at("free-note").textContent = "";
  at("with-note").textContent = "Nothing is written that does not keep to the format.";
  say("");
  complain(error);
  if (error.status === 401) askForKey(api.hasKey);
}

/** Show a stream as it comes. */
async function follow(run, pane, stream, side) {
  try {
    for await (const chunk of stream) {
      pane.add(run.take(chunk));
      if (side === "with") queueCounts();
    }
  } catch (error) {
    run.error = error;
    if (side === "with") stopper.abort();
  }
  run.end();
  pane.flush();
  note(side, run);
  if (side === "with") showCounts();
}

/** Say whether a text keeps to the format, and mark where it leaves it. */
async function judge(side, run, format) {
  if (run.error && run.error.name !== "AbortError") return verdict(side, "bad", "failed");
  let reading;
  try {
    reading = (await api.check({ ...format, text: run.text })).text;
  } catch {
    return verdict(side, "", "");
  }
  if (reading.valid && side === "with") complete(run);
  if (reading.valid) return verdict(side, "good", "keeps to the format");
  const length = [...run.text].length;
  if (reading.characters === length) return verdict(side, "open", run.error ? "stopped" : "not finished");
  verdict(side, "bad", reading.characters ? `leaves it after ${reading.characters} characters` : "not in the format");
  panes[side].markAfter(run.text, reading.characters);
}

/** An answer may end for its limit with its last character in place. */
function complete(run) {
  if (run.finish !== "length" || run.need === null) return;
  run.need = 0;
  run.steps.push([run.tokens, 0]);
  note("with", run);
  showCounts();
}

function stop() {
  if (!stopper) return;
  stopper.abort();
  at("run").focus();
}

// ------------------------------------------------------------------------------------------------ showing

function begin(limit, compare) {
  shown = { run: new Run(), limit };
  at("result").dataset.state = "running";
  at("run").setAttribute("aria-disabled", "true");
  at("stop").disabled = false;
  at("free-pane").hidden = !compare;
  at("panes").classList.toggle("single", !compare);
  for (const side of ["with", "free"]) {
    panes[side].clear();
    verdict(side, "", "");
    at(`${side}-note`).textContent = "";
  }
  say("Running …");
  showCounts();
  showExports();
  if (NARROW.matches) at("result").scrollIntoView({ behavior: CALM.matches ? "auto" : "smooth" });
}

function ended() {
  stopper = null;
  at("result").dataset.state = "done";
  at("run").removeAttribute("aria-disabled");
  if (document.activeElement === at("stop")) at("run").focus();
  at("stop").disabled = true;
}

let countsQueued = false;
function queueCounts() {
  if (countsQueued) return;
  countsQueued = true;
  requestAnimationFrame(() => {
    countsQueued = false;
    showCounts();
  });
}

function showCounts() {
  const { run, limit } = shown;
  const left = limit - run.tokens;
  const saved = run.tokens - run.runs;
  at("num-tokens").textContent = run.tokens;
  at("of-limit").textContent = `of ${limit}`;
  at("num-runs").textContent = run.runs;
  at("runs-note").textContent = run.runs ? `${(run.tokens / run.runs).toFixed(2)} tokens a run` : "";
  at("num-saved").textContent = run.tokens ? `${Math.round((100 * saved) / run.tokens)} %` : "–";
  at("saved-note").textContent = run.tokens ? `${saved} of ${run.tokens}` : "";
  at("need").textContent = run.need ?? "–";
  at("need-note").textContent = run.need === null ? "" : run.need ? `more ${run.need === 1 ? "token" : "tokens"}; ${left} left` : "it is complete";
  const need = run.need ?? 0;
  const share = (tokens) => `${(100 * tokens) / Math.max(limit, 1)}%`;
  const [sampled, forced, wanted] = at("meter").children;
  sampled.style.width = share(run.sampled);
  forced.style.width = share(run.forced);
  wanted.style.width = share(Math.min(need, Math.max(left, 0)));
  const of = `${run.sampled} tokens sampled, ${run.forced} forced, ${need} more would do, of ${limit}`;
  at("meter").setAttribute("aria-label", of);
  drawChart(at("chart"), run.steps, limit);
}

function note(side, run) {
  const reasons = { stop: "ended by itself", length: "cut by the limit", tool_calls: "ended by itself" };
  const isComplete = run.finish === "length" && run.need === 0;
  const reason = run.error ? "" : isComplete ? "complete at the limit" : (reasons[run.finish] ?? run.finish);
  const parts = [`${run.tokens} tokens`, `${run.runs} runs`, `${run.seconds.toFixed(1)} s`, reason];
  at(`${side}-note`).textContent = run.tokens ? parts.filter(Boolean).join(" · ") : "";
}

function verdict(side, state, text) {
  const element = at(`${side}-verdict`);
  element.dataset.state = state;
  element.textContent = text;
}

function summary(run) {
  const saved = run.tokens - run.runs;
  return `Done: ${run.tokens} tokens in ${run.runs} model runs, ${saved} saved.`;
}

function say(text) {
  at("status").textContent = text;
}

/** Say what is wrong with the request; null: nothing. */
function complain(error) {
  for (const element of document.querySelectorAll("input[aria-invalid]")) element.removeAttribute("aria-invalid");
  const problem = at("problem");
  problem.hidden = error === null;
  problem.textContent = "";
  if (error === null) return;
  const isOfFormat = (error instanceof JsonError || error.param) && editor.refused(error);
  problem.textContent = isOfFormat ? "The format is not accepted; what is wrong is said below it." : error.message;
  if (isOfFormat) editor.showPlace();
  const field = error.id ?? { max_tokens: "limit", temperature: "temperature", seed: "seed" }[error.param];
  if (!field) return;
  at(field).setAttribute("aria-invalid", "true");
  at(field).focus();
}

// ------------------------------------------------------------------------------------------------ exports

function showExports() {
  let body;
  try {
    body = formattedBody();
  } catch (error) {
    if (!(error instanceof JsonError || error instanceof FieldError)) throw error;
    at("curl-text").textContent = at("python-text").textContent = "The request is not complete.";
    return;
  }
  at("curl-text").textContent = asCurl(body, location.origin, api.hasKey);
  at("python-text").textContent = asPython(body, location.origin, api.hasKey);
}

function selectTab(name) {
  for (const other of ["curl", "python"]) {
    const isSelected = other === name;
    at(`tab-${other}`).setAttribute("aria-selected", String(isSelected));
    at(`tab-${other}`).tabIndex = isSelected ? 0 : -1;
    at(`export-${other}`).hidden = !isSelected;
  }
}

async function copy() {
  const source = at(at("export-curl").hidden ? "python-text" : "curl-text");
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    getSelection().selectAllChildren(source); // no clipboard here: selected, to be copied by hand
    return flash("Selected");
  }
  flash("Copied");
}

function flash(text) {
  at("copy").textContent = text;
  say(`${text}.`);
  setTimeout(() => (at("copy").textContent = "Copy"), 1500);
}

// ------------------------------------------------------------------------------------------------ the key

function askForKey(wasWrong) {
  at("key-open").hidden = false;
  at("key-note").textContent = wasWrong
    ? "The server did not accept that key."
    : "The page keeps it in its memory until it is closed.";
  if (!at("key-dialog").open) at("key-dialog").showModal();
}

async function connect() {
  try {
    at("model-name").textContent = await api.model();
    at("model").dataset.state = "good";
  } catch (error) {
    at("model-name").textContent = error.status === 401 ? "locked" : "not connected";
    at("model").dataset.state = "bad";
    if (error.status === 401) askForKey(api.hasKey);
  }
}

// ------------------------------------------------------------------------------------------------ wiring

function choose(example) {
  for (const button of at("examples").children) {
    button.setAttribute("aria-pressed", String(button.textContent === example.name));
  }
  at("prompt").value = example.prompt;
  at("limit").value = example.limit;
  setKind(example.kind);
  drafts[example.kind] = example.format;
  editor.set(example.kind, example.format);
  complain(null);
  showExports();
}

function setKind(kind) {
  document.querySelector(`input[name=kind][value=${kind}]`).checked = true;
  at("format").rows = kind === "schema" ? 14 : 5;
}

function switchKind(kind) {
  drafts[editor.kind] = at("format").value;
  setKind(kind);
  editor.set(kind, drafts[kind] ?? EXAMPLES.find((example) => example.kind === kind).format);
  showExports();
}

function wire() {
  for (const example of EXAMPLES) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = example.name;
    button.addEventListener("click", () => choose(example));
    at("examples").append(button);
  }
  for (const radio of document.querySelectorAll("input[name=kind]")) {
    radio.addEventListener("change", () => switchKind(radio.value));
  }
  at("ask").addEventListener("submit", (event) => (event.preventDefault(), start()));
  at("ask").addEventListener("input", () => showExports());
  at("stop").addEventListener("click", stop);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !at("key-dialog").open) stop();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start();
  });
  for (const [name, other] of [["curl", "python"], ["python", "curl"]]) {
    at(`tab-${name}`).addEventListener("click", () => selectTab(name));
    at(`tab-${name}`).addEventListener("keydown", (event) => {
      if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
      event.preventDefault();
      selectTab(other);
      at(`tab-${other}`).focus();
    });
  }
  at("copy").addEventListener("click", copy);
  at("key-open").addEventListener("click", () => askForKey(false));
  at("key-cancel").addEventListener("click", () => at("key-dialog").close());
  at("key-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    api.key = at("key").value;
    at("key").value = "";
    at("key-dialog").close();
    showExports();
    await connect();
    editor.check();
  });
  new ResizeObserver(() => drawChart(at("chart"), shown.run.steps, shown.limit)).observe(at("chart"));
}

wire();
choose(EXAMPLES[0]);
connect();
