// The tabs of a series' page: each shows another metric over the same runs. The address holds the chosen tab.
"use strict";

// Fills the list of tabs, and calls `show` with the data of the chosen tab, now and whenever another is chosen.
function makeTabs(data, show) {
  const list = document.getElementById("tabs");
  if (!list || data.tabs.length < 2) return;
  const panel = document.getElementById("panel");
  const buttons = data.tabs.map((tab, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.id = `tab-${place}`;
    button.setAttribute("role", "tab");
    button.setAttribute("aria-controls", "panel");
    button.textContent = tab.name;
    button.addEventListener("click", () => choose(place, true));
    return button;
  });

  const choose = (place, write) => {
    const tab = data.tabs[place];
    buttons.forEach((button, at) => {
      button.setAttribute("aria-selected", String(at === place));
      button.tabIndex = at === place ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", buttons[place].id);
    // The first tab is the address without a tab, so that links to the page stay short.
    if (write) history.replaceState(null, "", place ? `#tab=${encodeURIComponent(tab.key)}` : location.pathname + location.search);
    show({ ...data, ...tab });
  };
  const ofAddress = () => {
    const chosen = new URLSearchParams(location.hash.slice(1)).get("tab");
    return Math.max(0, data.tabs.findIndex((tab) => tab.key === chosen));
  };

  list.append(...buttons);
  list.hidden = false;
  panel.setAttribute("role", "tabpanel");
  list.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(document.activeElement);
    const last = buttons.length - 1;
    const to = { ArrowLeft: at ? at - 1 : last, ArrowRight: at < last ? at + 1 : 0, Home: 0, End: last }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    choose(to, true);
    buttons[to].focus();
  });
  // Other parts of an address, such as #table, choose no tab.
  window.addEventListener("hashchange", () => { if (!location.hash || location.hash.startsWith("#tab=")) choose(ofAddress(), false); });
  choose(ofAddress(), false);
}
