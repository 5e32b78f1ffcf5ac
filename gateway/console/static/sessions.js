// The table of sessions: choosing rows, and what is done with them.

import { call, filled, last, toast } from "./console.js";

const TAKEN_BACK_MS = 10_000;

const form = document.getElementById("batch");

if (form) {
  const boxes = [...form.querySelectorAll("input[name=key]")];
  const all = document.getElementById("all");
  const buttons = [form.elements.archive, form.elements.delete];

  const chosen = () => boxes.filter((box) => box.checked).map((box) => box.value);
  const refresh = () => {
    const count = chosen().length;
    for (const button of buttons) button.disabled = count === 0;
    all.checked = count === boxes.length;
    all.indeterminate = count > 0 && count < boxes.length;
  };
  const at = (key) => `/v1/sessions/${encodeURIComponent(key)}`;
  const each = async (keys, act) => {
    try {
      for (const key of keys) await act(key);
    } catch (error) {
      toast(error.message);
      throw error;
    }
  };

  all.addEventListener("change", () => {
    for (const box of boxes) box.checked = all.checked;
    refresh();
  });
  form.addEventListener("change", refresh);

  form.elements.archive.addEventListener("click", async () => {
    const keys = chosen();
    const archived = form.dataset.state === "active";
    await each(keys, (key) => call("PATCH", at(key), { archived }));
    for (const box of boxes) if (box.checked) box.closest("tr").hidden = true;
    toast(filled(form.dataset.archived, { count: keys.length }), {
      label: form.dataset.undo,
      act: async () => {
        await each(keys, (key) => call("PATCH", at(key), { archived: !archived }));
        location.reload();
      },
    });
  });

  form.elements.delete.addEventListener("click", async () => {
    const keys = chosen();
    if (!confirm(filled(form.dataset.sure, { count: keys.length }))) return;
    deleteLater(keys, boxes.filter((box) => box.checked));
  });

  /** What is deleted is gone for good, so it is deleted when nobody can take it back any more: after a while, or when the
   * page is left. */
  function deleteLater(keys, marked) {
    const show = (hidden) => marked.forEach((box) => ([box.closest("tr").hidden, box.checked] = [hidden, false]));
    const settle = () => {
      clearTimeout(timer);
      removeEventListener("pagehide", leave);
    };
    const leave = () => keys.forEach((key) => last("DELETE", at(key)));
    const timer = setTimeout(async () => {
      settle();
      await each(keys, (key) => call("DELETE", at(key))).catch(() => show(false));
      location.reload();
    }, TAKEN_BACK_MS);
    addEventListener("pagehide", leave);
    show(true);
    refresh();
    toast(filled(form.dataset.deleted, { count: keys.length }), {
      label: form.dataset.undo,
      act: async () => {
        settle();
        show(false);
      },
    });
  }
}
