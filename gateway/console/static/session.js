// One chat: what is said appears while it is said, whoever says it and from wherever.

import { call, filled, localTimes, toast } from "./console.js";

const chat = document.querySelector(".chat");
const texts = chat.dataset;
const key = texts.key;
const api = `/v1/sessions/${encodeURIComponent(key)}`;
const page = `/console/sessions/${encodeURIComponent(key)}`;
const items = document.getElementById("items");
const running = document.getElementById("running");
const composer = document.getElementById("composer");
const text = document.getElementById("text");
const problem = document.getElementById("problem");
const stop = document.getElementById("stop");
const link = document.getElementById("link");

const lastSeq = () => Math.max(0, ...[...items.querySelectorAll("[data-seq]")].map((item) => Number(item.dataset.seq)));
const atFoot = () => window.innerHeight + window.scrollY > document.body.scrollHeight - 120;
const toFoot = () => window.scrollTo(0, document.body.scrollHeight);

// --- what was said --------------------------------------------------------------------------------------------------

/** Asks for what came after the last message on the page. One at a time, and once more if something came meanwhile. */
let fetching = null;
let again = false;
async function fetchNew() {
  if (fetching) {
    again = true;
    return fetching;
  }
  fetching = (async () => {
    do {
      again = false;
      const stay = atFoot();
      const answer = await fetch(`${page}/entries?after=${lastSeq()}`);
      if (!answer.ok) return;
      running.dataset.turns = answer.headers.get("X-Running") ?? "";
      const part = document.createRange().createContextualFragment(await answer.text());
      for (const item of [...part.children]) {
        const known = item.id && document.getElementById(item.id);
        if (known) known.replaceWith(item);
      }
      localTimes(part);
      if (part.children.length) document.getElementById("empty")?.remove();
      items.append(part);
      if (stay) toFoot();
    } while (again);
  })().finally(() => (fetching = null));
  return fetching;
}

items.addEventListener("click", async (event) => {
  const before = event.target.dataset?.before;
  if (!before) return;
  const answer = await fetch(`${page}/entries?before=${before}`);
  if (!answer.ok) return toast(answer.statusText);
  const part = document.createRange().createContextualFragment(await answer.text());
  localTimes(part);
  const height = document.body.scrollHeight;
  event.target.closest("p").replaceWith(part);
  window.scrollBy(0, document.body.scrollHeight - height);
});

// --- what is being said -------------------------------------------------------------------------------------------

/** Replies being written, by turn: the place of the text, and the stream that brings it. */
const replies = new Map();

function follow(turn) {
  if (replies.has(turn)) return;
  const article = document.createElement("article");
  article.className = "message theirs";
  const body = document.createElement("div");
  body.className = "text plain";
  article.append(body);
  running.append(article);
  const stream = new EventSource(`/v1/turns/${turn}/events`);
  replies.set(turn, { article, stream });
  stream.addEventListener("delta", (event) => {
    const stay = atFoot();
    body.textContent += JSON.parse(event.data).text;
    if (stay) toFoot();
  });
  for (const name of ["tool_call", "tool_result"]) stream.addEventListener(name, fetchNew);
  stream.addEventListener("done", () => settle(turn));
  // the end of the turn, or of the connection: then the stream of the chat says how it goes on
  stream.addEventListener("error", (event) => (event.data === undefined ? drop(turn) : settle(turn)));
  showRunning();
}

function drop(turn) {
  replies.get(turn)?.stream.close();
  replies.get(turn)?.article.remove();
  replies.delete(turn);
  showRunning();
}

async function settle(turn) {
  replies.get(turn)?.stream.close();
  await fetchNew();
  for (const tag of items.querySelectorAll(".waiting")) tag.remove();
  drop(turn);
}

function showRunning() {
  running.hidden = replies.size === 0;
  stop.hidden = replies.size === 0;
}

/** At the start and after a lost connection: what was missed is on disk, and what runs is followed from its beginning. */
async function catchUp() {
  link.textContent = "";
  for (const turn of [...replies.keys()]) drop(turn);
  await fetchNew();
  for (const turn of running.dataset.turns.split(" ").filter(Boolean)) follow(turn);
}

const events = new EventSource(`/v1/events?keys=${encodeURIComponent(key)}`);
events.addEventListener("open", catchUp);
events.addEventListener("gap", catchUp);
events.addEventListener("error", (event) => {
  if (event.data === undefined) link.textContent = texts.offline;
});
events.addEventListener("accepted", (event) => {
  follow(JSON.parse(event.data).turn);
  fetchNew();
});
for (const name of ["compaction", "session.started", "session.ended", "done"]) events.addEventListener(name, fetchNew);

// --- saying something ----------------------------------------------------------------------------------------------

const kept = `draft ${key}`;
const newId = () => crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint8Array(16))].join("-");
let request = null;

/** The text and its request id outlive the page: sending it twice says it once. */
function keep() {
  try {
    if (text.value) localStorage.setItem(kept, JSON.stringify({ text: text.value, request }));
    else localStorage.removeItem(kept);
  } catch {
    // then it lives as long as the page
  }
}

try {
  const found = JSON.parse(localStorage.getItem(kept) ?? "null");
  if (found) [text.value, request] = [found.text, found.request];
} catch {
  // nothing usable was kept
}

text.addEventListener("input", () => {
  request = null;
  keep();
  suggest();
});

composer.addEventListener("submit", async (event) => {
  event.preventDefault();
  const said = text.value.trim();
  if (!said) return;
  request ??= newId();
  keep();
  problem.hidden = true;
  composer.setAttribute("aria-busy", "true");
  try {
    await call("POST", `${api}/messages?wait=0`, { text: said, request_id: request });
    text.value = "";
    request = null;
    keep();
    await fetchNew();
    toFoot();
  } catch (error) {
    problem.textContent = filled(texts.notSent, { why: error.message });
    problem.hidden = false;
  } finally {
    composer.removeAttribute("aria-busy");
    text.focus();
  }
});

stop.addEventListener("click", () => call("POST", `${api}/stop`).catch((error) => toast(error.message)));

// --- commands ------------------------------------------------------------------------------------------------------

const names = ["/new", "/reset", "/compact", "/status", "/context", "/usage", "/stop", "/model", "/resume", "/help"];
const list = document.getElementById("commands");

function suggest() {
  const typed = text.value;
  const fitting = /^\/\w*$/.test(typed) ? names.filter((name) => name.startsWith(typed) && name !== typed) : [];
  list.replaceChildren(
    ...fitting.map((name, at) => {
      const choice = document.createElement("li");
      choice.setAttribute("role", "option");
      choice.setAttribute("aria-selected", String(at === 0));
      choice.textContent = name;
      choice.addEventListener("click", () => complete(name));
      return choice;
    }),
  );
  list.hidden = !fitting.length;
}

function complete(name) {
  text.value = `${name} `;
  keep();
  suggest();
  text.focus();
}

text.addEventListener("keydown", (event) => {
  if (event.key === "Tab" && !list.hidden && !event.shiftKey) {
    event.preventDefault();
    complete(list.firstChild.textContent);
  } else if (event.key === "Escape") {
    list.hidden = true;
  } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    composer.requestSubmit();
  }
});

// --- actions -------------------------------------------------------------------------------------------------------

const acts = {
  compact: async () => toast((await call("POST", `${api}/compact`, {})).outcome),
  reset: async () => {
    await call("POST", `${api}/reset`);
    location.reload();
  },
  delete: async () => {
    await call("DELETE", api);
    location.assign("/console/sessions");
  },
  fork: async (button) => {
    const to = prompt(button.dataset.ask, `${key}-copy`);
    if (!to) return;
    await call("POST", `${api}/fork`, { to });
    location.assign(`/console/sessions/${encodeURIComponent(to)}`);
  },
};

for (const button of document.querySelectorAll("[data-act]")) {
  button.addEventListener("click", async () => {
    if (button.dataset.sure && !confirm(button.dataset.sure)) return;
    button.disabled = true;
    try {
      await acts[button.dataset.act](button);
    } catch (error) {
      toast(error.message);
    } finally {
      button.disabled = false;
    }
  });
}

toFoot();
