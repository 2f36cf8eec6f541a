import { expect, test, vi } from 'vitest';

import { throttle } from './throttle';

test('many calls run at once, and at the end of each period', () => {
  vi.useFakeTimers();
  const run = vi.fn();
  const call = throttle(run, 2_000);
  for (let calls = 0; calls < 50; calls += 1) {
    call();
    vi.advanceTimersByTime(100);
  }
  expect(run).toHaveBeenCalledTimes(3);
  vi.advanceTimersByTime(10_000);
  expect(run, 'after the last call, once').toHaveBeenCalledTimes(4);
});
