// Shows the parts of a benchmark's page that belong to the chosen size. The choice is kept in the fragment of the
// address by its name, so that a link to a size stays right when a later page has more sizes.
"use strict";

{
  const form = document.getElementById("chooser");
  const field = document.getElementById("point");
  if (form) {
    const parts = [...document.querySelectorAll("[data-choices]")].map((part) => [part, new Set(part.dataset.choices.split(" "))]);
    const names = [...field.options].map((option) => option.text);
    const first = field.querySelector("[selected]").value;

    const show = () => {
      for (const [part, choices] of parts) part.hidden = !choices.has(field.value);
    };
    const keep = () => {
      const kept = new URLSearchParams({ size: names[field.selectedIndex] }).toString();
      history.replaceState(null, "", field.value === first ? location.pathname + location.search : `#${kept}`);
    };
    const restore = () => {
      const fragment = location.hash.slice(1);
      if (fragment && !fragment.includes("=")) return; // a place on the page, such as #content
      const place = names.indexOf(new URLSearchParams(fragment).get("size"));
      field.value = place < 0 ? first : String(place);
      show();
    };

    field.addEventListener("change", () => {
      show();
      keep();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    addEventListener("hashchange", restore);
    form.hidden = false;
    restore();
  }
}
