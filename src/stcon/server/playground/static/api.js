// The server's interface: JSON requests, streams of chat chunks, the API key.

/** An answer that is an error: OpenAI's body, or what went wrong on the way. */
export class ApiError extends Error {
  constructor(message, status = 0, param = null) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

export class Api {
  #key = null;

  get hasKey() {
    return this.#key !== null;
  }

  set key(value) {
    this.#key = value || null;
  }

  /** The model's id. */
  async model() {
    return (await (await this.#fetch("/v1/models")).json()).data[0].id;
  }

  /** What a constraint becomes; with `text`, how far that text keeps to it. */
  async check(body, signal) {
    return (await this.#fetch("/v1/grammar/check", body, signal)).json();
  }

  /**
   * The chunks of a chat completion.
   * @param {object} body without `stream`.
   * @param {AbortSignal} signal aborting it cancels the request in the server.
   */
  async *chat(body, signal) {
    const options = { stream: true, stream_options: { include_usage: true }, stcon: { ...body.stcon, trace: true } };
    const response = await this.#fetch("/v1/chat/completions", { ...body, ...options }, signal);
    for await (const data of events(response.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(chunk.error.message, response.status, chunk.error.param);
      yield chunk;
    }
    throw new ApiError("the connection ended before the answer did");
  }

  async #fetch(path, body, signal) {
    const headers = body === undefined ? {} : { "Content-Type": "application/json" };
    if (this.#key !== null) headers.Authorization = `Bearer ${this.#key}`;
    const method = body === undefined ? "GET" : "POST";
    let response;
    try {
      response = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("the server cannot be reached");
    }
    if (response.ok) return response;
    const error = (await response.json().catch(() => ({}))).error ?? {};
    throw new ApiError(error.message ?? `the server answered ${response.status}`, response.status, error.param);
  }
}

/** The data of server-sent events (each a line here) as they arrive. */
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (held + value).split("\n\n");
      held = parts.pop();
      for (const part of parts) if (part.startsWith("data: ")) yield part.slice(6);
    }
  } finally {
    reader.cancel().catch(() => {}); // whoever left early wants no more of it
  }
}
