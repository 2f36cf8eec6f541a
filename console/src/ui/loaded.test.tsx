import type { UseQueryResult } from '@tanstack/react-query';
import { act, render, screen } from '@testing-library/react';
import { expect, test, vi } from 'vitest';

import { Loaded } from './Loaded';

test('what loads is marked at once, and is said only if it takes a while', () => {
  vi.useFakeTimers();
  const loaded = (data: string | undefined) => (
    <Loaded query={{ data, isError: false } as UseQueryResult<string>}>{(text) => <p>{text}</p>}</Loaded>
  );
  const { container, rerender } = render(loaded(undefined));
  expect(container.querySelectorAll('[aria-busy="true"]')).toHaveLength(1);
  expect(screen.getByRole('status').textContent).toBe('');
  act(() => vi.advanceTimersByTime(200));
  const status = screen.getByText('Loading');
  expect(status.closest('[aria-busy]'), 'what is busy is not announced').toBeNull();
  rerender(loaded('data'));
  expect(container.querySelector('[aria-busy]')).toBeNull();
  screen.getByText('data');
});
