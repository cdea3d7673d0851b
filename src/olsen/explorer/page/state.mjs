// What a link holds: the tab and its settings, after the # of the address, for reading and for writing.

const number = (low, high, start) => ({
  start,
  write: (value) => (value === Infinity ? "inf" : String(value)),
  read(text) {
    const value = text === "inf" ? Infinity : text.trim() === "" ? NaN : Number(text);
    return Number.isNaN(value) ? start : Math.min(high, Math.max(low, value));
  },
});
const whole = (low, high, start) => {
  const any = number(low, high, start);
  return { ...any, read: (text) => Math.round(any.read(text)) };
};
const word = (...words) => ({
  start: words[0],
  write: String,
  read: (text) => (words.includes(text) ? text : words[0]),
});
const listed = (values, start) => ({
  start,
  write: String,
  read: (text) => (values.includes(Number(text)) ? Number(text) : start),
});

export const SOIL_SIZES = [5, 10, 20, 40, 80, 160, 320, 440];
export const SOIL_MEMBERS = [1, 2, 4, 16, 64, 256];

export const SCHEMAS = {
  risk: {
    gamma: number(0.1, 4, 1),
    sigma: number(0, 3, 0.7),
    alpha: number(0.01, 1, 0.3),
    eta: number(0.2, 1, 1),
    k: whole(1, Infinity, 20),
    mu: number(0, 4, 1),
    over: word("alpha", "k", "lam"),
    size: word("limit", "finite"),
    n: whole(20, 200, 100),
    design: word("independent", "balanced"),
  },
  subsets: {
    m: whole(1, 20, 8),
    tau: whole(6, 30, 22),
    sigma: number(0, 3, 1),
    design: word("independent", "balanced"),
    seed: whole(0, 999999, 1),
  },
  data: {
    m: listed(SOIL_SIZES, 80),
    k: listed(SOIL_MEMBERS, 64),
  },
};

export function starts(tab) {
  return Object.fromEntries(Object.entries(SCHEMAS[tab]).map(([name, { start }]) => [name, start]));
}

/** The text after the #. */
export function encode(tab, values) {
  const parts = Object.entries(SCHEMAS[tab]).map(([name, { write }]) => `${name}=${write(values[name])}`);
  return [`tab=${tab}`, ...parts].join("&");
}

/** Tab and settings of such a text; what is missing, unknown or out of range is replaced. */
export function decode(text) {
  const given = new URLSearchParams(text.replace(/^#/, ""));
  const tab = Object.hasOwn(SCHEMAS, given.get("tab") ?? "") ? given.get("tab") : "risk";
  const values = starts(tab);
  for (const [name, { read }] of Object.entries(SCHEMAS[tab])) {
    if (given.has(name)) values[name] = read(given.get(name));
  }
  return { tab, values };
}
