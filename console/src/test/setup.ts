// What the document of the tests lacks.

import { cleanup, configure } from '@testing-library/react';
import { afterEach, beforeEach, vi } from 'vitest';

// Another job may use the machine at the same time: the first page of a file takes a while to load.
configure({ asyncUtilTimeout: 10_000 });

// The document has no layout, so a list would be empty: give every element the size of a window.
for (const [name, size] of [
  ['clientWidth', 1280],
  ['clientHeight', 720],
] as const) {
  Object.defineProperty(HTMLElement.prototype, name, { configurable: true, get: () => size });
}

/** Grants every lock at once: in a test there is one tab. */
const locks = { request: (_name: string, _options: object, then: () => unknown) => Promise.resolve(then()) };
Object.defineProperty(navigator, 'locks', { configurable: true, value: locks });

// The tests have an address with HTTPS.
Object.defineProperty(globalThis, 'isSecureContext', { configurable: true, value: true });

beforeEach(() => {
  localStorage.clear();
  // The recorded examples are from this day.
  vi.useFakeTimers({ now: new Date('2026-01-15T09:00:30Z'), toFake: ['Date'] });
});

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});
