// The table of sessions: choosing rows, and what is done with them.

import { call, filled, last, toast, toastLater } from "./console.js";

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

  form.elements.delete.addEventListener("click", () => {
    const marked = boxes.filter((box) => box.checked);
    if (confirm(filled(form.dataset.sure, { count: marked.length }))) deleteLater(marked);
  });

  // What is deleted is gone for good, so it is deleted when nobody can take it back any more: after a while, or when the
  // page is left. What is deleted meanwhile is taken back, or goes, together with it.

  let doomed = [];
  let timer = 0;

  function taken() {
    clearTimeout(timer);
    const gone = doomed;
    doomed = [];
    return gone;
  }

  const show = (marked, hidden) => marked.forEach((box) => ([box.closest("tr").hidden, box.checked] = [hidden, false]));

  function deleteLater(marked) {
    doomed = [...taken(), ...marked];
    timer = setTimeout(() => deleteNow().then(() => location.reload()), TAKEN_BACK_MS);
    show(doomed, true);
    refresh();
    toast(filled(form.dataset.deleted, { count: doomed.length }), {
      label: form.dataset.undo,
      act: async () => show(taken(), false),
    });
  }

  /** What cannot be deleted is told on the page that comes next; what somebody else has deleted is gone as well. */
  async function deleteNow() {
    for (const { value } of taken()) {
      await call("DELETE", at(value)).catch((error) => error.status === 404 || toastLater(error.message));
    }
  }

  addEventListener("pagehide", () => taken().forEach(({ value }) => last("DELETE", at(value))));

  // when this page is left by signing out, nobody is there any more who may delete
  const signOut = document.querySelector("form[action='/console/logout']");
  signOut?.addEventListener("submit", async (event) => {
    if (!doomed.length) return;
    event.preventDefault();
    await deleteNow();
    signOut.submit();
  });
}
