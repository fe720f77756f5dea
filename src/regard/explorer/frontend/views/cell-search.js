// The cells that heads are searched by: buttons to add the chosen one and to search, and a button for each to remove it.

import { button, setText } from "../platform/dom.js";

/** @import { NamedCell, Refs } from "../types.js" */

export class CellSearch {
  /** @param {Refs} refs @param {{ find: () => void, toggle: (cell?: [number, number]) => void }} actions */
  constructor(refs, actions) {
    this.refs = refs;
    this.actions = actions;
    refs.findHeads.addEventListener("click", actions.find);
    refs.addCell.addEventListener("click", () => actions.toggle());
  }

  /** @param {NamedCell[]} cells @param {boolean} isAdded  the chosen one @param {boolean} canSearch */
  show(cells, isAdded, canSearch) {
    this.refs.cellSearch.hidden = !canSearch;
    setText(this.refs.findHeads, cells.length > 1 ? "Find heads with these weights" : "Find heads with this weight");
    setText(this.refs.addCell, isAdded ? "Remove this cell" : "Add this cell");
    const chips = cells.map(({ cell, name }) =>
      button(`${name} ×`, () => this.actions.toggle(cell), { title: "Remove this cell from the search" }),
    );
    this.refs.cells.replaceChildren(...chips);
  }
}
