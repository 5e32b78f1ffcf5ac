// What buttons and forms do over the API. They say it in attributes:
// data-call "METHOD /path", data-body (JSON), data-sure (asked before), data-ask (a text asked for; data-ask-name is its
// field), data-done (said afterwards, with {fields} of the answer), data-undo "METHOD /path", data-then: "reload" (when
// left out), "stay", or where to go.

import { call, filled, toast, toastLater } from "./console.js";
import { sent } from "./pieces.js";

/** The fields of a form as JSON. An empty field is left out, unless it says what empty means. */
export function fieldsOf(form) {
  const [fields, groups] = [{}, new Set()];
  for (const input of form.elements) {
    if (!input.name || input.disabled || (input.type === "radio" && !input.checked)) continue;
    const value = valueOf(input);
    const [last, ...outer] = input.name.split(".").reverse();
    const place = outer.reverse().reduce((at, name) => (at[name] ??= {}), fields);
    if (outer.length) groups.add(outer[0]);
    if (value !== undefined) place[last] = value;
  }
  for (const name of groups) if (!Object.keys(fields[name]).length) fields[name] = null;
  return fields;
}

function valueOf(input) {
  if (input.type === "checkbox") return input.checked;
  const text = input.value.trim();
  switch (input.dataset.type) {
    case "null":
      return text || null;
    case "number":
      return text ? Number(text) : undefined;
    case "number-null":
      return text ? Number(text) : null;
    case "switch":
      return text ? text === "true" : null;
    case "off":
      return text === "off" ? null : text || undefined;
    case "number-off":
      return text === "off" ? null : text ? Number(text) : undefined;
    case "pairs":
      return Object.fromEntries(text.split("\n").filter((line) => line.trim()).map(pair));
    case "list":
      return text.split(/[,\n]/).map((part) => part.trim()).filter(Boolean);
    default:
      return text || undefined;
  }
}

/** `name = value`; the value may hold more of the sign. */
function pair(line) {
  const [name, ...value] = line.split("=");
  return [name.trim(), value.join("=").trim()];
}

async function act(element, body) {
  const { sure, then = "reload", done, undo, undoLabel } = element.dataset;
  const [method, path] = element.dataset.call.split(" ");
  if (sure && !confirm(sure)) return;
  const answer = await call(method, path, body);
  const said = done ? filled(done, answer) : "";
  const back = undo ? { label: undoLabel, call: filled(undo, answer) } : undefined;
  if (then === "stay") {
    if (element.elements) sent(element);
    if (said) toast(said, back);
    document.dispatchEvent(new CustomEvent("changed"));
    return;
  }
  if (said) toastLater(said, back);
  if (then === "reload") location.reload();
  else location.assign(filled(then, Object.fromEntries(Object.entries(answer).map(([name, one]) => [name, encodeURIComponent(one)]))));
}

/** Runs it with its button locked; what goes wrong is said beside the form, or at the foot of the page. */
async function guarded(element, buttons, body) {
  const place = element.querySelector(".problem");
  if (place) place.hidden = true;
  for (const button of buttons) button.disabled = true;
  try {
    await act(element, body);
  } catch (error) {
    if (place) [place.textContent, place.hidden] = [error.message, false];
    else toast(error.message);
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-call]");
  if (!button) return;
  const body = button.dataset.body === undefined ? undefined : JSON.parse(button.dataset.body);
  if (!button.dataset.ask) return guarded(button, [button], body);
  const answer = prompt(button.dataset.ask, button.dataset.askValue ?? "");
  if (answer) guarded(button, [button], { ...body, [button.dataset.askName]: answer.trim() });
});

document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-call]");
  if (!form) return;
  event.preventDefault();
  guarded(form, form.querySelectorAll("button"), fieldsOf(form));
});
