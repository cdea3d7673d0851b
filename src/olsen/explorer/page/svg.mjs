// Elements of SVG as text: numbers to a hundredth of a pixel, words escaped.

const rounded = (value) => (typeof value === "number" ? Number(value.toFixed(2)) : value);

/** An element; `inner` is markup. */
export function tag(name, attributes, inner = "") {
  const parts = Object.entries(attributes).map(([key, value]) => ` ${key}="${rounded(value)}"`);
  return `<${name}${parts.join("")}>${inner}</${name}>`;
}

/** A path of moves and lines: numbers in `d` are given as arrays of a letter and coordinates. */
export function path(style, ...steps) {
  const d = steps.map(([letter, ...at]) => letter + at.map(rounded).join(" ")).join("");
  return tag("path", { class: style, d });
}

/** Words at a place; `anchor` says which part of them lies there. */
export function label(style, x, y, words, anchor = "start") {
  const escaped = String(words).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
  return tag("text", { class: style, x, y, "text-anchor": anchor }, escaped);
}
