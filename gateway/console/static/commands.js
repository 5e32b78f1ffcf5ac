// Completion of commands in the composer: a list above the text, chosen by arrows, Tab, Enter or a click.

/** `changed` hears of every completion, `send` of Enter where nothing is chosen. */
export function commandKeys(text, list, changed, send) {
  const all = [...list.children];
  const shown = () => all.filter((choice) => !choice.hidden);
  let chosen = null;

  const choose = (choice) => {
    chosen = choice;
    for (const one of all) one.setAttribute("aria-selected", String(one === choice));
    if (choice) text.setAttribute("aria-activedescendant", choice.id);
    else text.removeAttribute("aria-activedescendant");
  };

  const suggest = () => {
    const typed = text.value;
    const open = /^\/\w*$/.test(typed) && !all.some((choice) => choice.dataset.name === typed);
    for (const choice of all) choice.hidden = !open || !choice.dataset.name.startsWith(typed);
    list.hidden = shown().length === 0;
    choose(null);
  };

  const complete = (choice) => {
    text.value = `${choice.dataset.name} `;
    changed();
    suggest();
    text.focus();
  };

  const move = (step) => {
    const fitting = shown();
    const at = fitting.indexOf(chosen);
    choose(fitting[(at + step + fitting.length + (at < 0 && step < 0 ? 1 : 0)) % fitting.length]);
  };

  text.addEventListener("input", suggest);
  for (const choice of all) choice.addEventListener("click", () => complete(choice));

  text.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const open = !list.hidden;
    if (open && (event.key === "ArrowDown" || event.key === "ArrowUp")) move(event.key === "ArrowDown" ? 1 : -1);
    else if (open && event.key === "Tab" && !event.shiftKey) complete(chosen ?? shown()[0]);
    else if (open && event.key === "Enter" && chosen) complete(chosen);
    else if (open && event.key === "Escape") list.hidden = true;
    else if (event.key === "Enter" && !event.shiftKey) send();
    else return;
    event.preventDefault();
  });
}
