// A request as a curl command and as a Python program.

/** @param {object} body  @param {string} origin  @param {boolean} withKey */
export function asCurl(body, origin, withKey) {
  const lines = [`curl -sS ${origin}/v1/chat/completions \\`, "  -H 'Content-Type: application/json' \\"];
  if (withKey) lines.push('  -H "Authorization: Bearer $STCON_API_KEY" \\');
  lines.push("  --data-binary @- <<'JSON'", JSON.stringify(body, null, 2), "JSON");
  return lines.join("\n") + "\n";
}

// what the client's method has parameters for; all else goes into extra_body
const KNOWN = new Set(["model", "messages", "max_tokens", "temperature", "seed", "response_format"]);

/** @param {object} body  @param {string} origin  @param {boolean} withKey */
export function asPython(body, origin, withKey) {
  const own = Object.entries(body).filter(([name]) => KNOWN.has(name));
  const extra = Object.fromEntries(Object.entries(body).filter(([name]) => !KNOWN.has(name)));
  if (Object.keys(extra).length) own.push(["extra_body", extra]);
  const key = withKey ? 'os.environ["STCON_API_KEY"]' : '"none"';
  return [
    ...(withKey ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${literal(`${origin}/v1`)}, api_key=${key})`,
    "answer = client.chat.completions.create(",
    ...own.map(([name, value]) => `    ${name}=${literal(value, 4)},`),
    ")",
    "print(answer.choices[0].message.content)",
    "print(answer.usage)",
    "",
  ].join("\n");
}

/** JSON data as a Python literal; lists and dicts that do not fit a line stand on several. */
function literal(value, indent = 0) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const parts = (inner) =>
    Array.isArray(value)
      ? value.map((item) => literal(item, inner))
      : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${literal(item, inner)}`);
  const short = open + parts(0).join(", ") + close;
  if (short.length + indent <= 88 && !short.includes("\n")) return short;
  const pad = " ".repeat(indent + 4);
  return `${open}\n${parts(indent + 4).map((part) => pad + part).join(",\n")},\n${" ".repeat(indent)}${close}`;
}
