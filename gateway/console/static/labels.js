// On a narrow window a row of a table is a block: each cell is told by the heading of its column (console.css).

export function labelCells(root) {
  for (const table of root.querySelectorAll("table.list")) {
    const names = [...table.tHead.rows[0].cells].map((cell) => ("main" in cell.dataset || cell.querySelector(".hidden, input") ? "" : cell.textContent.trim()));
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, at) => {
        if (names[at]) cell.dataset.label = names[at];
      });
    }
  }
}

labelCells(document);
