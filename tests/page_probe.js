// SPDX-License-Identifier: Apache-2.0
// What tests/page.py adds to the end of a page: writes into it, as JSON, where everything is after layout.
const box = (node) => {
  const at = node.getBoundingClientRect();
  return [at.left, at.top, at.right, at.bottom].map((number) => Math.round(number * 100) / 100);
};
const shown = (node) => {
  const style = getComputedStyle(node);
  return { class: node.getAttribute("class") ?? "", box: box(node), fill: style.fill, stroke: style.stroke,
           hidden: style.visibility !== "visible" || style.display === "none", d: node.getAttribute("d") };
};
const pictures = [...document.querySelectorAll("svg")].map((svg) => ({
  id: svg.id,
  role: svg.getAttribute("role"),
  box: box(svg),
  view: [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height],
  labelled: svg.getAttribute("aria-labelledby").split(" ").map((id) => document.getElementById(id).textContent),
  heading: svg.closest("figure").querySelector("h2").textContent,
  caption: svg.closest("figure").querySelector("figcaption").textContent,
  table: [...svg.closest("figure").querySelectorAll("tr")].map((row) => [...row.cells].map((cell) => cell.textContent)),
  marks: [...svg.querySelectorAll(".mark, .frame, .edge, .limit, .quantile")].map(shown),
  texts: [...svg.querySelectorAll("text")].map((text) => ({ ...shown(text), text: text.textContent })),
}));
const colour = (selector) => getComputedStyle(document.querySelector(selector)).color;
const result = {
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  page: getComputedStyle(document.body).backgroundColor,
  words: ["h1", "h2", "dt", "dd", "figcaption", "summary", "th", "td", "footer"]
    .filter((selector) => document.querySelector(selector)).map(colour),
  title: document.title,
  heading: document.querySelector("h1").textContent,
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  elements: [...new Set([...document.querySelectorAll("*")].map((node) => node.localName))],
  pictures,
};
const pre = document.createElement("pre");
pre.id = "probe";
pre.textContent = btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(result))));
document.body.append(pre);
