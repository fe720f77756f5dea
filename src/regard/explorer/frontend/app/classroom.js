// A class: the teacher's page says what it shows, and pupils' pages follow as long as they like.

import { setText, svg } from "../platform/dom.js";
import { looksOnly, normalize } from "../state/state.js";
import { decode, encode } from "../state/url.js";
import { stepKey } from "../views/story-panel.js";

const FOLLOW_MS = 500; // between questions for what the teacher shows
const PUBLISH_MS = 100; // what changes within is told at once
const QR_MARGIN = 4; // modules

/** Fill the menu of the teacher, or leave out what a pupil's page cannot ask for. @param {App} app */
export function createClassroom(app) {
  const { manifest, refs, root } = app;
  const page = manifest.classroom;
  const isPupil = looksOnly(manifest);
  if (page?.role !== "teacher") refs.classMenu.remove();
  if (!isPupil) refs.followSwitch.remove();
  if (isPupil) for (const node of root.querySelectorAll("[data-computes]")) node.remove();
  if (page?.role === "teacher") {
    setText(refs.classAddress, page.address);
    setText(refs.classCode, page.code);
    refs.classQr.replaceChildren(qrCode(page.qr));
  }
}

/** @param {string[]} rows with a 1 for each dark module */
function qrCode(rows) {
  const size = rows.length + 2 * QR_MARGIN;
  const dark = rows.flatMap((row, y) => [...row].map((module, x) => (module === "1" ? `M${x} ${y}h1v1h-1z` : "")));
  return svg(
    "svg",
    {
      viewBox: [-QR_MARGIN, -QR_MARGIN, size, size].join(" "),
      role: "img",
      "aria-label": "QR code of the address with the code",
      "shape-rendering": "crispEdges",
    },
    svg("rect", { x: -QR_MARGIN, y: -QR_MARGIN, width: size, height: size, fill: "#ffffff" }),
    svg("path", { d: dark.join(""), fill: "#000000" }),
  );
}

/** Tell the class what is shown, soon; a text once it has run. @param {App} app */
export function publish(app) {
  if (app.manifest.classroom?.role !== "teacher" || !app.syncUrl) return;
  clearTimeout(app.publishTimer);
  app.publishTimer = setTimeout(() => {
    const { text, liveRun } = app.state;
    if (text && liveRun === null) return;
    const run = liveRun === null ? {} : { run: liveRun };
    const address = encode({ ...app.state, text: "", model: "", textB: "", modelB: "" }, app.initialState); // the run has both
    app.source.publish({ address, ...run }, app.controller.signal).then(
      () => setText(app.refs.classStatus, ""),
      ({ message }) => setText(app.refs.classStatus, app.controller.signal.aborted ? "" : `Not shown: ${message}.`),
    );
  }, PUBLISH_MS);
}

/** Show what the teacher shows, as long as the switch is on. @param {App} app */
export function followTeacher(app) {
  if (!looksOnly(app.manifest)) return;
  let known = 0;
  const { follow, followStatus } = app.refs;
  const { signal } = app.controller;
  follow.addEventListener("change", () => (known = 0)); // back to the teacher's view
  const ask = async () => {
    if (follow.checked) {
      const shown = await app.source.follow({ known }, signal).catch(() => undefined);
      setText(followStatus, shown === undefined && !signal.aborted ? "The teacher's page does not answer." : "");
      if (shown && follow.checked && !signal.aborted) {
        known = shown.version;
        showView(app, shown);
      }
    }
    if (!signal.aborted) app.classTimer = setTimeout(ask, FOLLOW_MS);
  };
  app.classTimer = setTimeout(ask, 0);
}

/** @param {App} app @param {TeacherView} shown */
function showView(app, { address, run }) {
  if (!address) return; // the teacher's page has not opened yet
  const { manifest, initialState } = app;
  const { theme, presenter, story, part, row, col } = app.state;
  if (run) manifest.runs[run.number] = run.metadata;
  const ofText = run
    ? { text: run.metadata.text, model: run.metadata.model, liveRun: run.number }
    : { text: "", model: "", liveRun: null };
  const wanted = { ...initialState, ...decode(address), ...ofText, theme, presenter };
  const step = manifest.stories.find(({ key }) => key === wanted.story)?.steps[wanted.part];
  const isAsked = step?.question?.words.length && !app.told.has(stepKey(wanted)); // for a cell, which each finds alone
  const isSame = stepKey(wanted) === stepKey({ story, part });
  const own = isAsked ? { row: isSame ? row : null, col: isSame ? col : null } : {};
  app.show(normalize({ ...wanted, ...own }, manifest));
}
