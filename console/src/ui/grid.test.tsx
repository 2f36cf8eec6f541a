import { fireEvent, render, screen } from '@testing-library/react';
import { userEvent } from '@testing-library/user-event';
import { expect, onTestFinished, test, vi } from 'vitest';

import { listenToKeys } from '../lib/keys';
import { Grid } from './Grid';

function grid(rows: string[], onWhy: (row: string) => void = () => undefined) {
  const columns = [{ name: 'Name', cell: (row: string) => row }];
  return <Grid label="Names" className="" columns={columns} rows={rows} rowKey={(row) => row} onWhy={onWhy} onOpen={onWhy} />;
}

const current = () => document.querySelector('[role="row"][tabindex="0"]')?.textContent;

test('rows that are added before the chosen one do not change what the keys act on', async () => {
  onTestFinished(listenToKeys());
  const user = userEvent.setup();
  const act = vi.fn();
  const { rerender } = render(grid(['b', 'c'], act));
  screen.getByText('c').closest<HTMLElement>('[role="row"]')?.focus();
  rerender(grid(['a', 'b', 'c'], act));
  expect(document.activeElement?.textContent).toBe('c');
  expect(current()).toBe('c');
  await user.keyboard('y{Enter}');
  expect(act.mock.calls).toEqual([['c'], ['c']]);
  rerender(grid(['a', 'b'], act));
  expect(current(), 'it is gone').toBe('b');
});

test('the current row is reached with Tab, wherever the list is scrolled to', () => {
  render(grid(Array.from({ length: 500 }, (_, at) => `row ${at}`)));
  const scroller = screen.getByRole('grid');
  scroller.scrollTop = 9_000;
  fireEvent.scroll(scroller);
  expect(screen.getByText('row 250')).toBeTruthy();
  expect(screen.queryByText('row 10')).toBeNull();
  expect(current()).toBe('row 0');
});

test('a key that moves the focus does so at once, so that no later key is lost', () => {
  onTestFinished(listenToKeys());
  const act = vi.fn();
  render(grid(Array.from({ length: 500 }, (_, at) => `row ${at}`), act));
  // Without a frame between the keys, as when they are typed on a busy machine.
  const press = (...keys: string[]) => {
    for (const key of keys) fireEvent.keyDown(document.activeElement ?? document.body, { key });
  };
  press('j', 'Enter', 'j', 'j', 'Enter');
  press('End', 'Enter');
  expect(act.mock.calls, 'also a row that was not in the document').toEqual([['row 0'], ['row 2'], ['row 499']]);
});
