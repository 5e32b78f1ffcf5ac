// Messages that were written and not sent. Each window has its own, which the next window takes over when it has gone;
// they belong to who is signed in, and go when that person signs out.
//
// localStorage holds the texts (`draft <login> <id> <key of the chat>`), sessionStorage which of them are this window's. A
// window holds a lock of each, so that others know whether it is still there.

const LASTS_MS = 30 * 24 * 3600 * 1000;
const LEFT = "signed out";

const login = document.querySelector("meta[name=login]")?.content;
const OWN = `draft ${encodeURIComponent(login)} `;
const lockOf = (id) => `sessiond draft ${id}`;

export const newId = () => crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint8Array(16))].join("-");

/** What a browser without storage, or with a full one, cannot do is left out: a text then lives as long as its page. */
function tried(act) {
  try {
    return act();
  } catch {
    return undefined;
  }
}

const stored = () => tried(() => Object.keys(localStorage).filter((name) => name.startsWith("draft "))) ?? [];
const read = (name) => tried(() => JSON.parse(localStorage.getItem(name)));
const ids = () => tried(() => JSON.parse(sessionStorage.getItem("drafts"))) ?? {};
const forget = (names) => tried(() => names.forEach((name) => localStorage.removeItem(name)));

const held = new Set();
function hold(id) {
  if (held.has(id)) return;
  held.add(id);
  navigator.locks?.request(lockOf(id), { mode: "shared" }, () => new Promise(() => {})).catch(() => held.delete(id));
}

/** Makes a draft of a chat this window's; undefined: it has none any more. */
function own(chat, id) {
  tried(() => sessionStorage.setItem("drafts", JSON.stringify({ ...ids(), [chat]: id })));
  if (id) hold(id);
}

const nameOf = (chat, id) => `${OWN}${id} ${chat}`;

function found(name) {
  const [id, ...chat] = name.slice(OWN.length).split(" ");
  return { id, chat: chat.join(" "), ...read(name) };
}

/** What this window has not sent to a chat: `{ text, request }`, or null. */
export function keptHere(chat) {
  const id = ids()[chat];
  const kept = id ? read(nameOf(chat, id)) : null;
  if (!kept) own(chat, undefined);
  return kept ?? null;
}

/** The newest that a window which has gone has not sent to a chat; it is this window's now. */
export async function keptByOthers(chat) {
  const locks = (await navigator.locks?.query().catch(() => null))?.held ?? [];
  if (ids()[chat]) return null;
  const there = new Set(locks.map((lock) => lock.name));
  const left = stored().filter((name) => name.startsWith(OWN)).map(found);
  const [newest] = left
    .filter((one) => one.chat === chat && one.text && !there.has(lockOf(one.id)))
    .sort((one, other) => other.at - one.at);
  if (newest) own(chat, newest.id);
  return newest ?? null;
}

export function keepHere(chat, { text, request }) {
  if (text && !ids()[chat]) own(chat, newId());
  const name = nameOf(chat, ids()[chat]);
  if (text) return tried(() => localStorage.setItem(name, JSON.stringify({ text, request, at: Date.now() })));
  forget([name]);
  own(chat, undefined);
}

/** Nothing of who signs out stays; other windows go to where one signs in, too. */
function signOut() {
  forget(stored());
  tried(() => sessionStorage.removeItem("drafts"));
  tried(() => localStorage.setItem(LEFT, String(Date.now())));
}

if (login !== undefined) {
  forget(stored().filter((name) => !name.startsWith(OWN) || !(read(name)?.at > Date.now() - LASTS_MS)));
  for (const id of Object.values(ids())) hold(id);
  document.querySelector("form[action='/console/logout']")?.addEventListener("submit", signOut);
  addEventListener("storage", (event) => event.key === LEFT && location.assign("/console/login"));
}
