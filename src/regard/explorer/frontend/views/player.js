// The button that plays something stage by stage, and pauses it.

import { button } from "../platform/dom.js";

/** Whether the reader wants little motion. */
export function prefersReducedMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

export class Player {
  /**
   * @param {object} film
   * @param {() => void} film.rewind  called before it plays: from the end to the beginning
   * @param {(ms: number) => boolean} film.advance  by so many milliseconds; whether there is more
   * @param {() => number} film.interval  milliseconds from call to call; 0: one for each frame
   * @param {() => void} [film.onStop]
   */
  constructor(film) {
    this.film = film;
    this.button = button("Play", () => this.toggle(), { class: "rg-primary" });
    this.cancel = /** @type {(() => void) | undefined} */ (undefined); // of the next call
  }

  get isPlaying() {
    return this.cancel !== undefined;
  }

  toggle() {
    if (this.isPlaying) return this.stop();
    const interval = this.film.interval();
    let last = performance.now();
    const tick = () => {
      const now = performance.now();
      const hasMore = this.film.advance(now - last);
      last = now;
      if (hasMore && this.isPlaying) schedule();
      else this.stop();
    };
    const schedule = () => {
      const call = interval > 0 ? setTimeout(tick, interval) : requestAnimationFrame(tick);
      this.cancel = () => (interval > 0 ? clearTimeout(call) : cancelAnimationFrame(call)); // numbered apart
    };
    this.button.textContent = "Pause";
    this.film.rewind();
    schedule();
  }

  /** @param {boolean} [tells]  what is played where it is */
  stop(tells = true) {
    if (!this.cancel) return;
    this.cancel();
    this.cancel = undefined;
    this.button.textContent = "Play";
    if (tells) this.film.onStop?.();
  }
}
