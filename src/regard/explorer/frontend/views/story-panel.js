// A story: prose beside the views, step by step. It asks, and shows what is so after the answer.

import { escapeInvisible, isolate, tokenName } from "../data/tokens.js";
import { activeElementOf, bidi, button, el, setText } from "../platform/dom.js";
import { comparedTexts } from "../state/sides.js";
import { decode } from "../state/url.js";

const TAGS = /** @type {const} */ ({ em: "em", strong: "strong", code: "code" });

class StoryPanel {
  /** @param {App} app */
  constructor(app) {
    const { refs } = app;
    const { stories } = app.manifest;
    this.refs = refs;
    this.app = app;
    this.story = /** @type {Story | null} */ (null);
    this.part = 0;
    refs.stories.hidden = stories.length === 0;
    const items = stories.map((story) =>
      button([bidi(escapeInvisible(story.title))], () => this.start(story), { class: "rg-item" }),
    );
    refs.storyList.append(...items);
    refs.closeStory.addEventListener("click", () => this.close());
    refs.storyBack.addEventListener("click", () => this.step(-1));
    refs.storyNext.addEventListener("click", () => this.step(1));
    refs.storyShow.addEventListener("click", () => this.tell(""));
    refs.storyForm.addEventListener("submit", (event) => {
      event.preventDefault();
      this.checkNumber();
    });
  }

  get current() {
    return this.story?.steps[this.part] ?? null;
  }

  /** From its beginning, with nothing told. @param {Story} story */
  start(story) {
    this.app.told.clear();
    this.story = null; // drawn again, also where it is at its first step
    this.refs.stories.open = false;
    goToStep(this.app, story, 0);
    if (this.story === null) this.app.refresh(); // nothing else has changed
    this.refs.storyTitle.focus();
  }

  close() {
    this.app.set({ story: "", part: 0 });
  }

  /** @param {number} by */
  step(by) {
    if (!this.story) return;
    const next = this.part + by;
    if (next === this.story.steps.length) this.close();
    else goToStep(this.app, this.story, next);
    this.refs.storyTitle.focus();
  }

  /** Show a step, if it is another; what is covered until its answer. @param {Story | undefined} story @param {number} part */
  show(story, part) {
    this.refs.story.hidden = !story;
    const isOther = story && (story !== this.story || part !== this.part);
    this.story = story ?? null;
    this.part = part;
    if (isOther) {
      this.draw("");
      this.refs.story.scrollTop = 0;
    }
    const step = this.current;
    if (step && !this.isTold) this.checkWords(step.question?.words ?? []);
    const waits = step !== null && step.reveal.length > 0 && !this.isTold;
    return { nextTokens: waits, views: this.isCovered };
  }

  get isCovered() {
    return this.current?.view === null && this.current.answer_view !== null && !this.isTold;
  }

  get isTold() {
    return this.app.told.has(this.key);
  }

  get key() {
    return stepKey({ story: this.story?.key ?? "", part: this.part });
  }

  /** Tell when the words that a question is for are those chosen, else that they are not. @param {string[]} words */
  checkWords(words) {
    const plain = (/** @type {string} */ word) => word.toLowerCase();
    const chosen = this.app.state.chosenHere ? chosenWords(this.app).slice(0, words.length) : [];
    if (words.length === 0) return;
    if (chosen.length < words.length) setText(this.refs.storyVerdict, "");
    else if (words.every((word, n) => plain(word) === plain(chosen[n]))) this.tellSoon();
    else setText(this.refs.storyVerdict, `Not ${chosen.map(isolate).join(" → ")}: try again, or show the answer.`);
  }

  /** After what the page shows now. */
  tellSoon() {
    const { current } = this;
    queueMicrotask(() => current === this.current && !this.isTold && this.tell("Yes."));
  }

  /** Show what is so. @param {string} verdict @param {StoryChoice | null} [chosen] */
  tell(verdict, chosen = null) {
    const isInside = this.refs.story.contains(activeElementOf(this.refs.story)); // on what goes now
    this.app.told.set(this.key, chosen);
    this.draw(verdict);
    if (isInside) this.refs.storyNext.focus();
    const address = this.current?.answer_view;
    if (address) openAddress(this.app, address);
    this.app.refresh(); // what was covered, also where the teacher has opened that address already
  }

  checkNumber() {
    const { number, tolerance } = this.current?.question ?? { number: null, tolerance: 0 };
    const given = Number(this.refs.storyNumber.value.trim().replace("−", "-").replace(",", "."));
    const isRight = this.refs.storyNumber.value.trim() !== "" && Math.abs(given - Number(number)) <= tolerance + 1e-9;
    if (isRight) this.tell("Yes.");
    else setText(this.refs.storyVerdict, "Not yet: try again, or show the answer.");
  }

  /** @param {string} verdict */
  draw(verdict) {
    const { refs, story, current: step, isTold } = this;
    if (!story || !step) return;
    setText(refs.storyName, `${escapeInvisible(story.title)} · ${this.part + 1} of ${story.steps.length}`);
    setText(refs.storyTitle, escapeInvisible(step.title));
    refs.storyProse.replaceChildren(...this.prose(step.prose));
    const { question } = step;
    refs.storyChoices.replaceChildren(...(question?.choices ?? []).map((choice) => this.choice(choice)));
    refs.storyForm.hidden = question === null || question.number === null || isTold;
    refs.storyNumber.value = "";
    setText(refs.storyVerdict, this.isCovered ? "The views come back with your answer." : verdict);
    refs.storyReveal.replaceChildren(...(isTold ? this.prose(step.reveal) : []));
    refs.storyBack.disabled = this.part === 0;
    setText(refs.storyNext, this.part + 1 < story.steps.length ? "Next" : "End");
    refs.storyShow.hidden = isTold || step.reveal.length === 0;
  }

  /** @param {StoryChoice} choice */
  choice(choice) {
    const { isTold } = this;
    const words = escapeInvisible(choice.spans.map(({ text }) => text).join(""));
    const verdict = choice.is_right ? "Yes, as the model has it." : `You chose ${words}. The model has it otherwise.`;
    const isShown = isTold && choice.is_right;
    const isWrong = !choice.is_right && this.app.told.get(this.key) === choice;
    const props = {
      class: `rg-button rg-choice ${isShown ? "rg-right" : isWrong ? "rg-wrong" : ""}`,
      disabled: isTold,
    };
    const mark = isShown ? " ✓" : isWrong ? " ✗ your choice" : "";
    return button([...this.spans(choice.spans), mark], () => this.tell(verdict, choice), props);
  }

  /** @param {StoryBlock[]} blocks */
  prose(blocks) {
    return blocks.map(({ is_item: isItem, spans }) =>
      el("p", { class: isItem ? "rg-story-item" : null }, ...this.spans(spans)),
    );
  }

  /** @param {StorySpan[]} spans @returns {(Node | string)[]} */
  spans(spans) {
    return spans.map(({ kind, text, address }) => {
      const shown = escapeInvisible(text);
      if (kind === "view") return button(shown, () => openAddress(this.app, address), { class: "rg-view-link" });
      return kind in TAGS ? el(TAGS[/** @type {keyof typeof TAGS} */ (kind)], {}, shown) : shown;
    });
  }
}

/** A step, as it is known to be told. @param {Pick<State, "story" | "part">} state */
export const stepKey = ({ story, part }) => `${story} ${part}`;

/** What a step of a story shows first. @param {Story} story @param {number} part @returns {Partial<State>} */
export function storyView({ key, steps }, part) {
  return { ...decode(steps[part].view ?? ""), story: key, part };
}

/** Begin a story, or go to a step of it. @param {App} app @param {Story} story @param {number} part */
function goToStep(app, story, part) {
  if (story.steps[part].view === null) app.set({ story: story.key, part });
  else openView(app, storyView(story, part));
}

/** Open an address of a story, which goes on. @param {App} app @param {string} address */
function openAddress(app, address) {
  const { story, part } = app.state;
  openView(app, { ...decode(address), story, part });
}

/** A text that is A or B already is shown on its side, and both stay. @param {App} app @param {Partial<State>} found */
function openView(app, found) {
  const { state, manifest } = app;
  const { theme, text, model, textB, modelB } = state;
  const isOf = (/** @type {LiveRun} */ run) => found.text === run.text && (found.model ?? run.model) === run.model;
  const place = found.textB ? -1 : comparedTexts(state, manifest).findIndex(isOf);
  /** @type {Partial<State>} */
  const stays = { text, model, textB, modelB, side: place === 1 ? "B" : (found.side ?? "A") };
  app.open({ theme, ...found, ...(place < 0 ? {} : stays) });
}

/** The words of the chosen query and key. @param {App} app */
function chosenWords(app) {
  const { tokens } = app.shownRun();
  const { row, col } = app.state;
  return [row, col].flatMap((token) => (token === null || !tokens[token] ? [] : [tokenName(tokens, token)]));
}

/** @param {App} app @returns {View} */
export function showStory(app) {
  const { manifest, refs } = app;
  const panel = new StoryPanel(app);
  const draw = () => {
    const { state } = app;
    const story = manifest.stories.find(({ key }) => key === state.story);
    if (story) app.root.dataset.story = "";
    else delete app.root.dataset.story;
    const covered = panel.show(story, state.part);
    refs.main.classList.toggle("rg-covered", covered.views);
    refs.nextLine.classList.toggle("rg-covered", covered.nextTokens);
  };
  return () => ({ draw });
}
