// Pages work without this script: it adds search, the choice of a theme and of a version, and
// buttons that copy code.
"use strict";

const page = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const stored = (name, value) => {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null; // not allowed in files, by some browsers
  }
};
const theme = () => page.dataset.theme || (dark.matches ? "dark" : "light");
if (stored("theme")) page.dataset.theme = stored("theme");

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};
const load = (path, then) => document.head.append(element("script", { src: page.dataset.root + path, onload: then }));

document.addEventListener("DOMContentLoaded", () => {
  themes();
  versions();
  search();
  for (const block of document.querySelectorAll(".code")) copy(block);
  for (const heading of document.querySelectorAll("article :is(h2, h3, h4)[id]")) {
    heading.append(element("a", { className: "anchor", href: "#" + heading.id, textContent: "#", ariaLabel: "Link to this heading" }));
  }
  contents();
  if (matchMedia("(max-width: 48rem)").matches) document.querySelector(".nav details").open = false;
});

function themes() {
  const button = document.querySelector(".theme");
  const label = () => { button.textContent = theme() === "dark" ? "Light" : "Dark"; };
  button.hidden = false;
  label();
  dark.addEventListener("change", label);
  button.addEventListener("click", () => {
    page.dataset.theme = theme() === "dark" ? "light" : "dark";
    stored("theme", page.dataset.theme);
    label();
  });
}

function versions() {
  const choice = document.querySelector(".versions");
  load("../versions.js", () => {
    choice.replaceChildren(...siteVersions.map((name) => element("option", { textContent: name, selected: name === page.dataset.version })));
  });
  // A version may lack the page, so its first page opens.
  choice.addEventListener("change", () => { location.href = page.dataset.root + "../" + choice.value + "/index.html"; });
}

// copy adds a button that copies a block; of a console, the commands.
function copy(block) {
  const button = element("button", { type: "button", textContent: "Copy" });
  button.addEventListener("click", async () => {
    const commands = [...block.querySelectorAll(".cmd")].map((line) => line.textContent.slice(2));
    await navigator.clipboard.writeText(block.dataset.language === "console" ? commands.join("") : block.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.append(button);
}

// contents marks the heading that is read.
function contents() {
  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [decodeURIComponent(link.hash.slice(1)), link]));
  const headings = [...document.querySelectorAll("article [id]")].filter((heading) => links.has(heading.id));
  const mark = () => {
    const read = headings.findLast((heading) => heading.getBoundingClientRect().top < 90) || headings[0];
    for (const [id, link] of links) link.classList.toggle("here", read && id === read.id);
  };
  document.addEventListener("scroll", mark, { passive: true });
  mark();
}

function search() {
  const form = document.querySelector(".search");
  const field = form.querySelector("input");
  const list = form.querySelector(".results");
  let chosen = 0;
  form.hidden = false;
  const show = () => {
    if (typeof searchIndex === "undefined") return;
    const words = field.value.toLowerCase().split(/[^\p{L}\p{N}_-]+/u).filter(Boolean);
    const found = words.length ? find(words).slice(0, 12) : [];
    chosen = 0;
    list.replaceChildren(...found.map(([row, excerpt], i) => element("li", {}, element("a",
      { href: page.dataset.root + row[0] + "#" + row[3], className: i === 0 ? "chosen" : "" },
      element("strong", { textContent: row[2] }), row[1] === row[2] ? "" : " · " + row[1], element("small", {}, ...marked(excerpt, words))))));
    if (words.length && !found.length) list.append(element("li", { className: "none", textContent: "Nothing found" }));
    list.hidden = !words.length;
  };
  field.addEventListener("focus", () => { if (typeof searchIndex === "undefined") load("assets/search.js", show); else show(); });
  field.addEventListener("input", show);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    list.querySelector("a.chosen")?.click();
  });
  field.addEventListener("keydown", (event) => {
    const links = [...list.querySelectorAll("a")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") { list.hidden = true; field.blur(); }
    if (!step || !links.length) return;
    event.preventDefault();
    chosen = (chosen + step + links.length) % links.length;
    links.forEach((link, i) => link.classList.toggle("chosen", i === chosen));
    links[chosen].scrollIntoView({ block: "nearest" });
  });
  document.addEventListener("click", (event) => { if (!form.contains(event.target)) list.hidden = true; });
  list.addEventListener("click", () => { list.hidden = true; });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      field.focus();
    }
  });
}

// find returns the rows that have all words, best first, each with an excerpt. A word counts
// most in the title of a page, less in a heading, least in the text, and more if it is whole.
function find(words) {
  const found = [];
  for (const row of searchIndex) {
    const [path, title, heading, , text] = row;
    const places = [[title, 6], [heading, 8], [text, 1]];
    let score = 0;
    for (const word of words) {
      let best = 0;
      for (const [place, weight] of places) {
        const at = wordIn(place.toLowerCase(), word);
        if (at) best = Math.max(best, weight * at);
      }
      if (!best) { score = 0; break; }
      score += best;
    }
    if (!score) continue;
    if (path.startsWith("decisions/") || path === "changelog.html") score /= 3;
    found.push([row, excerpt(text, words[0]), score]);
  }
  return found.sort((a, b) => b[2] - a[2]);
}

// wordIn returns 0 if no word of the text begins with the word, and 2 if one is the word.
function wordIn(text, word) {
  let value = 0;
  for (let at = text.indexOf(word); at >= 0 && value < 2; at = text.indexOf(word, at + 1)) {
    if (at > 0 && /[\p{L}\p{N}]/u.test(text[at - 1])) continue;
    value = Math.max(value, /[\p{L}\p{N}]/u.test(text[at + word.length] || " ") ? 1 : 2);
  }
  return value;
}

function excerpt(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 30);
  return (at > 0 ? "…" : "") + text.slice(at, at + 140);
}

// marked returns the text as nodes, with the words in mark elements.
function marked(text, words) {
  const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return text.split(new RegExp("(" + escaped.join("|") + ")", "i")).map((part, i) => i % 2 ? element("mark", { textContent: part }) : part);
}
