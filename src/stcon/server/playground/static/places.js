// JSON text with places: where each JSON pointer (RFC 6901) stands, and where the text stops being JSON.

const MAX_DEPTH = 500;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const SPACE = /[ \t\r\n]*/y;

export class JsonError extends Error {
  constructor(message, offset) {
    super(message);
    this.offset = offset;
  }
}

/**
 * Read JSON text.
 * @param {string} text
 * @returns {{value: any, places: Map<string, [number, number]>}} the value, and [start, end) of each pointer's value.
 * @throws {JsonError} with the offset of the first character that cannot stand there.
 */
export function readJson(text) {
  const places = new Map();
  let at = 0;

  const match = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found) at = pattern.lastIndex;
    return found?.[0];
  };
  const fail = (message) => {
    throw new JsonError(at < text.length ? message : "the text ends too early", at);
  };
  const space = () => match(SPACE);
  const expect = (character) => {
    space();
    if (text[at] !== character) fail(`expected ${character}`);
    at += 1;
  };
  const string = () => {
    const found = match(STRING);
    if (found === undefined) fail(text[at] === '"' ? "this text is not closed, or has a bad escape" : 'expected "');
    return JSON.parse(found);
  };
  const number = () => {
    const start = at;
    const found = match(NUMBER);
    if (found === undefined) fail("expected a value");
    const value = Number(found);
    if (!Number.isFinite(value) || (/^-?\d+$/.test(found) && !Number.isSafeInteger(value))) {
      at = start;
      fail("a browser cannot carry this number exactly; send it to the server's interface yourself");
    }
    return value;
  };
  const members = (close, depth, one) => {
    at += 1;
    space();
    if (text[at] === close) return void (at += 1);
    for (;;) {
      one(depth + 1);
      space();
      if (text[at] === close) return void (at += 1);
      if (text[at] !== ",") fail(`expected , or ${close}`);
      at += 1;
    }
  };
  const value = (pointer, depth) => {
    if (depth > MAX_DEPTH) fail("nested too deep");
    space();
    const start = at;
    let found;
    if (text[at] === "{") {
      const entries = [];
      members("}", depth, (inner) => {
        space();
        const name = string();
        expect(":");
        entries.push([name, value(`${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`, inner)]);
      });
      found = Object.fromEntries(entries);
    } else if (text[at] === "[") {
      found = [];
      members("]", depth, (inner) => found.push(value(`${pointer}/${found.length}`, inner)));
    } else if (text[at] === '"') {
      found = string();
    } else if (match(/true|false|null/y) !== undefined) {
      found = JSON.parse(text.slice(start, at));
    } else {
      found = number();
    }
    places.set(pointer, [start, at]);
    return found;
  };

  const result = value("", 0);
  space();
  if (at < text.length) fail("expected the end of the text");
  return { value: result, places };
}

/** The place of a pointer; of its nearest parent where the text does not have it. */
export function placeOf(places, pointer) {
  for (let path = pointer; ; path = path.slice(0, path.lastIndexOf("/"))) {
    if (places.has(path)) return places.get(path);
    if (!path.includes("/")) return places.get("") ?? [0, 0];
  }
}

/** Line and column, from 1, of an offset. */
export function lineOf(text, offset) {
  const before = text.slice(0, offset).split("\n");
  return { line: before.length, column: before.at(-1).length + 1 };
}
