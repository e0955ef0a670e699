"use strict";
{
  // The theme is the system's until the button is pressed.
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = (on) => {
    root.dataset.theme = on ? "dark" : "light";
    theme.setAttribute("aria-pressed", String(on));
  };
  paint(dark.matches);
  const follow = (event) => paint(event.matches);
  dark.addEventListener("change", follow);
  theme.addEventListener("click", () => {
    dark.removeEventListener("change", follow);
    paint(root.dataset.theme !== "dark");
  });
}

// Each picture is in the file once.
for (const image of document.querySelectorAll("img[data-like]")) {
  image.src = document.getElementById(image.dataset.like).src;
}

/** The share in percent, halves up, in whole numbers: the digits that the tables have. */
function percent(count, of, places) {
  const scaled = Math.floor((2 * count * 100 * 10 ** places + of) / (2 * of));
  return (scaled / 10 ** places).toFixed(places);
}

/** Curves that are read off at the pointer, or with the arrow keys. */
function readable(figure) {
  const { step, places, last, start, curves } = JSON.parse(figure.querySelector("script").textContent);
  const plot = figure.querySelector(".plot");
  const area = plot.querySelector("svg");
  const cross = plot.querySelector(".cross");
  const paths = [...plot.querySelectorAll("path")];
  const dots = [...plot.querySelectorAll(".dot")];
  const buttons = [...figure.querySelectorAll(".legend button")];
  const values = [...figure.querySelectorAll(".legend .value")];
  const radius = figure.querySelector(".legend output");
  const shown = curves.map(() => true);
  let at = start;

  function read(next) {
    at = Math.min(Math.max(next, 0), last);
    const x = `${(100 * at) / last}%`;
    cross.setAttribute("x1", x);
    cross.setAttribute("x2", x);
    radius.textContent = (at * step).toFixed(places);
    const spoken = [`radius ${radius.textContent}`];
    curves.forEach(({ of, counts, places: digits }, i) => {
      const value = percent(counts[at], of, digits);
      dots[i].setAttribute("cx", x);
      dots[i].setAttribute("cy", `${100 - (100 * counts[at]) / of}%`);
      values[i].textContent = shown[i] ? value : "";
      if (shown[i]) spoken.push(`${buttons[i].textContent.trim()} ${value} percent`);
    });
    plot.setAttribute("aria-valuenow", radius.textContent);
    plot.setAttribute("aria-valuetext", spoken.join("; "));
  }

  function point(event) {
    const { left, width } = area.getBoundingClientRect();
    read(Math.round(((event.clientX - left) / width) * last));
  }
  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerdown", point);

  const moves = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -last, End: last };
  plot.addEventListener("keydown", (event) => {
    if (!(event.key in moves) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    read(at + moves[event.key]);
  });

  buttons.forEach((button, i) => {
    button.addEventListener("click", () => {
      shown[i] = !shown[i];
      button.setAttribute("aria-pressed", String(shown[i]));
      for (const part of [paths[i], dots[i]]) part.setAttribute("visibility", shown[i] ? "visible" : "hidden");
      read(at);
    });
    const light = (on) => () => {
      plot.classList.toggle("faded", on && shown[i]);
      for (const part of [paths[i], dots[i]]) part.classList.toggle("lit", on);
    };
    button.addEventListener("pointerenter", light(true));
    button.addEventListener("pointerleave", light(false));
    button.addEventListener("focus", light(true));
    button.addEventListener("blur", light(false));
  });
}
document.querySelectorAll("figure.curves").forEach(readable);

/** A table that is sorted by the buttons in its head. */
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const value = (row, column) => row.cells[column].dataset.v ?? row.cells[column].textContent;
  const rank = (text) => (text === "" ? 2 : text === "inf" ? 1 : 0); // these stay last, in both directions
  heads.forEach((head, column) => {
    head.querySelector("button")?.addEventListener("click", () => {
      const way = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      const numeric = head.classList.contains("n");
      const order = (a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        if (rank(x) || rank(y)) return rank(x) - rank(y);
        return way * (numeric ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true }));
      };
      body.append(...[...body.rows].sort(order));
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
    });
  });
}

/** Show the rows of one kind that contain some text. */
function filterable(form, table) {
  const counter = form.querySelector("output");
  const search = form.querySelector("input[type=search]");
  const rows = [...table.tBodies[0].rows];
  const apply = () => {
    const kind = form.querySelector("input:checked").value;
    const words = search.value.toLowerCase();
    let count = 0;
    for (const row of rows) {
      const fits = kind === "all" || (kind === "correct") === row.classList.contains("correct");
      row.hidden = !(fits && [...row.cells].some((cell) => cell.textContent.toLowerCase().includes(words)));
      count += row.hidden ? 0 : 1;
    }
    counter.textContent = `${count} shown`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.reset(); // a page that is reloaded may keep earlier choices
}
for (const article of document.querySelectorAll("article.run")) {
  const table = article.querySelector("table.examples");
  if (!table) continue;
  sortable(table);
  filterable(article.querySelector("form.filter"), table);
}

{
  // One run at a time.
  const chooser = document.getElementById("run");
  const choose = () => {
    for (const article of document.querySelectorAll("article.run")) article.hidden = article.id !== chooser.value;
  };
  if (chooser) {
    chooser.selectedIndex = 0;
    chooser.addEventListener("change", choose);
    choose();
  }
}
