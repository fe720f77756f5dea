// Questions that follow from a change: each is asked once, and given up when another of its kind takes its place.

const LATE = 100; // milliseconds after which a page says that it waits

export class Asking {
  /** @param {(busy: boolean) => void} busy @param {(error: Error | null) => void} failed  null when all is well again */
  constructor(busy, failed) {
    this.busy = busy;
    this.failed = failed;
    /** @type {Map<string, { key: string, control: AbortController }>} */
    this.asked = new Map();
    /** @type {Set<AbortController>} */
    this.running = new Set();
  }

  /**
   * Ask for what is not yet known; what was asked before of the same kind is left behind.
   * @template T
   * @param {string} kind @param {string} key @param {(signal: AbortSignal) => Promise<T>} ask @param {(answer: T) => void} use
   * @param {(error: Error) => void} [failed]
   */
  ask(kind, key, ask, use, failed = this.failed) {
    if (this.asked.get(kind)?.key === key) return;
    this.forget(kind);
    const control = new AbortController();
    this.asked.set(kind, { key, control });
    this.running.add(control);
    const late = setTimeout(() => this.busy(true), LATE);
    ask(control.signal).then(
      (answer) => {
        if (this.asked.get(kind)?.control !== control) return;
        this.failed(null);
        use(answer);
      },
      (error) => {
        if (control.signal.aborted) return;
        this.asked.delete(kind);
        failed(error);
      },
    ).finally(() => {
      clearTimeout(late);
      this.running.delete(control);
      if (this.running.size === 0) this.busy(false);
    });
  }

  /** @param {string} kind */
  forget(kind) {
    this.asked.get(kind)?.control.abort();
    this.asked.delete(kind);
  }

  close() {
    for (const kind of [...this.asked.keys()]) this.forget(kind);
  }
}
