import { expect, test, vi } from 'vitest';

import { addAnnouncer, announce } from './announce';

const region = () => document.getElementById('announcements');

test('the region is not hidden under dialogs, and the same text is said again', async () => {
  addAnnouncer();
  expect(region()?.getAttribute('data-live-announcer')).toBe('true');
  announce('Copied');
  expect(region()?.textContent).toBe('Copied');
  announce('Copied');
  expect(region()?.textContent).toBe('');
  await vi.waitFor(() => expect(region()?.textContent).toBe('Copied'));
  announce('Copied');
  announce('Stacks');
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(region()?.textContent).toBe('Stacks');
});
