// The form of a job: its next times while they are typed.

import { call } from "./console.js";

for (const form of document.querySelectorAll("[data-job]")) {
  const place = form.querySelector(".preview");
  let timer;

  const preview = async () => {
    const asked = new URLSearchParams();
    for (const name of ["schedule", "every", "timezone"]) {
      const value = form.elements[name].value.trim();
      if (value) asked.set(name, value);
    }
    place.replaceChildren();
    if (!asked.has("schedule") && !asked.has("every")) return;
    try {
      const { next, notes } = await call("GET", `/v1/jobs/preview?${asked}`);
      const title = document.createElement("b");
      title.textContent = place.dataset.title;
      const list = document.createElement("ul");
      for (const { local } of next) list.append(line(new Date(local).toLocaleString([], { dateStyle: "full", timeStyle: "short" })));
      place.append(title, list, notes.join(" "));
    } catch (error) {
      place.textContent = error.message;
    }
  };

  const line = (text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  };

  form.addEventListener("input", (event) => {
    if (!["schedule", "every", "timezone"].includes(event.target.name)) return;
    clearTimeout(timer);
    timer = setTimeout(preview, 300);
  });
}
