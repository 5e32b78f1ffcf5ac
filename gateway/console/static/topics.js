// Trying the description of a topic: what would be remembered of a few sentences.

import { call } from "./console.js";

const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });

function list(title, texts) {
  const items = document.createElement("ul");
  items.append(...texts.map((text) => element("li", text)));
  return [element("h3", title), items];
}

for (const form of document.querySelectorAll("[data-try-topic]")) {
  const [place, problem] = [form.querySelector(".tried"), form.querySelector(".problem")];
  const button = form.querySelector("button");

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { description, leave_out, sentences } = form.elements;
    const said = sentences.value.split("\n").map((line) => line.trim()).filter(Boolean);
    [button.disabled, problem.hidden] = [true, true];
    form.setAttribute("aria-busy", "true");
    try {
      const body = { description: description.value, leave_out: leave_out.value || null, sentences: said };
      const { memories, refused } = await call("POST", "/v1/topics/try", body);
      place.replaceChildren(
        ...(memories.length ? list(form.dataset.taken, memories.map((one) => one.text)) : [element("p", form.dataset.nothing)]),
        ...(refused.length ? list(form.dataset.refused, refused) : []),
      );
    } catch (error) {
      [problem.textContent, problem.hidden] = [error.message, false];
    } finally {
      button.disabled = false;
      form.removeAttribute("aria-busy");
    }
  });
}
