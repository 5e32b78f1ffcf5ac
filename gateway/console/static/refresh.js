// A page on which something is at work is read anew until the work is done.

import { putPieces, readAgain } from "./pieces.js";

const EVERY_MS = 2000;

async function again() {
  const fresh = document.visibilityState === "visible" ? await readAgain(location.href) : null;
  if (fresh) putPieces(fresh);
  later();
}

function later() {
  if (document.querySelector("[data-busy]")) setTimeout(again, EVERY_MS);
}

later();
