// A section of a page that is at work is read anew until the work is done.

import { localTimes } from "./console.js";

const EVERY_MS = 2000;

async function again(section) {
  const answer = await fetch(location.href).catch(() => null);
  const page = answer?.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
  const fresh = page?.getElementById(section.id);
  if (!fresh) return follow(section);
  if (!("busy" in fresh.dataset)) return location.reload();
  localTimes(fresh);
  section.replaceWith(fresh);
  follow(fresh);
}

function follow(section) {
  if ("busy" in section.dataset) setTimeout(() => again(section), EVERY_MS);
}

for (const section of document.querySelectorAll("[data-refresh]")) follow(section);
