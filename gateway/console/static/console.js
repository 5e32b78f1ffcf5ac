// What every page has: the theme, times in the reader's own zone, calls of the API.

const csrf = document.querySelector("meta[name=csrf]").content;

/** Calls the API; gives the answer's JSON, or throws an Error with what the daemon said. */
export async function call(method, path, body) {
  const headers = { Accept: "application/json" };
  if (csrf) headers["X-Sessiond-CSRF"] = csrf;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) }).catch(() => {
    throw new Error(document.body.dataset.unreachable);
  });
  const content = await answer.json().catch(() => ({}));
  if (answer.status === 401) location.assign("/console/login");
  if (!answer.ok) {
    const said = content.detail || content.title || `${answer.status} ${answer.statusText}`;
    throw Object.assign(new Error(said), { status: answer.status });
  }
  return content;
}

/** A call when the page is left: it goes out, and nobody hears what came of it. */
export function last(method, path) {
  fetch(path, { method, keepalive: true, headers: csrf ? { "X-Sessiond-CSRF": csrf } : {} });
}

/** Says something at the foot of the page; `undo` has a label and a call, and adds a button. */
export function toast(text, undo) {
  const place = document.getElementById("toast");
  place.textContent = text;
  if (undo) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = undo.label;
    button.addEventListener("click", () => takeBack(undo), { once: true });
    place.append(button);
  }
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => place.replaceChildren(), undo ? 10_000 : 6_000);
}

async function takeBack(undo) {
  try {
    if (undo.act) await undo.act();
    else await call(...undo.call.split(" "), {});
    location.reload();
  } catch (error) {
    toast(error.message);
  }
}

/** Says it on the page that comes next. */
export function toastLater(text, undo) {
  try {
    sessionStorage.setItem("toast", JSON.stringify({ text, undo }));
  } catch {
    // then it is not said: the page shows what came of it
  }
}

/** Writes the times of a part of the page in the zone and language of the reader. */
export function localTimes(root) {
  const now = new Date();
  for (const place of root.querySelectorAll("time:not([title])")) {
    const at = new Date(place.dateTime);
    place.title = at.toLocaleString();
    if ("full" in place.dataset) {
      place.textContent = at.toLocaleString([], { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
      continue;
    }
    place.textContent =
      at.toDateString() === now.toDateString()
        ? at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })
        : at.toLocaleDateString([], { day: "numeric", month: "short", year: at.getFullYear() === now.getFullYear() ? undefined : "numeric" });
  }
}

/** Fills the `{name}` places of a text. */
export const filled = (text, values) => text.replace(/\{(\w+)\}/g, (whole, name) => values?.[name] ?? whole);

const root = document.documentElement;
try {
  root.dataset.theme = localStorage.getItem("theme") ?? "";
} catch {
  // a browser without storage follows the system
}
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch {
    // then only until the page is left
  }
});

for (const form of document.querySelectorAll("[data-new-chat]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.assign(`/console/sessions/${encodeURIComponent(form.elements.key.value.trim())}`);
  });
}

localTimes(document);

try {
  const kept = JSON.parse(sessionStorage.getItem("toast") ?? "null");
  sessionStorage.removeItem("toast");
  if (kept) toast(kept.text, kept.undo);
} catch {
  // nothing was to be said
}
