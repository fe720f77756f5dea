// The cells that heads are searched by: buttons to add the chosen one and to search, and a button for each to remove it.

import { button, el, setText } from "../platform/dom.js";

/** @import { NamedCell } from "../types.js" */

export class CellSearch {
  /** @param {{ find: () => void, toggle: (cell?: [number, number]) => void }} actions */
  constructor(actions) {
    this.actions = actions;
    this.find = button("Find heads with this weight", actions.find);
    this.add = button("Add this cell", () => actions.toggle(), { title: "Search by several cells (X, Shift + click)" });
    this.list = el("span", { class: "rg-cells", role: "group", "aria-label": "Cells to search by" });
    this.node = el("div", { class: "rg-bar rg-cell-search" }, this.find, this.add, this.list);
  }

  /** @param {NamedCell[]} cells @param {boolean} isAdded  the chosen one @param {boolean} canSearch */
  show(cells, isAdded, canSearch) {
    this.node.hidden = !canSearch;
    setText(this.find, cells.length > 1 ? "Find heads with these weights" : "Find heads with this weight");
    setText(this.add, isAdded ? "Remove this cell" : "Add this cell");
    const chips = cells.map(({ cell, name }) =>
      button(`${name} ×`, () => this.actions.toggle(cell), { title: "Remove this cell from the search" }),
    );
    this.list.replaceChildren(...chips);
  }
}
