// The store: holds the state and notifies its subscribers.

/** @import { State } from "../types.js" */

/** Holds the state and notifies subscribers of changes. */
export class Store {
  /** @param {State} state */
  constructor(state) {
    this.state = state;
    /** @type {((state: State, before: State) => void)[]} */
    this.listeners = [];
  }

  /** @param {Partial<State>} change */
  set(change) {
    const before = this.state;
    const next = { ...before, ...change };
    if (JSON.stringify(next) === JSON.stringify(before)) return;
    this.state = next;
    for (const listener of this.listeners) listener(next, before);
  }

  /** @param {(state: State, before: State) => void} listener */
  subscribe(listener) {
    this.listeners.push(listener);
  }
}
