// The overview, read anew when something happens, and now and then for what no event tells.

import { follow } from "./live.js";
import { putPieces, readAgain } from "./pieces.js";

const REST_MS = 2000;
const AT_LEAST_MS = 30_000;
const EVENTS = ["accepted", "done", "error", "compaction", "session.started", "session.ended", "session.deleted", "run", "delivery"];

let last = performance.now();
let due = Infinity;
let timer = 0;
let reading = false;

function readAt(at) {
  if (at >= due) return;
  clearTimeout(timer);
  due = at;
  timer = setTimeout(read, at - performance.now());
}

/** However much happens, it is read once in two seconds. */
const soon = () => readAt(Math.max(performance.now() + 100, last + REST_MS));

async function read() {
  due = Infinity;
  if (reading) return soon();
  reading = true;
  const fresh = document.visibilityState === "visible" ? await readAgain(location.href) : null;
  if (fresh) putPieces(fresh);
  [reading, last] = [false, performance.now()];
  readAt(last + AT_LEAST_MS);
}

follow("/v1/events", {
  begun: async () => soon(),
  lost: () => {},
  events: Object.fromEntries(EVENTS.map((name) => [name, soon])),
});
readAt(last + AT_LEAST_MS);
