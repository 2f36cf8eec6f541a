import { render, screen } from '@testing-library/react';
import { userEvent } from '@testing-library/user-event';
import { expect, test, vi } from 'vitest';

import { lazyPart } from './lazyPart';

test('a part that cannot be loaded says so, leaves the page as it is, and can be loaded again', async () => {
  vi.spyOn(console, 'error').mockImplementation(() => undefined);
  vi.spyOn(globalThis, 'fetch').mockRejectedValue(new TypeError('fetch failed'));
  const user = userEvent.setup();
  let isAway = true;
  const Part = lazyPart(async () => {
    if (isAway) throw new TypeError('Failed to fetch dynamically imported module');
    return { default: ({ name }: { name: string }) => <p>{`part ${name}`}</p> };
  });
  const { rerender } = render(
    <>
      <p>the page</p>
      <Part name="one" />
    </>,
  );
  expect((await screen.findByRole('alert')).textContent).toContain('the broker is not reachable');
  expect(screen.getByText('the page')).toBeTruthy();
  isAway = false;
  await user.click(screen.getByRole('button', { name: 'Retry' }));
  await screen.findByText('part one');
  expect(screen.queryByRole('alert')).toBeNull();
  rerender(<Part name="two" />);
  expect(screen.getByText('part two'), 'it is loaded once').toBeTruthy();
});
