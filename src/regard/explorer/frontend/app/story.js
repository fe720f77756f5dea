// What a story shows, and where its steps lead.

import { tokenName } from "../data/tokens.js";
import { decode } from "../state/url.js";

/** What a step of a story shows first. @param {Story} story @param {number} part @returns {Partial<State>} */
export function storyView({ key, steps }, part) {
  return { ...decode(steps[part].view ?? ""), story: key, part };
}

/** Begin a story, or go to a step of it. @param {App} app @param {string} key @param {number} part */
export function goToStep(app, key, part) {
  const story = app.manifest.stories.find((one) => one.key === key);
  if (!story) return;
  const { view } = story.steps[part];
  if (view === null) app.set({ story: key, part });
  else openView(app, storyView(story, part));
}

/** Open an address of a story, which goes on. @param {App} app @param {string} address */
export function openAddress(app, address) {
  const { story, part } = app.state;
  openView(app, { ...decode(address), story, part });
}

/** @param {App} app @param {Partial<State>} found */
function openView(app, found) {
  app.open({ theme: app.state.theme, ...found });
}

/** The words of the chosen query and key. @param {App} app */
export function chosenWords(app) {
  const { tokens } = app.shownRun();
  const { row, col } = app.state;
  return [row, col].flatMap((token) => (token === null || !tokens[token] ? [] : [tokenName(tokens, token)]));
}

/** @param {App} app @returns {View} */
export const showStory = (app) => () => ({
  draw: () => {
    const { state, manifest, parts, refs } = app;
    const story = manifest.stories.find(({ key }) => key === state.story);
    if (story) app.root.dataset.story = "";
    else delete app.root.dataset.story;
    const covered = parts.story.show(story, state.part);
    refs.main.classList.toggle("rg-covered", covered.views);
    refs.nextLine.classList.toggle("rg-covered", covered.nextTokens);
  },
});
