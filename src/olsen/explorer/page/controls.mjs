// Sliders with a field for the number beside them, and choices between a few words.

/** Positions of a slider for the numbers from low to high in even steps. */
export const evenly = (low, high, step) => ({
  last: Math.round((high - low) / step),
  value: (position) => Number((low + position * step).toFixed(6)),
  position: (value) => Math.round((value - low) / step),
});

/** Positions of a slider for these numbers, in order; Infinity may be the last. */
export const oneOf = (values) => ({
  last: values.length - 1,
  value: (position) => values[position],
  position: (value) => values.indexOf(nearestOf(values, value)),
});

/** The one of some numbers that lies nearest to another. */
export function nearestOf(values, wanted) {
  if (values.includes(wanted)) return wanted;
  return values.reduce((best, one) => (Math.abs(one - wanted) < Math.abs(best - wanted) ? one : best));
}

const textOf = (value) => (value === Infinity ? "∞" : String(Number(value.toPrecision(6))));
const withoutTags = (html) => html.replace(/<[^>]*>/g, "");

function numberOf(text) {
  if (/^\s*(∞|inf(inity)?)\s*$/i.test(text)) return Infinity;
  return text.trim() === "" ? NaN : Number(text.replace(",", "."));
}

/**
 * A slider and its field.
 *
 * @param {HTMLElement} host
 * @param {{id: string, letter: string, title: string, scale: object, read: (text: string) => number}} options `read`
 * makes a number of the state of a text, within its bounds
 * @param {(value: number) => void} tell
 * @returns {(value: number, extra?: string) => void} shows a value
 */
export function slider(host, { id, letter, title, scale, read }, tell) {
  const row = document.createElement("div");
  row.className = "control";
  row.innerHTML = `<label for="${id}"><i>${letter}</i> ${title}</label><small></small>
    <input id="${id}" type="range" min="0" max="${scale.last}" step="1">
    <input id="${id}-field" class="field" type="text" inputmode="decimal" autocomplete="off"
      aria-label="${withoutTags(title)}, as a number">`;
  host.append(row);
  const [, note, range, field] = row.children;
  range.addEventListener("input", () => tell(scale.value(Number(range.value))));
  field.addEventListener("input", () => field.setAttribute("aria-invalid", Number.isNaN(numberOf(field.value))));
  field.addEventListener("change", () => {
    const value = numberOf(field.value);
    if (!Number.isNaN(value)) tell(read(value === Infinity ? "inf" : String(value)));
    field.value = range.getAttribute("aria-valuetext");
    field.removeAttribute("aria-invalid");
  });
  return (value, extra = "") => {
    range.value = scale.position(value);
    range.setAttribute("aria-valuetext", textOf(value));
    if (document.activeElement !== field) field.value = textOf(value);
    if (note.textContent !== extra) note.textContent = extra;
  };
}

/** A choice between words, as radio buttons in a row; returns what shows one of them. */
export function choice(host, { id, title, options }, tell) {
  const set = document.createElement("fieldset");
  set.className = "choice";
  const buttons = options.map(
    ([value, text]) => `<label><input type="radio" name="${id}" value="${value}"><span>${text}</span></label>`,
  );
  set.innerHTML = `<legend>${title}</legend>${buttons.join("")}`;
  host.append(set);
  set.addEventListener("change", (event) => tell(event.target.value));
  return (value, disabled = false) => {
    set.disabled = disabled;
    for (const input of set.querySelectorAll("input")) input.checked = input.value === value;
  };
}

/** Say something to those who listen, once things have come to rest. */
export function announcer(region) {
  let timer = 0;
  return (text) => {
    clearTimeout(timer);
    timer = setTimeout(() => (region.textContent = text), 350);
  };
}
