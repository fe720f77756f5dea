// Asynchronous data by key, after TanStack Query: a query fetches once for each key, cancels a fetch that a new key
// supersedes, and keeps the last data and error until the next ones arrive.

const BUSY_DELAY_MS = 100; // shorter fetches do not show as busy

export class QueryClient {
  /** @param {(busy: boolean) => void} onBusy @param {(errors: Error[]) => void} onErrors  all current errors */
  constructor(onBusy, onErrors) {
    this.onBusy = onBusy;
    this.onErrors = onErrors;
    this.queries = /** @type {Query<any>[]} */ ([]);
    this.numFetching = 0;
  }

  /** @template T @param {Promise<T>} fetching */
  async track(fetching) {
    const timer = setTimeout(() => this.onBusy(true), BUSY_DELAY_MS);
    this.numFetching += 1;
    try {
      return await fetching;
    } finally {
      clearTimeout(timer);
      this.numFetching -= 1;
      if (this.numFetching === 0) this.onBusy(false);
    }
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
   * @param {QueryClient} client @param {() => void} onSettled  data or an error arrived
   * @param {{ handlesError?: boolean }} [options]  whether the view of the data shows its errors too
   */
  constructor(client, onSettled, { handlesError = false } = {}) {
    this.client = client;
    this.onSettled = onSettled;
    this.handlesError = handlesError;
    this.data = /** @type {T | null} */ (null); // the last that arrived
    this.error = /** @type {Error | null} */ (null);
    this.key = ""; // of the data that is needed now
    this.inFlightKey = ""; // of the last fetch, which may have arrived
    this.dataKey = "";
    this.errorKey = "";
    this.controller = /** @type {AbortController | null} */ (null);
    client.queries.push(this);
  }

  /** Whether the data is that of the current key. */
  get isCurrent() {
    return this.dataKey === this.key && this.data !== null;
  }

  /** The data, if it is that of the current key. */
  get current() {
    return this.isCurrent ? this.data : null;
  }

  /** The error, if it is that of the current key. */
  get currentError() {
    return this.errorKey === this.key ? this.error : null;
  }

  /** @param {unknown} what  plain data that names it @param {(signal: AbortSignal) => Promise<T>} queryFn */
  fetch(what, queryFn) {
    const key = (this.key = JSON.stringify(what));
    if (this.inFlightKey === key) return;
    this.controller?.abort();
    this.inFlightKey = key;
    if (this.isCurrent) return this.setError(null);
    const controller = (this.controller = new AbortController());
    this.client.track(queryFn(controller.signal)).then(
      (data) => {
        if (controller.signal.aborted) return;
        this.data = data;
        this.dataKey = key;
        this.setError(null);
        this.onSettled();
      },
      (error) => {
        if (controller.signal.aborted) return;
        this.errorKey = key;
        this.setError(error);
        this.onSettled(); // before the key is cleared: it may fetch the same key, and must not retry endlessly
        if (this.inFlightKey === key) this.inFlightKey = ""; // a later fetch retries
      },
    );
  }

  /** @param {Error | null} error */
  setError(error) {
    if (this.error === error) return;
    this.error = error;
    this.client.reportErrors();
  }

  reset() {
    this.controller?.abort();
    this.key = this.inFlightKey = this.dataKey = "";
    this.data = null;
    this.setError(null);
  }
}
