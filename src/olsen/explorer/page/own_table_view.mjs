// The part of the third tab that takes a table of the reader's own, by a drop or a choice of a file.

import { Chart, shown } from "./chart.mjs";
import { errorsOfSize, OWN_MEMBERS, ownSizes, parseTable, rootMeanSquare, splitRows, standardised } from "./own_table.mjs";

export function listenToOwnTables(root) {
  const find = (id) => root.querySelector(`#${id}`);
  const chart = new Chart(find("own-chart"), { label: "Error on predicted rows of your table against the size of members", height: 290 });
  const say = (words) => (find("own-words").textContent = words);
  let latest = 0; // number of the table that is fitted: an earlier one stops

  async function show(file) {
    const number = ++latest;
    find("own-figure").hidden = true;
    try {
      const table = parseTable(await file.text()), rows = splitRows(table.y.length);
      const data = standardised(table, rows), sizes = ownSizes(data.parts.length, rows.fitted.length), errors = [];
      if (data.parts.length === 0) throw new Error("No column varies among the rows that are fitted.");
      for (const size of sizes) {
        say(`Fitting members of ${size} of ${data.parts.length} columns …`);
        await new Promise((done) => setTimeout(done)); // the page stays alive
        if (number !== latest) return;
        errors.push(errorsOfSize(data, size));
      }
      find("own-figure").hidden = false;
      const mean = rootMeanSquare(data.predicted), last = errors.map((ofSize) => ofSize.at(-1)), best = last.indexOf(Math.min(...last));
      say(`${table.target}, ${rows.fitted.length} rows fitted and ${rows.predicted.length} predicted: with 64 members the error is ` +
        `lowest at ${sizes[best]} of ${data.parts.length} columns, ${shown(last[best])}; the mean of the target has ${shown(mean)}. ` +
        "It is one random division of the rows.");
      drawOwnErrors(chart, sizes, errors, mean);
    } catch (error) {
      say(error.message);
    }
  }

  find("own-file").addEventListener("change", (event) => {
    const file = event.target.files[0];
    if (!file) return;
    show(file);
    event.target.value = ""; // so that the same file can be chosen again after a change
  });
  root.addEventListener("dragover", (event) => event.preventDefault());
  root.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files[0]) show(event.dataTransfer.files[0]);
  });
}

function drawOwnErrors(chart, sizes, errors, mean) {
  const curve = (i) => errors.map((ofSize) => ofSize[i]), last = OWN_MEMBERS.length - 1;
  const top = 1.15 * Math.max(mean, ...curve(last), Math.min(...curve(0))), low = 0.9 * Math.min(mean, ...errors.flat());
  const ticks = sizes.map((value) => ({ value, text: String(value) }));
  chart.draw({
    x: { low: 0.93, high: 1.08 * Math.max(2, sizes.at(-1)), log: true, label: "columns in a member, m", ticks },
    y: { low, high: top, label: "error on rows that were not fitted" },
    marks: (c) =>
      [
        c.level(mean, "axis", "mean of the target", "left"),
        ...OWN_MEMBERS.slice(0, -1).map((_, i) => c.line(sizes, curve(i), "others")),
        c.line(sizes, curve(last), "risk"),
        ...sizes.map((size, i) => c.dot(size, curve(last)[i], "risk", 3)),
      ].join(""),
    reads: {
      xs: sizes,
      at: 0,
      words: (i) => `m = ${sizes[i]}: ${shown(curve(last)[i])}`,
      dots: (i) => [[curve(last)[i], "risk"]],
    },
  });
}
