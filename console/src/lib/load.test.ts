import { expect, test, vi } from 'vitest';

import { loading } from './load';

const missing = new TypeError('Failed to fetch dynamically imported module: /ui/assets/Agents.js');

test('a part that is missing after an upgrade is reported as it is, so that the router loads the page again', async () => {
  vi.spyOn(globalThis, 'fetch').mockResolvedValue(new Response('ok'));
  await expect(loading(() => Promise.reject(missing))()).rejects.toBe(missing);
});

test('while the broker is not reachable, the console says so and stays', async () => {
  vi.spyOn(globalThis, 'fetch').mockRejectedValue(new TypeError('fetch failed'));
  await expect(loading(() => Promise.reject(missing))()).rejects.toThrow('the broker is not reachable');
  await expect(loading(() => Promise.resolve('page'))()).resolves.toBe('page');
});
