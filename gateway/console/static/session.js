// One chat: what is said appears while it is said, whoever says it and from wherever.

import { compose } from "./composer.js";
import { call, filled, localTimes, toast } from "./console.js";
import { follow } from "./live.js";
import { putPieces, readAgain } from "./pieces.js";

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
  if (answer.redirected) return location.assign("/console/login");
  if (!answer.ok) throw new Error(answer.statusText);
  const told = answer.headers;
  if (told.get("X-Session") && told.get("X-Session") !== session) {
    // another session has begun: its messages are numbered anew, those of the former one stay on the page
    if (session) for (const item of items.querySelectorAll("[data-seq]")) [item.id, item.dataset.seq] = ["", "0"];
    for (const button of items.querySelectorAll("[data-before]")) delete button.dataset.before;
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

/** Puts older messages above those on the page; what is read stays where it is. */
async function showOlder(button) {
  if (button.hasAttribute("aria-busy")) return;
  button.setAttribute("aria-busy", "true");
  const answer = await fetch(`${page}/entries?before=${button.dataset.before}`).catch(() => null);
  button.removeAttribute("aria-busy");
  if (!answer?.ok) return toast(answer?.statusText ?? texts.offline);
  const part = parsed(await answer.text());
  localTimes(part);
  const place = button.closest("p");
  const next = place.nextElementSibling;
  const stood = next.getBoundingClientRect().top;
  place.replaceWith(part);
  window.scrollBy({ top: next.getBoundingClientRect().top - stood, behavior: "instant" });
  watchOlder();
}

items.addEventListener("click", (event) => {
  if (!event.target.dataset?.before) return;
  event.preventDefault();
  showOlder(event.target);
});

// older messages come by themselves when the reader scrolls up to them
const nearOlder = new IntersectionObserver(
  (seen) => {
    for (const one of seen) if (one.isIntersecting) one.target.querySelector("[data-before]")?.click();
  },
  { rootMargin: "400px 0px 0px" },
);

function watchOlder() {
  nearOlder.disconnect();
  const place = items.querySelector(".older");
  if (place) nearOlder.observe(place);
}

// --- what stands beside it ----------------------------------------------------------------------------------------

async function refreshPanel() {
  const fresh = await readAgain(`${page}/panel`);
  if (!fresh) return;
  const panel = document.getElementById("panel");
  if (!panel.querySelector("[data-piece]")) panel.replaceChildren(...fresh.getElementById("panel").cloneNode(true).children);
  putPieces(fresh);
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

/** Replies being written, by turn: the place of the text, and what of it is not in the chat yet. */
const replies = new Map();
/** Turns whose end has been told: an older answer of the daemon may still call them running. */
const over = new Set();

function replyOf(turn) {
  if (!replies.has(turn)) {
    const article = document.createElement("article");
    article.className = "message theirs";
    const body = document.createElement("div");
    body.className = "text plain";
    article.append(body);
    running.append(article);
    replies.set(turn, { article, body, said: "" });
    showRunning();
  }
  return replies.get(turn);
}

function write({ turn, text }) {
  const reply = replyOf(turn);
  const stay = atFoot();
  reply.said += text;
  reply.body.textContent = reply.said;
  if (stay) toFoot();
}

/** What is said before a call is a message of its own, which the chat holds by now. */
function calledTool({ turn }) {
  const reply = replyOf(turn);
  reply.said = "";
  return fetchNew().then(() => (reply.body.textContent = reply.said), () => {});
}

function drop(turn) {
  replies.get(turn)?.article.remove();
  replies.delete(turn);
  showRunning();
}

async function settle({ turn }) {
  over.add(turn);
  await readNew();
  for (const tag of items.querySelectorAll(".waiting")) if (tag.dataset.turn === turn) tag.remove();
  drop(turn);
  await refreshPanel();
}

function showRunning() {
  running.hidden = replies.size === 0;
  stop.hidden = replies.size === 0;
}

/** What was missed is on disk; of a reply that is being written all that is not there comes again. */
async function catchUp(events) {
  const former = [...replies.keys()];
  const before = `${lastSeq()} ${former}`;
  for (const reply of replies.values()) reply.said = "";
  await fetchNew();
  link.textContent = "";
  const now = running.dataset.turns.split(" ").filter((turn) => turn && !over.has(turn));
  for (const turn of former) if (!now.includes(turn)) drop(turn);
  for (const turn of now) {
    const { body, said } = replyOf(turn);
    body.textContent = said;
  }
  if (session && (events || before !== `${lastSeq()} ${[...replies.keys()]}`)) await refreshPanel();
}

const readNew = () => fetchNew().catch(() => {});
const readOn = () => fetchNew().then(refreshPanel, () => {});

follow(`/v1/events?keys=${encodeURIComponent(key)}&text=true`, {
  begun: catchUp,
  lost: () => (link.textContent = texts.offline),
  events: {
    accepted({ turn }) {
      if (!over.has(turn)) replyOf(turn);
      return readOn();
    },
    delta: write,
    tool_call: calledTool,
    tool_result: readNew,
    recall: readNew,
    compaction: (told) => (told.state === "progress" ? showCompacting(filled(texts.compactingOf, told)) : readOn()),
    "session.started": readOn,
    "session.ended": readOn,
    done: settle,
    error: settle,
  },
});

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
    await readNew();
    toFoot();
  },
});

toFoot();
watchOlder();
