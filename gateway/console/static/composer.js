// Where a message is written. The text and its request id outlive the page: sending it twice says it once.

import { commandKeys } from "./commands.js";
import { call, filled } from "./console.js";
import { keepHere, keptByOthers, keptHere, newId } from "./drafts.js";

/** `sent` is called after each message that was taken; `put` of the answer writes a text before what is there. */
export function compose({ key, api, notSent, sent }) {
  const composer = document.getElementById("composer");
  const text = document.getElementById("text");
  const problem = document.getElementById("problem");
  let request = null;

  const keep = () => keepHere(key, { text: text.value, request });

  const changed = () => {
    request = null;
    keep();
  };

  const restore = (found) => {
    if (found && !text.value) [text.value, request] = [found.text, found.request];
    return found;
  };

  if (!restore(keptHere(key))) keptByOthers(key).then(restore);

  text.addEventListener("input", changed);

  composer.addEventListener("submit", async (event) => {
    event.preventDefault();
    const written = text.value;
    const said = written.trim();
    if (!said) return;
    request ??= newId();
    keep();
    problem.hidden = true;
    composer.setAttribute("aria-busy", "true");
    try {
      await call("POST", `${api}/messages?wait=0`, { text: said, request_id: request });
      // what was typed on meanwhile is the next message
      text.value = text.value.startsWith(written) ? text.value.slice(written.length).trimStart() : text.value;
      changed();
      await sent();
    } catch (error) {
      problem.textContent = filled(notSent, { why: error.message });
      problem.hidden = false;
    } finally {
      composer.removeAttribute("aria-busy");
      text.focus();
    }
  });

  commandKeys(text, document.getElementById("commands"), keep, () => composer.requestSubmit());

  return {
    put(said) {
      text.value = text.value ? `${said}\n${text.value}` : said;
      changed();
      text.focus();
    },
  };
}
