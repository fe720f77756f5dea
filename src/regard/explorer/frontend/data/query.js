// Asynchronous data by key, after TanStack Query: a query fetches once for each key and cancels a fetch that a new key
// supersedes. What it returns is of the key that it is asked for, never of another: a view cannot show data of another state.

const BUSY_DELAY_MS = 100; // shorter fetches do not show as busy
const PENDING = Object.freeze({ data: null, error: null, isPending: true });
export const NOTHING = Object.freeze({ data: null, error: null, isPending: false }); // is needed

export class QueryClient {
  /**
   * @param {(busy: boolean) => void} onBusy @param {(errors: Error[]) => void} onErrors  all current errors
   * @param {() => void} onSettled  data or an error has come
   */
  constructor(onBusy, onErrors, onSettled) {
    this.onBusy = onBusy;
    this.onErrors = onErrors;
    this.onSettled = onSettled;
    this.queries = /** @type {Query<any>[]} */ ([]);
    this.fetching = /** @type {Set<Promise<any>>} */ (new Set());
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
    for (const query of this.queries) if (query.answer.error) query.key = "";
  }

  reportErrors() {
    this.onErrors(this.queries.flatMap(({ error, handlesError }) => (error && !handlesError ? [error] : [])));
  }

  close() {
    for (const query of this.queries) query.reset();
  }
}

/** @template T */
export class Query {
  /**
   * @param {QueryClient} client
   * @param {{ handlesError?: boolean, onData?: (data: T) => void, onError?: (error: Error) => void }} [options]
   *   whether the view of the data shows its errors too; what is done once with data or an error, before it is shown
   */
  constructor(client, { handlesError = false, onData = () => {}, onError = () => {} } = {}) {
    this.client = client;
    this.handlesError = handlesError;
    this.onData = onData;
    this.onError = onError;
    this.key = ""; // of the answer
    this.answer = /** @type {Answer<T>} */ (NOTHING);
    this.last = { key: "", data: /** @type {T | null} */ (null) }; // that came
    this.error = /** @type {Error | null} */ (null); // that is reported, until the next answer
    this.controller = /** @type {AbortController | null} */ (null);
    client.queries.push(this);
  }

  /**
   * The answer to a question, as far as it has come.
   * @param {unknown} what  plain data that names it @param {(signal: AbortSignal) => Promise<T>} queryFn
   * @param {boolean} [mayStart]  whether it is fetched now, if it is another question
   * @returns {Answer<T>}
   */
  fetch(what, queryFn, mayStart = true) {
    const key = JSON.stringify(what);
    if (key === this.key) return this.answer;
    if (!mayStart) return PENDING;
    this.controller?.abort();
    this.key = key;
    if (key === this.last.key) return this.settle({ ...NOTHING, data: this.last.data });
    this.answer = PENDING;
    const controller = (this.controller = new AbortController());
    const take = (/** @type {Answer<T>} */ answer, /** @type {() => void} */ act) => {
      if (controller.signal.aborted) return;
      this.settle(answer);
      act();
      this.client.onSettled();
    };
    this.client.track(queryFn(controller.signal)).then(
      (data) => {
        if (!controller.signal.aborted) this.last = { key, data };
        take({ ...NOTHING, data }, () => this.onData(data));
      },
      (error) => take({ ...NOTHING, error }, () => this.onError(error)),
    );
    return this.answer;
  }

  /** @param {Answer<T>} answer */
  settle(answer) {
    this.report(answer.error);
    return (this.answer = answer);
  }

  /** @param {Error | null} error */
  report(error) {
    if (this.error === error) return;
    this.error = error;
    this.client.reportErrors();
  }

  reset() {
    this.controller?.abort();
    this.key = "";
    this.last = { key: "", data: null };
    return this.settle(NOTHING);
  }
}
