// One chat: what is said appears while it is said, whoever says it and from wherever.

import { compose } from "./composer.js";
import { call, filled, localTimes, toast } from "./console.js";

const chat = document.querySelector(".chat");
const texts = chat.dataset;
const key = texts.key;
const api = `/v1/sessions/${encodeURIComponent(key)}`;
const page = `/console/sessions/${encodeURIComponent(key)}`;
const items = document.getElementById("items");
const running = document.getElementById("running");
const stop = document.getElementById("stop");
const link = document.getElementById("link");

const lastSeq = () => Math.max(0, ...[...items.querySelectorAll("[data-seq]")].map((item) => Number(item.dataset.seq)));
const atFoot = () => window.innerHeight + window.scrollY > document.body.scrollHeight - 120;
const toFoot = () => window.scrollTo(0, document.body.scrollHeight);

// --- what was said --------------------------------------------------------------------------------------------------

const parsed = (html) => document.createRange().createContextualFragment(html);
let session = texts.session;

/** Asks for what came after the last message on the page. One at a time, and once more if something came meanwhile. */
let fetching = null;
let again = false;
function fetchNew() {
  again = true;
  fetching ??= (async () => {
    while (again) {
      again = false;
      await fetchOnce();
    }
  })().finally(() => (fetching = null));
  return fetching;
}

async function fetchOnce() {
  const answer = await fetch(`${page}/entries?after=${lastSeq()}`);
  if (!answer.ok) throw new Error(answer.statusText);
  const told = answer.headers;
  if (told.get("X-Session") && told.get("X-Session") !== session) {
    // another session has begun: its messages are numbered anew, those of the former one stay on the page
    if (session) for (const item of items.querySelectorAll("[data-seq]")) [item.id, item.dataset.seq] = ["", "0"];
    session = told.get("X-Session");
    again = true;
    return;
  }
  running.dataset.turns = told.get("X-Running") ?? "";
  showCompacting(told.get("X-Compacting") ? texts.compacting : "");
  const stay = atFoot();
  const part = parsed(await answer.text());
  localTimes(part);
  if (part.children.length) document.getElementById("empty")?.remove();
  for (const item of [...part.children]) {
    const known = item.id && document.getElementById(item.id);
    if (known) known.replaceWith(item);
    else items.append(item);
    // the whole reply stands where it stays: in the same moment it goes from where it was written
    replies.get(item.dataset.reply)?.article.remove();
  }
  if (stay) toFoot();
}

items.addEventListener("click", async (event) => {
  const before = event.target.dataset?.before;
  if (!before) return;
  event.preventDefault();
  const answer = await fetch(`${page}/entries?before=${before}`);
  if (!answer.ok) return toast(answer.statusText);
  const part = parsed(await answer.text());
  localTimes(part);
  const height = document.body.scrollHeight;
  event.target.closest("p").replaceWith(part);
  window.scrollBy(0, document.body.scrollHeight - height);
});

// older messages come by themselves when the reader scrolls up to them
new IntersectionObserver((seen) => {
  if (seen.some((one) => one.isIntersecting) && window.scrollY > 0) items.querySelector("[data-before]")?.click();
}).observe(items.firstElementChild ?? items);

// --- what stands beside it ----------------------------------------------------------------------------------------

/** Puts in the pieces of the panel that have changed; not the one somebody is typing in. */
async function refreshPanel() {
  const answer = await fetch(`${page}/panel`);
  if (!answer.ok) return;
  const part = parsed(await answer.text());
  localTimes(part);
  const panel = document.getElementById("panel");
  if (!panel.querySelector("[data-piece]")) panel.replaceChildren(...part.getElementById("panel").children);
  for (const piece of part.querySelectorAll("[data-piece]")) {
    const known = document.getElementById(piece.id);
    if (!known) continue;
    if (known.contains(document.activeElement) && known.id !== "queue") continue;
    const open = [...known.querySelectorAll("details")].map((one) => one.open);
    piece.querySelectorAll("details").forEach((one, at) => (one.open = open[at] ?? false));
    known.replaceWith(piece);
  }
}

document.addEventListener("changed", () => Promise.all([fetchNew(), refreshPanel()]));

const compacting = document.getElementById("compacting");
function showCompacting(said) {
  compacting.textContent = said;
  compacting.hidden = !said;
}

document.querySelector(".talk").addEventListener("click", async (event) => {
  const what = event.target.dataset?.queue;
  if (!what) return;
  const turn = event.target.closest("li").dataset.turn;
  const said = event.target.closest("li").querySelector(".text").textContent;
  try {
    const { stopped } = await call("POST", `/v1/turns/${turn}/stop`);
    if (what === "edit" && stopped) composer.put(said);
    await Promise.all([fetchNew(), refreshPanel()]);
  } catch (error) {
    toast(error.message);
  }
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
  let said = "";
  stream.addEventListener("delta", (event) => {
    const stay = atFoot();
    said += JSON.parse(event.data).text;
    body.textContent = said;
    if (stay) toFoot();
  });
  // what is said before a call is a message of its own, which the chat holds by now
  stream.addEventListener("tool_call", () => {
    said = "";
    fetchNew().then(() => (body.textContent = said));
  });
  for (const name of ["tool_result", "recall"]) stream.addEventListener(name, fetchNew);
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
  await fetchNew().catch(() => {});
  for (const tag of items.querySelectorAll(".waiting")) if (tag.dataset.turn === turn) tag.remove();
  drop(turn);
  await refreshPanel();
}

function showRunning() {
  running.hidden = replies.size === 0;
  stop.hidden = replies.size === 0;
}

/** At the start and after a lost connection: what was missed is on disk, and what runs is followed from its beginning. */
async function catchUp() {
  for (const turn of [...replies.keys()]) drop(turn);
  try {
    await fetchNew();
  } catch {
    return; // the stream says when the daemon is back
  }
  link.textContent = "";
  for (const turn of running.dataset.turns.split(" ").filter(Boolean)) follow(turn);
  if (session) await refreshPanel();
}

let events = null;
function listen() {
  events = new EventSource(`/v1/events?keys=${encodeURIComponent(key)}`);
  events.addEventListener("open", catchUp);
  events.addEventListener("gap", catchUp);
  events.addEventListener("error", (event) => {
    if (event.data !== undefined) return;
    link.textContent = texts.offline;
    // a browser gives up when the daemon refuses it while it starts
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  });
  events.addEventListener("accepted", (event) => {
    follow(JSON.parse(event.data).turn);
    fetchNew().then(refreshPanel, () => {});
  });
  events.addEventListener("compaction", (event) => {
    const told = JSON.parse(event.data);
    if (told.state === "progress") showCompacting(filled(texts.compactingOf, told));
    else fetchNew().then(refreshPanel, () => {});
  });
  for (const name of ["session.started", "session.ended", "done"]) {
    events.addEventListener(name, () => fetchNew().then(refreshPanel, () => {}));
  }
}
listen();

// --- saying something ----------------------------------------------------------------------------------------------

const stopReply = () => call("POST", `${api}/stop`).catch((error) => toast(error.message));
stop.addEventListener("click", stopReply);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.defaultPrevented && replies.size) stopReply();
});

const composer = compose({
  key,
  api,
  notSent: texts.notSent,
  sent: async () => {
    await fetchNew().catch(() => {});
    toFoot();
  },
});

toFoot();
