// One answer as it is written: its counts, and the pane that shows its tokens.

/** What is known of an answer; grows with each chunk of its stream. */
export class Run {
  constructor() {
    this.text = "";
    this.sampled = 0; // drawn by the model, or standing for what it drew
    this.forced = 0;
    this.runs = 0; // of the model; exact at the end, until then one for each step that drew a token
    this.need = null; // fewest tokens to a valid ending
    this.steps = []; // [tokens written, need] after each step
    this.finish = null;
    this.error = null;
    this.started = performance.now();
    this.seconds = null;
  }

  get tokens() {
    return this.sampled + this.forced;
  }

  /**
   * Take a chunk of the stream.
   * @returns {{text: string, kind: string}[]} the tokens it brings.
   */
  take(chunk) {
    if (chunk.usage) this.#count(chunk.usage);
    const choice = chunk.choices[0];
    if (choice) {
      this.text += choice.delta.content ?? "";
      this.finish = choice.finish_reason ?? this.finish;
    }
    const step = chunk.stcon;
    if (!step) return this.#atEnd(choice);
    for (const token of step.tokens) this[token.kind === "forced" ? "forced" : "sampled"] += 1;
    if (step.tokens.some((token) => token.kind !== "forced")) this.runs += 1;
    if (step.need !== null) {
      this.need = step.need;
      this.steps.push([this.tokens, step.need]);
    }
    return step.tokens;
  }

  end() {
    this.seconds = (performance.now() - this.started) / 1000;
  }

  /** A complete answer needs nothing more; the chunk that ends it does not say so. */
  #atEnd(choice) {
    if (choice?.finish_reason && choice.finish_reason !== "length" && this.need !== null) {
      this.need = 0;
      this.steps.push([this.tokens, 0]);
    }
    return [];
  }

  #count(usage) {
    this.forced = usage.stcon.forced_tokens;
    this.sampled = usage.completion_tokens - this.forced;
    this.runs = usage.stcon.passes;
  }
}

/** Shows tokens as they come, and at the end where the text leaves the format. Text nodes only. */
export class Pane {
  #decoder = new TextDecoder();
  #queue = document.createDocumentFragment();
  #isQueued = false;

  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
  }

  clear() {
    this.element.replaceChildren();
    this.#queue.replaceChildren();
    this.#decoder = new TextDecoder();
  }

  /** Add tokens; many in one frame are one change of the page. */
  add(tokens) {
    for (const token of tokens) this.#queue.append(this.#span(token));
    if (this.#isQueued || !tokens.length) return;
    this.#isQueued = true;
    requestAnimationFrame(() => this.flush());
  }

  /** Show what waits to be shown. */
  flush() {
    const { element } = this;
    const isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 24;
    element.append(this.#queue);
    if (isAtEnd) element.scrollTop = element.scrollHeight;
    this.#isQueued = false;
  }

  /**
   * Mark all that follows the first `characters` characters as not of the format.
   * @param {string} text the whole text; shown instead of the tokens should they spell another.
   */
  markAfter(text, characters) {
    this.flush();
    if (this.element.textContent !== text) this.element.replaceChildren(span(text, "token sampled"));
    let left = characters;
    for (const one of [...this.element.children]) {
      const points = [...one.textContent];
      if (left < points.length) {
        const after = span(points.slice(left).join(""), `${one.className} off`);
        if (left > 0) {
          one.textContent = points.slice(0, left).join("");
          one.after(after);
        } else {
          one.replaceWith(after);
        }
      }
      left = Math.max(0, left - points.length);
    }
    const first = this.element.querySelector(".off");
    if (first) this.element.scrollTop = Math.max(0, first.offsetTop - this.element.offsetTop - 60);
  }

  #span(token) {
    const text = token.bytes ? this.#decoder.decode(new Uint8Array(token.bytes), { stream: true }) : token.text;
    const kind = token.kind === "forced" ? "forced" : "sampled";
    const one = span(text, `token ${kind}${/^\s*\n\s*$/.test(text) ? " newline" : ""}`);
    one.title = token.kind;
    return one;
  }
}

function span(text, className) {
  const one = document.createElement("span");
  one.className = className;
  one.textContent = text;
  return one;
}
