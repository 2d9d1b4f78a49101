// Keeps the page current: one stream of invalidations, parts fetched again with If-None-Match, times that tick.
//
//   [data-live="scope scope"]  a part, fetched from its data-src when one of its scopes changes
//   time[data-age]             shown as an age
//   time[data-deadline]        shown as what is left, never below 0; with data-overdue as what it is over
//   time[data-clock]           shown as a time of day, in UTC or the browser's zone
//
// Everything is read from the document at the moment of use, because the page is morphed in place.
(() => {
  "use strict";

  const THROTTLE = 1000; // between two fetches of one part
  const POLL = 10000; // while there is no stream
  const SILENCE = 25000; // a stream says something every 10 s; a longer silence is a loss
  const BACKOFF = [500, 1000, 2000, 4000, 8000, 15000];
  const SPOKEN = 10000; // between two summaries for screen readers

  const byId = (id) => document.getElementById(id);
  const page = () => byId("page");
  const paused = () => page().dataset.refresh === "off";

  // ---- the server's clock

  let offset = 0; // server minus browser, ms
  let lastGood = null; // server's clock at the last word from it
  let roundTrip = Infinity;

  const serverNow = () => Date.now() + offset;

  // The sample with the shortest round trip tells the clock best; age out slowly so that a stepped clock is followed.
  function learnClock(ms, trip) {
    if (!(ms > 0)) return;
    roundTrip = roundTrip * 1.05 + 1;
    if (trip <= roundTrip || Math.abs(ms - serverNow()) > 2000) {
      offset = ms - Date.now();
      roundTrip = trip;
    }
    lastGood = serverNow();
  }

  // ---- times

  const pad = (n) => String(n).padStart(2, "0");

  function clock(date) {
    const local = page().dataset.time === "local";
    const [h, m, s] = local
      ? [date.getHours(), date.getMinutes(), date.getSeconds()]
      : [date.getUTCHours(), date.getUTCMinutes(), date.getUTCSeconds()];
    return pad(h) + ":" + pad(m) + ":" + pad(s);
  }

  function day(date) {
    const zone = page().dataset.time === "local" ? {} : { timeZone: "UTC" };
    return date.toLocaleDateString("en-GB", { day: "numeric", month: "short", ...zone });
  }

  function span(seconds) {
    if (seconds < 60) return seconds + " s";
    if (seconds < 3600) return Math.floor(seconds / 60) + " min " + pad(seconds % 60) + " s";
    if (seconds < 172800) return Math.floor(seconds / 3600) + " h " + Math.floor((seconds % 3600) / 60) + " min";
    return Math.floor(seconds / 86400) + " d";
  }

  // An age needs no seconds once it has minutes.
  function aged(seconds) {
    return seconds < 60 || seconds >= 3600 ? span(seconds) : Math.floor(seconds / 60) + " min";
  }

  function put(el, text) {
    if (el.textContent !== text) el.textContent = text;
  }

  function renderTimes() {
    const now = serverNow();
    for (const el of document.querySelectorAll("time[datetime]")) {
      const at = new Date(el.getAttribute("datetime"));
      const t = at.getTime();
      if (Number.isNaN(t)) continue;
      if (el.hasAttribute("data-age")) {
        put(el, aged(Math.max(0, Math.floor((now - t) / 1000))));
      } else if (el.hasAttribute("data-overdue")) {
        put(el, "overdue +" + span(Math.max(0, Math.floor((now - t) / 1000))));
      } else if (el.hasAttribute("data-deadline")) {
        put(el, span(Math.max(0, Math.ceil((t - now) / 1000))));
      } else if (el.hasAttribute("data-clock")) {
        put(el, day(at) === day(new Date(now)) ? clock(at) : day(at) + " " + clock(at).slice(0, 5));
      }
    }
  }

  // The full moment, for whoever points at a time.
  document.addEventListener("pointerover", (e) => {
    const el = e.target.closest && e.target.closest("time[datetime]");
    if (!el) return;
    const at = new Date(el.getAttribute("datetime"));
    el.title = page().dataset.time === "local" ? at.toString() : at.toUTCString();
  });

  // ---- parts

  const parts = new Map(); // id → {at, timer, busy, dirty, etag, src}

  function state(id) {
    if (!parts.has(id)) parts.set(id, { at: 0, timer: 0, busy: false, dirty: false, etag: "", src: "" });
    return parts.get(id);
  }

  function invalidate(scope) {
    for (const el of document.querySelectorAll("[data-live]")) {
      if (scope === "*" || el.dataset.live.split(" ").includes(scope)) schedule(el.id);
    }
  }

  function schedule(id) {
    const p = state(id);
    if (p.busy) {
      p.dirty = true;
      return;
    }
    if (p.timer) return;
    p.timer = setTimeout(() => {
      p.timer = 0;
      fetchPart(id, p);
    }, Math.max(0, p.at + THROTTLE - Date.now()));
  }

  async function fetchPart(id, p) {
    const el = byId(id);
    if (!el || paused() || document.hidden) return;
    const src = el.dataset.src;
    if (p.src !== src) {
      p.src = src;
      p.etag = "";
    }
    p.busy = true;
    p.at = Date.now();
    try {
      // select "unset": the page's own hx-select is for whole pages.
      await htmx.ajax("GET", src, {
        source: el,
        target: "#" + id,
        swap: "morph:outerHTML",
        select: "unset",
        headers: p.etag ? { "If-None-Match": p.etag } : {},
      });
    } catch {
      // htmx:sendError has told already.
    }
    p.busy = false;
    if (p.dirty) {
      p.dirty = false;
      schedule(id);
    }
  }

  // What somebody is typing is newer than the answer.
  Idiomorph.defaults.ignoreActiveValue = true;

  // Fields left empty say nothing in the address.
  document.addEventListener("htmx:configRequest", (e) => {
    const form = e.detail.formData;
    for (const name of [...form.keys()]) {
      if (form.get(name) === "") form.delete(name);
    }
  });

  const isPart = (el) => el && el.dataset && el.dataset.live !== undefined;

  // An answer to an address that the part has left behind is dropped; an error page is shown where a page was asked for.
  document.addEventListener("htmx:beforeSwap", (e) => {
    const { target, xhr, pathInfo } = e.detail;
    if (isPart(target)) {
      if (pathInfo && pathInfo.requestPath !== target.dataset.src) e.detail.shouldSwap = false;
      if (xhr.status === 404) location.reload();
    } else if (target && target.id === "page" && xhr.status >= 400) {
      e.detail.shouldSwap = true;
      e.detail.isError = false;
    }
  });

  document.addEventListener("htmx:afterOnLoad", (e) => {
    const { target, xhr, pathInfo } = e.detail;
    if (isPart(target) && xhr.status === 200 && pathInfo.requestPath === target.dataset.src) {
      state(target.id).etag = xhr.getResponseHeader("ETag") || "";
    }
    if (xhr.status < 500) heard(Number(xhr.getResponseHeader("X-Server-Now")), 1000);
  });

  document.addEventListener("htmx:sendError", () => {
    if (!paused()) lose();
  });

  // A morph puts the server's coarse texts in place; they are replaced before anything is painted.
  document.addEventListener("htmx:afterSwap", (e) => {
    if (e.target.id === "page" || (e.detail.target && e.detail.target.id === "page")) follow(e);
    renderTimes();
    renderTab();
    renderConn();
    revealCopy();
  });

  // A link inside the page has led somewhere else: the mode may have changed, and on a phone the list is further down.
  function follow(e) {
    if (paused()) disconnect();
    else if (!stream && !retry) connect();
    const from = e.detail.requestConfig && e.detail.requestConfig.elt;
    if (from && from.classList && from.classList.contains("tile") && matchMedia("(max-width: 860px)").matches) {
      const list = byId("part-peers");
      if (list) list.scrollIntoView();
    }
  }

  // ---- what the tab shows

  let spoken = "";
  let spokenAt = 0;

  function renderTab() {
    const glance = byId("part-glance");
    if (!glance) return;
    if (glance.dataset.title && document.title !== glance.dataset.title) document.title = glance.dataset.title;
    const icon = byId("icon");
    const href = glance.hasAttribute("data-alert") ? icon.dataset.alert : icon.dataset.calm;
    if (icon.getAttribute("href") !== href) icon.setAttribute("href", href);
    speak(glance.dataset.summary || "");
  }

  function speak(text) {
    if (!spoken) {
      spoken = text; // what the page said when it was opened is on the page
      return;
    }
    if (text === spoken || Date.now() - spokenAt < SPOKEN) return;
    spoken = text;
    spokenAt = Date.now();
    byId("announce").textContent = text;
  }

  // ---- the connection

  let stream = null;
  let streamOpen = false;
  let retry = 0; // the timer of the next attempt
  let failures = 0;
  let heardAt = 0;
  let lost = false;

  const CONN = {
    live: "Live",
    poll: "Every 10 s",
    connecting: "Connecting",
    lost: "Disconnected",
    paused: "Paused",
  };

  function connState() {
    if (paused()) return "paused";
    if (lost) return "lost";
    if (streamOpen) return "live";
    return failures > 0 ? "poll" : "connecting";
  }

  function renderConn() {
    const el = byId("conn");
    if (!el) return;
    const s = connState();
    el.dataset.state = s;
    put(el, CONN[s]);
  }

  // The server answered, by whatever way.
  function heard(now, trip) {
    learnClock(now, trip);
    if (lost) {
      lost = false;
      byId("lost").hidden = true;
      invalidate("*");
    }
    renderConn();
  }

  function lose() {
    if (!lost) {
      lost = true;
      const el = byId("lost");
      const zone = page().dataset.time === "local" ? "" : " UTC";
      el.textContent = "Connection lost, showing data from " + clock(new Date(lastGood || serverNow())) + zone;
      el.hidden = false;
    }
    renderConn();
  }

  function connect() {
    clearTimeout(retry);
    retry = 0;
    if (stream || paused() || document.hidden || !window.EventSource) return;
    const started = Date.now();
    const s = new EventSource(page().dataset.stream);
    stream = s;
    heardAt = Date.now();
    s.addEventListener("hello", (e) => {
      streamOpen = true;
      failures = 0;
      heardAt = Date.now();
      heard(JSON.parse(e.data).now, Date.now() - started);
      renderTimes();
      invalidate("*"); // what changed before the stream was there
    });
    s.addEventListener("ping", (e) => {
      heardAt = Date.now();
      heard(JSON.parse(e.data).now, 1000);
    });
    s.addEventListener("invalidate", (e) => {
      heardAt = Date.now();
      lastGood = serverNow();
      invalidate(JSON.parse(e.data).scope);
    });
    // Its own reconnecting has neither jitter nor backoff.
    s.onerror = () => dropped();
    renderConn();
  }

  function close() {
    if (stream) stream.close();
    stream = null;
    streamOpen = false;
  }

  function dropped() {
    const was = streamOpen;
    close();
    const base = BACKOFF[Math.min(failures, BACKOFF.length - 1)];
    failures++;
    clearTimeout(retry);
    retry = setTimeout(connect, base / 2 + Math.random() * base);
    if (was) poll(); // tells at once whether the server is gone or only the stream
    else renderConn();
  }

  function disconnect() {
    clearTimeout(retry);
    retry = 0;
    failures = 0;
    close();
    lost = false;
    byId("lost").hidden = true;
    renderConn();
  }

  // Without a stream the parts are fetched anyhow.
  function poll() {
    if (paused() || document.hidden || streamOpen) return;
    invalidate("*");
  }

  setInterval(poll, POLL);

  setInterval(() => {
    if (paused() || document.hidden) return;
    if (streamOpen && Date.now() - heardAt > SILENCE) dropped();
    renderTimes();
  }, 1000);

  // A hidden tab costs the server nothing.
  document.addEventListener("visibilitychange", () => {
    if (paused()) return;
    if (document.hidden) {
      clearTimeout(retry);
      retry = 0;
      close();
    } else {
      failures = 0;
      renderTimes();
      connect();
    }
  });

  // A page that goes into the back/forward cache must not keep a stream; one that comes out needs a new one.
  addEventListener("pagehide", close);
  addEventListener("pageshow", (e) => {
    if (e.persisted) connect();
  });

  // ---- copying

  function revealCopy() {
    for (const b of document.querySelectorAll("button[data-copy][hidden]")) b.hidden = false;
  }

  document.addEventListener("click", async (e) => {
    const b = e.target.closest && e.target.closest("button[data-copy]");
    if (!b) return;
    const source = byId(b.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      b.textContent = "Copied";
    } catch {
      // No clipboard without a secure context: select it, so that one key press copies it.
      getSelection().selectAllChildren(source);
      b.textContent = "Press Ctrl+C";
    }
    setTimeout(() => (b.textContent = "Copy"), 2000);
  });

  // ---- start

  document.documentElement.classList.add("js");
  revealCopy();
  renderTab();
  renderConn();
  if (paused()) {
    // One question for the clock; nothing ticks.
    fetch(location.href, { method: "HEAD" })
      .then((r) => learnClock(Number(r.headers.get("X-Server-Now")), 1000))
      .catch(() => {})
      .then(renderTimes);
  } else {
    renderTimes();
    connect();
  }
})();
