// The pieces of a page that are read anew while it is open. What somebody types in stays as it is.

import { localTimes } from "./console.js";
import { labelCells } from "./labels.js";

const FIELDS = "input, select, textarea";

function changed(field) {
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.options) return field.selectedIndex !== Math.max(0, [...field.options].findIndex((one) => one.defaultSelected));
  return field.value !== field.defaultValue;
}

/** Whether somebody is writing in a piece, or has written in it and not sent it. */
const written = (piece) => [...piece.querySelectorAll(FIELDS)].some((field) => field === document.activeElement || changed(field));

/** What is in a form has been sent: it may be read anew. */
export function sent(form) {
  for (const field of form.querySelectorAll(FIELDS)) {
    if (field.options) for (const one of field.options) one.defaultSelected = one.selected;
    else if (field.type === "checkbox" || field.type === "radio") field.defaultChecked = field.checked;
    else field.defaultValue = field.value;
  }
}

function put(known, piece) {
  const open = [...known.querySelectorAll("details")].map((one) => one.open);
  piece.querySelectorAll("details").forEach((one, at) => (one.open = open[at] ?? false));
  if (known.isEqualNode(piece)) return;
  const focused = known.contains(document.activeElement) ? document.activeElement.outerHTML : null;
  known.replaceWith(piece);
  if (focused) [...piece.querySelectorAll("a, button, summary, [tabindex]")].find((one) => one.outerHTML === focused)?.focus({ preventScroll: true });
}

/** Puts in the pieces of a document, or of a part of one, that are on the page. */
export function putPieces(fresh) {
  localTimes(fresh);
  labelCells(fresh);
  for (const piece of fresh.querySelectorAll("[data-piece]")) {
    const known = document.getElementById(piece.id);
    if (known && !written(known)) put(known, piece);
  }
}

/** Reads a page again; null while it cannot be read. */
export async function readAgain(address) {
  const answer = await fetch(address).catch(() => null);
  if (answer?.redirected) location.assign("/console/login");
  if (!answer?.ok || answer.redirected) return null;
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}
