// Tabs, the address, light and dark.

import { createDataTab } from "./data_tab.mjs";
import { createRiskTab } from "./risk_tab.mjs";
import { decode, encode, SCHEMAS, starts } from "./state.mjs";
import { createSubsetsTab } from "./subsets_tab.mjs";

const MAKERS = { risk: createRiskTab, subsets: createSubsetsTab, data: createDataTab };
const NAMES = Object.keys(SCHEMAS);
const WAIT = 200; // milliseconds until the address follows a slider; browsers refuse more than a few changes a second

const values = Object.fromEntries(NAMES.map((name) => [name, starts(name)]));
const views = {};
let current = "risk";
let timer = 0;

const element = (id) => document.getElementById(id);

function update(name, patch) {
  values[name] = { ...values[name], ...patch };
  views[name].show(values[name]);
  clearTimeout(timer);
  timer = setTimeout(writeAddress, WAIT);
}

function writeAddress() {
  clearTimeout(timer);
  const text = `#${encode(current, values[current])}`;
  try {
    if (location.hash !== text) history.replaceState(null, "", text);
  } catch {
    // a page inside another may not be allowed to: it works without a link
  }
}

function open(name) {
  if (name !== current) views[current]?.hide?.();
  current = name;
  for (const one of NAMES) {
    element(`tab-${one}`).setAttribute("aria-selected", one === name);
    element(`tab-${one}`).tabIndex = one === name ? 0 : -1;
    element(one).hidden = one !== name;
  }
  views[name] ??= MAKERS[name](element(name), (patch) => update(name, patch));
  views[name].show(values[name]);
}

function readAddress() {
  const found = decode(location.hash);
  if (location.hash === `#${encode(current, values[current])}` && views[current]) return;
  values[found.tab] = found.values;
  open(found.tab);
}

function listenToTabs() {
  for (const name of NAMES) {
    element(`tab-${name}`).addEventListener("click", () => {
      open(name);
      writeAddress();
    });
  }
  element("tabs").addEventListener("keydown", (event) => {
    const at = NAMES.indexOf(current), last = NAMES.length - 1;
    const next = at === last ? 0 : at + 1, before = at === 0 ? last : at - 1;
    const to = { ArrowRight: next, ArrowLeft: before, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    element(`tab-${NAMES[to]}`).focus();
    element(`tab-${NAMES[to]}`).click();
  });
}

function listenToTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
  const isDark = () => (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const tell = () => (element("theme").textContent = isDark() ? "Light" : "Dark");
  element("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    tell();
  });
  dark.addEventListener("change", tell);
  tell();
}

function listenToShare() {
  element("share").addEventListener("click", async () => {
    writeAddress();
    let words = "Link copied.";
    try {
      await navigator.clipboard.writeText(location.href);
    } catch {
      words = "The address of this page is the link.";
    }
    element("shared").textContent = words;
    setTimeout(() => (element("shared").textContent = ""), 4000);
  });
}

listenToTabs();
listenToTheme();
listenToShare();
addEventListener("hashchange", readAddress);
readAddress();
