// What is wanted and what is known of it. Each kind is asked for once, given up when something else of its kind takes its
// place, and what went wrong with it stays said until it comes after all.

const LATE = 100; // milliseconds after which a page says that it waits

export class Asking {
  /** @param {(busy: boolean) => void} busy @param {(errors: Error[]) => void} failed  is told all that is wrong now */
  constructor(busy, failed) {
    this.busy = busy;
    this.failed = failed;
    /** @type {Wanted<any>[]} */
    this.all = [];
    this.running = 0;
  }

  /** @template T @param {Promise<T>} answer */
  async wait(answer) {
    const late = setTimeout(() => this.busy(true), LATE);
    this.running += 1;
    try {
      return await answer;
    } finally {
      clearTimeout(late);
      this.running -= 1;
      if (this.running === 0) this.busy(false);
    }
  }

  tell() {
    this.failed(this.all.flatMap(({ error, inPlace }) => (error && !inPlace ? [error] : [])));
  }

  close() {
    for (const wanted of this.all) wanted.forget();
  }
}

/** @template T */
export class Wanted {
  /**
   * @param {Asking} asking @param {() => void} settled  the answer came, or it failed
   * @param {{ inPlace?: boolean }} [options]  whether who shows it also says what went wrong
   */
  constructor(asking, settled, { inPlace = false } = {}) {
    this.asking = asking;
    this.settled = settled;
    this.inPlace = inPlace;
    /** @type {T | null} */
    this.answer = null; // the last that came
    /** @type {Error | null} */
    this.error = null;
    this.key = ""; // what is wanted
    this.asked = ""; // what was asked for, and has come or is on its way
    this.known = ""; // what the answer is to
    /** @type {AbortController | null} */
    this.control = null;
    asking.all.push(this);
  }

  /** Whether the answer is to what is wanted. */
  get isCurrent() {
    return this.known === this.key && this.answer !== null;
  }

  /** The answer, where it is to what is wanted. */
  get current() {
    return this.isCurrent ? this.answer : null;
  }

  /** @param {string} key @param {(signal: AbortSignal) => Promise<T>} ask */
  want(key, ask) {
    this.key = key;
    if (this.asked === key) return;
    this.control?.abort();
    this.asked = key;
    if (this.isCurrent) return this.wrong(null);
    const control = (this.control = new AbortController());
    this.asking.wait(ask(control.signal)).then(
      (answer) => {
        if (control.signal.aborted) return;
        this.answer = answer;
        this.known = key;
        this.wrong(null);
        this.settled();
      },
      (error) => {
        if (control.signal.aborted) return;
        this.wrong(error);
        this.settled(); // which may want it, and is not to ask at once and for ever
        if (this.asked === key) this.asked = ""; // so that it is asked for again
      },
    );
  }

  /** @param {Error | null} error */
  wrong(error) {
    if (this.error === error) return;
    this.error = error;
    this.asking.tell();
  }

  forget() {
    this.control?.abort();
    this.key = this.asked = this.known = "";
    this.answer = null;
    this.wrong(null);
  }
}
