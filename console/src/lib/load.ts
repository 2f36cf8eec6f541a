// Loading parts of the console.

import { unreachable } from '../api/problem';

/**
 * Loads a part of the console. If the broker is not reachable, the error says so, and the router does not load the page
 * again: the browser would show its own error instead of the console. If the broker is reachable, it was upgraded, and
 * loading the page again helps.
 */
export function loading<T>(load: () => Promise<T>): () => Promise<T> {
  return async () => {
    try {
      return await load();
    } catch (thrown) {
      if (await isReachable()) throw thrown;
      throw unreachable();
    }
  };
}

async function isReachable(): Promise<boolean> {
  try {
    return (await globalThis.fetch(new URL('/livez', globalThis.location.origin))).ok;
  } catch {
    return false;
  }
}
