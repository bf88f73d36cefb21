// What one can start from. `format` is text, as it stands in the editor.

const schema = (value) => JSON.stringify(value, null, 2);
const text = (maxLength) => ({ type: "string", maxLength });
const texts = { type: "array", items: text(60), minItems: 1, maxItems: 3 };

export const EXAMPLES = [
  {
    name: "Person",
    kind: "schema",
    limit: 120,
    prompt:
      "Maria Santos, 34, is a marine biologist in Lisbon. She speaks Portuguese, English and French.\n" +
      "Extract the person as JSON.",
    format: schema({
      type: "object",
      properties: {
        name: text(60),
        age: { type: "integer", minimum: 0, maximum: 130 },
        job: text(60),
        city: text(60),
        languages: { type: "array", items: text(20), minItems: 1, maxItems: 5 },
      },
      required: ["name", "age", "job", "city", "languages"],
    }),
  },
  {
    name: "Review",
    kind: "schema",
    limit: 120,
    prompt:
      "“The headphones sound great and the battery lasts for days, but the case broke after a week.”\n" +
      "Summarise this review as JSON.",
    format: schema({
      type: "object",
      properties: {
        product: text(40),
        sentiment: { enum: ["positive", "mixed", "negative"] },
        stars: { type: "integer", minimum: 1, maximum: 5 },
        pros: texts,
        cons: texts,
      },
      required: ["product", "sentiment", "stars", "pros", "cons"],
    }),
  },
  {
    name: "Tree",
    kind: "schema",
    limit: 100,
    prompt: "Write the folder of a small Python project as a tree in JSON: a readme, sources, tests.",
    format: schema({
      $ref: "#/$defs/entry",
      $defs: {
        entry: {
          type: "object",
          properties: {
            name: { type: "string", pattern: "^[A-Za-z0-9_.]{1,24}$" },
            entries: { type: "array", items: { $ref: "#/$defs/entry" } },
          },
          required: ["name"],
        },
      },
    }),
  },
  {
    name: "Tight limit",
    kind: "schema",
    limit: 45,
    prompt: "Write a long story about a fox as JSON with title, story and moral.",
    format: schema({
      type: "object",
      properties: { title: { type: "string" }, story: { type: "string" }, moral: { type: "string" } },
      required: ["title", "story", "moral"],
    }),
  },
  {
    name: "Date",
    kind: "regex",
    limit: 20,
    prompt: "On which day did people first walk on the Moon?",
    format: "(19|20)\\d\\d-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])",
  },
  {
    name: "List",
    kind: "grammar",
    limit: 60,
    prompt: "Name three rivers of Europe.",
    format: 'root ::= "1. " name "2. " name "3. " name\nname ::= word (" " word)? "\\n"\nword ::= [A-Z] [a-z]{2,11}',
  },
  {
    name: "A mistake",
    kind: "schema",
    limit: 100,
    prompt: "Describe a book as JSON.",
    format: schema({
      type: "object",
      properties: { title: { type: "string" }, year: { type: "integr" } },
      required: ["title", "year"],
    }),
  },
];
