// One direction: the state, what its parts ask for, and what they show of it. A view is a function of the page that gives,
// for each state, the parts that are shown: it may ask, and not draw; what draws can neither ask nor change the state.

import { showAblation } from "../views/ablation-panel.js";
import { showAligned } from "../views/aligned.js";
import { showAttribution } from "../views/attribution-panel.js";
import { showCell } from "../views/cell-view.js";
import { showHeads } from "../views/head-grid.js";
import { showLines } from "../views/lines-view.js";
import { showLive } from "../views/live-text.js";
import { showMap } from "../views/map-view.js";
import { showModel } from "../views/model-view.js";
import { showMovement } from "../views/movement-view.js";
import { showNextTokens } from "../views/next-tokens-panel.js";
import { showPatching } from "../views/patching-view.js";
import { showPaths } from "../views/paths-view.js";
import { showStory } from "../views/story-panel.js";
import { showText } from "../views/text-panel.js";
import { showStrongRows } from "./corpus.js";
import { showCellSearch } from "./head-search.js";
import { showIntro } from "./intro.js";
import { showPage, showTraining, showWordBar } from "./page.js";
import { showWhatIf } from "./what-if.js";
import { showWhy } from "./why.js";

/** In the order of drawing. @type {((app: App) => View)[]} */
const VIEWS = [
  showPage,
  showStory,
  showIntro,
  showAligned,
  showAblation,
  showTraining,
  showMap,
  showWordBar,
  showText,
  showHeads,
  showCell,
  showWhy,
  showWhatIf,
  showMovement,
  showAttribution,
  showNextTokens,
  showModel,
  showLines,
  showPaths,
  showPatching,
  showStrongRows,
  showCellSearch,
  showLive,
];

export class Presenter {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.views = VIEWS.map((view) => view(app));
    this.drawn = /** @type {WeakMap<Element, unknown[]>} */ (new WeakMap()); // of what each part is
    this.isDrawing = false;
  }

  /** Ask for all that the state needs, then draw what is there. */
  refresh() {
    const { queries } = this.app;
    const parts = queries.client.pass((ask) => this.views.flatMap((view) => view(ask) ?? []));
    this.isDrawing = true;
    try {
      for (const part of parts) this.draw(part);
      this.app.showErrors(queries.client.errors);
    } finally {
      this.isDrawing = false;
    }
  }

  /** Draw a part when all of its data is there, and is other data. Until then it stays as it was, and is faint. @param {Part} part */
  draw({ nodes = [], answers = [], of, draw }) {
    const isPending = answers.some((answer) => answer.isPending);
    for (const node of nodes) node.classList.toggle("rg-stale", isPending);
    if (isPending) return;
    const before = of && this.drawn.get(nodes[0]);
    if (before?.length === of?.length && before?.every((one, n) => one === of?.[n])) return;
    draw();
    if (of) this.drawn.set(nodes[0], of);
  }
}
