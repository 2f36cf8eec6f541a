import { QueryClientProvider } from '@tanstack/react-query';
import { render, screen, waitFor, within } from '@testing-library/react';
import { userEvent } from '@testing-library/user-event';
import { lazy } from 'react';
import { expect, onTestFinished, test, vi } from 'vitest';

import { ApiError } from '../api/problem';
import { makeQueryClient } from '../app/queryClient';
import { serve } from '../test/broker';
import { listenToKeys, useShortcuts } from '../lib/keys';
import { ActButton, ActDialog } from './Act';
import { TextField } from './Field';

const Missing = lazy(() => Promise.reject(new ApiError(0, 'the broker is not reachable')));

test('a dialog that cannot be loaded says why, and leaves the page as it is', async () => {
  vi.spyOn(console, 'error').mockImplementation(() => undefined);
  serve();
  const user = userEvent.setup();
  render(
    <QueryClientProvider client={makeQueryClient()}>
      <p>the page</p>
      <ActButton name="Roll back" needs="deployer">
        {() => <Missing />}
      </ActButton>
    </QueryClientProvider>,
  );
  const button = screen.getByRole('button', { name: 'Roll back' });
  await waitFor(() => expect(button.getAttribute('aria-disabled')).toBeNull());
  await user.click(button);
  const dialog = await screen.findByRole('dialog', { name: 'Roll back' });
  expect(within(dialog).getByRole('alert').textContent).toContain('the broker is not reachable');
  await user.keyboard('{Escape}');
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(screen.getByText('the page')).toBeTruthy();
});

/** Opens a dialog with a field. */
async function openDialog(run: (name: string | undefined, expect: number | undefined) => Promise<unknown>) {
  serve();
  onTestFinished(listenToKeys());
  const search = vi.fn();
  function Page() {
    useShortcuts([{ keys: 'Ctrl-K', label: 'Search', run: search }]);
    return (
      <ActButton name="Retarget" needs="deployer">
        {(close) => (
          <ActDialog
            title="Retarget"
            submit="Retarget"
            onClose={close}
            announced="done"
            run={(values, expected) => run(values.text('name'), expected)}
          >
            <TextField label="Name" name="name" />
          </ActDialog>
        )}
      </ActButton>
    );
  }
  const user = userEvent.setup();
  render(
    <QueryClientProvider client={makeQueryClient()}>
      <Page />
    </QueryClientProvider>,
  );
  const button = screen.getByRole('button', { name: 'Retarget' });
  await waitFor(() => expect(button.getAttribute('aria-disabled')).toBeNull());
  await user.click(button);
  const dialog = within(await screen.findByRole('dialog', { name: 'Retarget' }));
  return { user, dialog, search };
}

test('the number that is confirmed belongs to what was sent: it does not survive an edit', async () => {
  const sent: unknown[] = [];
  const { user, dialog } = await openDialog(async (name, confirmed) => {
    sent.push([name, confirmed]);
    if (confirmed === undefined) throw new ApiError(409, 'it removes 12', { expect: 12 });
  });
  await user.type(dialog.getByLabelText('Name'), 'a{Enter}');
  await dialog.findByRole('button', { name: 'Retarget, and remove 12' });
  await user.type(dialog.getByLabelText('Name'), 'b');
  expect(dialog.queryByRole('button', { name: 'Retarget, and remove 12' })).toBeNull();
  await user.keyboard('{Enter}');
  await user.click(await dialog.findByRole('button', { name: 'Retarget, and remove 12' }));
  expect(sent).toEqual([
    ['a', undefined],
    ['ab', undefined],
    ['ab', 12],
  ]);
});

test('a dialog is not closed while its request is under way, nor covered by the search', async () => {
  const answer = Promise.withResolvers<void>();
  const { user, dialog, search } = await openDialog(() => answer.promise);
  await user.type(dialog.getByLabelText('Name'), 'a');
  await user.keyboard('{Control>}k{/Control}');
  expect(search).not.toHaveBeenCalled();
  await user.keyboard('{Enter}');
  await user.keyboard('{Escape}');
  await user.click(dialog.getByRole('button', { name: 'Cancel' }));
  expect(screen.getByRole('dialog', { name: 'Retarget' })).toBeTruthy();
  answer.resolve();
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
});
