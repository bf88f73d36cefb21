// The editor of the format: what is wrong is said below it and marked in it, at its place.

import { JsonError, lineOf, placeOf, readJson } from "./places.js";

const PAUSE_MS = 350; // after the last key, before the server is asked
const PREFIX = "response_format.json_schema.schema";

export class Editor {
  #timer = 0;
  #request = null;
  #place = null;

  /**
   * @param {object} elements textarea, marks, state, checkText, checkPlace
   * @param {(format: object, signal: AbortSignal) => Promise<object>} ask checks a format in the server.
   */
  constructor(elements, ask) {
    Object.assign(this, elements);
    this.ask = ask;
    this.kind = "schema";
    this.textarea.addEventListener("input", () => this.changed());
    this.textarea.addEventListener("scroll", () => this.#follow());
    this.checkPlace.addEventListener("click", () => this.showPlace());
    new ResizeObserver(() => this.#follow()).observe(this.textarea);
  }

  set(kind, text) {
    this.kind = kind;
    this.textarea.value = text;
    this.changed();
  }

  /** The text is another: check it when the typing stops. */
  changed() {
    this.#mark(null);
    clearTimeout(this.#timer);
    this.#request?.abort();
    this.#say("busy", "Checking …");
    this.#timer = setTimeout(() => this.check(), PAUSE_MS);
  }

  /**
   * The fields of a request that ask for this format.
   * @throws {JsonError} the schema is not JSON.
   */
  fields() {
    const text = this.textarea.value;
    if (this.kind === "regex") return { structured_outputs: { regex: text } };
    if (this.kind === "grammar") return { grammar: text };
    const { value } = readJson(text);
    return { response_format: { type: "json_schema", json_schema: { name: "answer", schema: value } } };
  }

  /** Go to what is wrong; to the text where nothing is. */
  showPlace() {
    this.textarea.focus();
    if (this.#place) this.textarea.setSelectionRange(...this.#place);
  }

  async check() {
    clearTimeout(this.#timer);
    this.#request?.abort();
    this.#request = new AbortController();
    const { signal } = this.#request;
    try {
      const report = await this.ask(this.fields(), signal);
      if (!signal.aborted) this.#accepted(report);
    } catch (error) {
      if (!signal.aborted) this.refused(error);
    }
  }

  /** Show an error at its place; whether it is one of the format. */
  refused(error) {
    const text = this.textarea.value;
    if (error instanceof JsonError) {
      const { line, column } = lineOf(text, error.offset);
      const end = Math.min(text.length, error.offset + 1);
      this.#mark([Math.max(0, end - 1), end], `line ${line}, column ${column}`);
      this.#say("bad", `Not JSON: ${error.message}`);
      return true;
    }
    const isOfFormat = /^(response_format|structured_outputs|grammar)\b/.test(error.param ?? "");
    if (!isOfFormat) {
      this.#say("idle", error.status === 401 ? "Not checked: the server asks for an API key." : error.message);
      return false;
    }
    const pointer = error.param.startsWith(PREFIX) ? error.param.slice(PREFIX.length) : null;
    if (pointer !== null) this.#point(text, pointer);
    this.#say("bad", error.message.replace(`${error.param.slice(0, error.param.length - (pointer ?? "").length)}: `, "").replace(` at #${pointer}`, ""));
    return true;
  }

  #point(text, pointer) {
    const place = placeOf(readJson(text).places, pointer);
    this.#mark(place, `#${pointer}, line ${lineOf(text, place[0]).line}`);
  }

  #accepted({ states, bytes, whole, shortest }) {
    const size = bytes < 1000 ? `${bytes} bytes` : `${(bytes / 1000).toFixed(bytes < 1e4 ? 1 : 0)} kB`;
    const parts = [`${whole ? "" : "over "}${states.toLocaleString("en")} states`, size];
    if (shortest !== null) parts.push(`shortest text: ${[...shortest].length} characters`);
    this.#say("good", parts.join(" · "));
  }

  #say(state, text) {
    this.state.dataset.state = state;
    this.checkText.textContent = text;
    this.textarea.setAttribute("aria-invalid", String(state === "bad"));
  }

  #mark(place, name) {
    this.#place = place;
    this.checkPlace.hidden = place === null;
    this.checkPlace.textContent = place ? name : "";
    const text = this.textarea.value;
    const [start, end] = place ?? [text.length, text.length];
    const mark = document.createElement("mark");
    mark.textContent = text.slice(start, end);
    this.marks.replaceChildren(text.slice(0, start), ...(place ? [mark] : []), text.slice(end), "\n");
    this.#follow();
  }

  #follow() {
    this.marks.scrollTop = this.textarea.scrollTop;
    this.marks.scrollLeft = this.textarea.scrollLeft;
    this.marks.style.width = `${this.textarea.clientWidth}px`;
  }

}
