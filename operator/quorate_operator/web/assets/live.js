// Keeps the page up to date: the server sends the parts that changed. Without this script the page still works.
"use strict";
(() => {
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  const words = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "short" });

  function ago(time) {
    const seconds = Math.round((Date.parse(time.dateTime) - Date.now()) / 1000);
    const size = Math.abs(seconds);
    if (size < 90) return words.format(seconds, "second");
    if (size < 5400) return words.format(Math.round(seconds / 60), "minute");
    if (size < 129600) return words.format(Math.round(seconds / 3600), "hour");
    return words.format(Math.round(seconds / 86400), "day");
  }

  function tellTimes(root) {
    for (const time of root.querySelectorAll("time")) {
      if (!time.title) time.title = time.textContent;
      time.textContent = ago(time);
    }
  }

  function show(id, html) {
    const part = document.getElementById(id);
    if (!part) return;
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = Array.from(part.querySelectorAll(".scroll"), (table) => table.scrollLeft);
    part.innerHTML = html;
    tellTimes(part);
    part.querySelectorAll(".scroll").forEach((table, place) => { table.scrollLeft = scrolled[place] || 0; });
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  function say(text, isLive) {
    live.textContent = text;
    live.classList.toggle("on", isLive);
  }

  const stream = new EventSource(main.dataset.stream);
  stream.onopen = () => say("live", true);
  stream.onerror = () => say("not live, connecting again", false);
  stream.onmessage = (message) => {
    for (const [id, html] of Object.entries(JSON.parse(message.data))) show(id, html);
  };
  stream.addEventListener("gone", () => { stream.close(); say("this cluster is gone", false); });
  tellTimes(document);
  setInterval(() => tellTimes(document), 1000);
})();
