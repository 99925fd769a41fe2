// Filters the rows of a table by the words in a field: a row stays if it contains all of them. The fragment of the
// address keeps the words, so that they survive a reload and can be sent as a link.
"use strict";

for (const field of document.querySelectorAll("[data-filters]")) {
  const rows = [...document.querySelectorAll(`#${field.dataset.filters} tbody tr`)];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const left = document.getElementById("left");
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, place) => {
      row.hidden = !words.every((word) => texts[place].includes(word));
      shown += row.hidden ? 0 : 1;
    });
    left.textContent = words.length ? `${shown} of ${rows.length}` : "";
  };
  const restore = () => {
    const isPlace = location.hash && !location.hash.startsWith("#filter="); // on the page, such as #content
    if (!isPlace) field.value = new URLSearchParams(location.hash.slice(1)).get("filter") ?? "";
    filter();
  };
  field.addEventListener("input", () => {
    filter();
    const kept = new URLSearchParams({ filter: field.value });
    history.replaceState(null, "", field.value ? `#${kept}` : location.pathname + location.search);
  });
  addEventListener("hashchange", restore);
  addEventListener("pageshow", restore); // after the browser has filled in the words of an earlier visit
  restore();
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== field) {
      event.preventDefault();
      field.focus();
    }
  });
}
