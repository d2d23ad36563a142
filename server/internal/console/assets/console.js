// The script of the console: live parts, times in the viewer's zone, keys and the theme.
// Pages work without it.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const page = location.pathname.replace(/^.*\//, "") + location.search;

  // Times: the text in the viewer's zone, the title in UTC.
  const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const localise = (root) => {
    for (const t of root.querySelectorAll("time[data-local]")) {
      const at = new Date(t.dateTime);
      if (!isNaN(at)) t.textContent = zone.format(at);
    }
  };
  localise(document);

  // Live parts.
  const banner = $("offline"), pause = document.querySelector("[data-live]") && $("pause"); // some pages are not live
  const say = (text, href) => {
    banner.textContent = text;
    if (href) {
      const a = document.createElement("a");
      a.href = href;
      a.textContent = " Sign in again";
      banner.append(a);
    }
    banner.hidden = !text;
  };
  let source = null, paused = false;
  const replace = ({ id, html }) => {
    const old = $(id);
    if (!old) return;
    // What the reader uses stays: focus, opened details and the scroll position.
    const at = document.activeElement, inside = old.contains(at) && at !== old;
    const href = inside && at.getAttribute("href"), label = inside && at.getAttribute("aria-label");
    if (String(getSelection()) && old.contains(getSelection().anchorNode)) return;
    const scrolled = [...old.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
    old.innerHTML = html;
    localise(old);
    old.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = scrolled[i] || 0; });
    if (inside) {
      const same = [...old.querySelectorAll("a[href],[tabindex]")].find((e) => href ? e.getAttribute("href") === href : label && e.getAttribute("aria-label") === label);
      if (same) same.focus({ preventScroll: true });
    }
  };
  const busy = (e, on) => on ? e.setAttribute("aria-busy", "true") : e.removeAttribute("aria-busy");
  const allBusy = (on) => document.querySelectorAll("[data-live]").forEach((e) => busy(e, on));
  const stop = () => { if (source) source.close(); source = null; allBusy(false); };
  const ended = () => { stop(); say("The session has ended.", "login?next=" + encodeURIComponent(page)); };
  const start = () => {
    if (source || paused || document.hidden || !pause) return;
    allBusy(true); // until each part has come
    source = new EventSource("live?page=" + encodeURIComponent(page));
    source.addEventListener("open", () => { say(""); document.documentElement.dataset.live = "on"; });
    source.addEventListener("fragment", (e) => { const part = JSON.parse(e.data); replace(part); if ($(part.id)) busy($(part.id), false); document.documentElement.dataset.updates = +(document.documentElement.dataset.updates || 0) + 1; });
    source.addEventListener("failed", () => { allBusy(false); say("This page cannot be updated at the moment. Load it again to see why."); });
    source.addEventListener("ended", ended);
    source.addEventListener("error", () => {
      if (source && source.readyState === EventSource.CLOSED) ended();
      else say("The daemon does not answer. This page shows what was known; trying again…");
    });
  };
  const toggle = () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(!paused));
    pause.textContent = paused ? "Paused" : "Live";
    paused ? stop() : start();
  };
  if (pause) {
    pause.hidden = false;
    pause.title = "Pause or resume live updates (p)";
    pause.addEventListener("click", toggle);
    document.addEventListener("visibilitychange", () => document.hidden ? stop() : start());
    addEventListener("pagehide", stop);
    start();
  }

  // The page is busy from the click on a link or the sending of a form until the next page is there.
  const main = $("main");
  document.addEventListener("submit", (e) => { if (e.target.method !== "dialog") busy(main, true); });
  document.addEventListener("click", (e) => {
    const a = e.target.closest("a[href]");
    if (a && !e.ctrlKey && !e.metaKey && !e.shiftKey && !a.getAttribute("href").startsWith("#")) busy(main, true);
  });
  addEventListener("pageshow", () => busy(main, false));

  // Copying. Without TLS browsers have no clipboard for scripts, and copy what is selected.
  for (const b of document.querySelectorAll("[data-copy]")) {
    b.hidden = false;
    b.addEventListener("click", async () => {
      const text = b.parentElement.querySelector("pre");
      let done = true;
      try {
        await navigator.clipboard.writeText(text.textContent);
      } catch {
        getSelection().selectAllChildren(text);
        done = document.execCommand("copy");
      }
      b.textContent = done ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { b.textContent = "Copy"; }, 2000);
    });
  }

  // The theme, kept in a cookie so that the server renders it.
  const theme = $("theme"), root = document.documentElement;
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = "mailbox_theme=" + root.dataset.theme + "; max-age=31536000; samesite=lax";
  });

  // A one-time code in the fragment of the address, which no server sees, signs in.
  const login = $("login");
  if (login && location.hash.startsWith("#code-")) {
    $("token").value = location.hash.slice(1);
    history.replaceState(null, "", location.pathname + location.search);
    login.submit();
  }

  // Keys.
  const pages = { o: "./", q: "queues", t: "tenants", w: "workers", d: "dead", j: "jobs", r: "requests", s: "schedules", a: "access", h: "health" };
  let going = false; // g was pressed
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, select, textarea")) return;
    const tenant = new URLSearchParams(location.search).get("tenant"); // what is about a tenant stays in it
    const query = tenant ? "?tenant=" + encodeURIComponent(tenant) : "";
    const search = document.querySelector("[data-search]");
    if (e.key === "/" && $("help")) {
      e.preventDefault();
      if (search) search.focus();
      else location.href = "queues" + query + "#f-q"; // which browsers focus
    } else if (e.key === "?" && $("help")) {
      $("help").showModal();
    } else if (e.key === "p" && pause && !going) {
      toggle();
    } else if (e.key === "g") {
      going = true;
      return;
    } else if (going && pages[e.key] && $("help")) {
      location.href = pages[e.key] + ("tah".includes(e.key) ? "" : query);
    }
    going = false;
  });
})();
