// Asynchronous data by key, after TanStack Query: a query fetches once for each key and cancels a fetch that a new key
// supersedes. What it returns is of the key that it is asked for, never of another: a view cannot show data of another state.

const BUSY_DELAY_MS = 100; // shorter fetches do not show as busy
const PENDING = Object.freeze({ data: null, error: null, isPending: true });
export const NOTHING = Object.freeze({ data: null, error: null, isPending: false }); // is needed

export class QueryClient {
  /** @param {Source} source @param {(busy: boolean) => void} onBusy @param {() => void} onSettled  data or an error has come */
  constructor(source, onBusy, onSettled) {
    this.source = source;
    this.onBusy = onBusy;
    this.onSettled = onSettled;
    this.queries = /** @type {Map<string, Query>} */ (new Map());
    this.fetching = /** @type {Set<Promise<any>>} */ (new Set());
  }

  /** The query of a name. @param {string} name */
  named(name) {
    const query = this.queries.get(name) ?? new Query(this);
    this.queries.set(name, query);
    return query;
  }

  /** Ask all that is needed; what is no longer asked for is given up. @template T @param {(ask: Ask) => T} needs @returns {T} */
  pass(needs) {
    const asked = /** @type {Set<Query>} */ (new Set());
    const ofSource = (/** @type {any} */ name, /** @type {any} */ what) => (/** @type {AbortSignal} */ signal) =>
      this.source[/** @type {keyof Source} */ (name)](what, signal);
    const ask = (/** @type {any} */ name, /** @type {any} */ what, queryFn = ofSource(name, what), options = {}) => {
      const query = this.named(name);
      asked.add(query);
      return query.fetch(what, queryFn, options);
    };
    const found = needs(/** @type {any} */ (ask));
    for (const query of this.queries.values()) {
      query.isAsked = asked.has(query);
      if (!query.isAsked) query.leave();
    }
    return found;
  }

  /** @template T @param {Promise<T>} promise */
  track(promise) {
    const timer = setTimeout(() => this.onBusy(true), BUSY_DELAY_MS);
    const tracked = promise.finally(() => {
      clearTimeout(timer);
      this.fetching.delete(tracked);
      if (this.fetching.size === 0) this.onBusy(false);
    });
    this.fetching.add(tracked);
    return tracked;
  }

  /** Wait until all that is shown is current. */
  async idle() {
    while (this.fetching.size > 0) await Promise.allSettled(this.fetching);
  }

  /** Let the next fetch of each query that failed try again: once for what a person does, not for each answer that comes. */
  retry() {
    for (const query of this.queries.values()) if (query.answer.error) query.key = "";
  }

  /** What no view says itself. */
  get errors() {
    return [...this.queries.values()].flatMap(({ error }) => (error ? [error] : []));
  }

  close() {
    for (const query of this.queries.values()) query.controller?.abort();
  }
}

class Query {
  /** @param {QueryClient} client */
  constructor(client) {
    this.client = client;
    this.isAsked = false; // by what is shown
    this.key = ""; // of the answer
    this.answer = /** @type {Answer<any>} */ (NOTHING);
    this.last = { key: "", data: /** @type {any} */ (null) }; // that came
    this.error = /** @type {Error | null} */ (null); // for the bar of errors, until the next answer
    this.options = /** @type {AskOptions<any>} */ ({});
    this.controller = /** @type {AbortController | null} */ (null);
  }

  /**
   * The answer to a question, as far as it has come.
   * @param {unknown} what  plain data that names it @param {(signal: AbortSignal) => Promise<any>} queryFn
   * @param {AskOptions<any>} options @returns {Answer<any>}
   */
  fetch(what, queryFn, options) {
    const key = JSON.stringify(what);
    if (key === this.key) return this.answer;
    if (options.mayStart === false) return PENDING;
    this.controller?.abort();
    this.key = key;
    this.options = options;
    if (key === this.last.key) return this.settle({ ...NOTHING, data: this.last.data });
    this.answer = PENDING;
    const controller = (this.controller = new AbortController());
    const take = (/** @type {Answer<any>} */ answer, /** @type {() => void} */ act) => {
      if (controller.signal.aborted) return;
      this.settle(answer);
      act();
      this.client.onSettled();
    };
    this.client.track(queryFn(controller.signal)).then(
      (data) => {
        if (!controller.signal.aborted && !options.forgets) this.last = { key, data };
        take({ ...NOTHING, data }, () => options.onData?.(data));
      },
      (error) => take({ ...NOTHING, error }, () => options.onError?.(error)),
    );
    return this.answer;
  }

  /** @param {Answer<any>} answer */
  settle(answer) {
    this.error = this.options.inBar ? answer.error : null;
    return (this.answer = answer);
  }

  /** What went wrong with a part of the data, or null. @param {Error | null} error */
  report(error) {
    if (this.error === error) return;
    this.error = error;
    this.client.onSettled();
  }

  /** Nobody waits for it. */
  leave() {
    this.error = null;
    if (this.answer.data !== null && !this.options.forgets) return;
    this.controller?.abort();
    this.key = "";
    this.answer = NOTHING;
  }
}
