// Filters the rows of a table by the words in a field: a row stays if it contains all of them.
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
  field.addEventListener("input", filter);
  filter(); // the field keeps its words when the user goes back to the page
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== field) {
      event.preventDefault();
      field.focus();
    }
  });
}
