// The steps of an answer as a picture: tokens to the shortest valid ending, under the tokens that are left.

const SVG = "http://www.w3.org/2000/svg";
const PAD = { left: 30, right: 10, top: 10, bottom: 22 };

/**
 * Draw.
 * @param {SVGSVGElement} svg
 * @param {[number, number][]} steps tokens written and tokens needed, after each step.
 * @param {number} limit of tokens.
 */
export function drawChart(svg, steps, limit) {
  const width = svg.clientWidth || 300;
  const height = svg.clientHeight || 120;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  const most = Math.max(0, ...steps.map(([, need]) => need));
  const xMax = Math.max(10, steps.at(-1)?.[0] ?? 0);
  const yMax = Math.max(5, Math.ceil(most * 1.3));
  const x = (tokens) => PAD.left + ((width - PAD.left - PAD.right) * tokens) / xMax;
  const y = (need) => height - PAD.bottom - ((height - PAD.top - PAD.bottom) * Math.min(need, yMax)) / yMax;

  for (const need of [0, Math.round(yMax / 2), yMax]) {
    add(svg, "line", { class: "grid", x1: x(0), x2: x(xMax), y1: y(need), y2: y(need) });
    label(svg, need, x(0) - 6, y(need) + 4, "end");
  }
  label(svg, "0", x(0), height - 6, "start");
  label(svg, `${xMax} tokens written`, x(xMax), height - 6, "end");
  drawRoom(svg, x, y, xMax, yMax, limit);
  if (!steps.length) return svg.setAttribute("aria-label", "No steps yet");
  const line = steps.flatMap(([tokens, need], index) => {
    const before = index ? steps[index - 1][1] : null; // a level holds until the next step
    return before === null ? [[tokens, need]] : [[tokens, before], [tokens, need]];
  });
  const points = line.map(([tokens, need]) => `${x(tokens)},${y(need)}`).join(" ");
  add(svg, "polygon", { class: "area", points: `${x(line[0][0])},${y(0)} ${points} ${x(line.at(-1)[0])},${y(0)}` });
  add(svg, "polyline", { class: "need", points });
  add(svg, "circle", { class: "now", cx: x(steps.at(-1)[0]), cy: y(steps.at(-1)[1]), r: 3.5 });
  const [written, need] = steps.at(-1);
  svg.setAttribute("aria-label", `After ${written} tokens, ${need} more would do; the most was ${most}.`);
}

/** The tokens that are left, where they are few enough to be in the picture: what is needed never rises above them. */
function drawRoom(svg, x, y, xMax, yMax, limit) {
  const from = Math.max(0, limit - yMax);
  if (from >= xMax) return;
  const ends = [[from, limit - from], [xMax, Math.max(0, limit - xMax)]];
  add(svg, "polyline", { class: "room", points: ends.map(([tokens, left]) => `${x(tokens)},${y(left)}`).join(" ") });
  if (x(from) > 100) label(svg, "tokens left", x(from) - 6, y(limit - from) + 11, "end", "room-label");
}

function label(svg, text, x, y, anchor, className = "") {
  add(svg, "text", { class: className, x, y, "text-anchor": anchor }).textContent = text;
}

function add(svg, name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  svg.append(element);
  return element;
}
