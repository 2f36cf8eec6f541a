import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';

import type { Stack } from '../../api/types';
import { example } from '../../test/broker';
import { json } from '../../test/json';
import { open } from '../../test/open';
import { accessible, dialogOf, record } from '../../test/stack';

test('a change of targets is previewed, and the number that the broker names is confirmed', async () => {
  const asked = { type: '', title: '', status: 409, code: 'BRK2009', detail: 'it removes 12', next: '', expect: 12 };
  const isAsked = ({ method, url }: Request) => method === 'PUT' && !url.includes('expect=12');
  const sent = record((request) => (isAsked(request) ? json(409, asked) : undefined));
  const { user } = open('/stacks/web?tab=targets');
  await user.click(await screen.findByRole('button', { name: 'Retarget' }));
  const dialog = await dialogOf('Change the targets of web');
  await within(dialog).findByText('0 agents would get it, 1 keep it, 1 lose it');
  const selectors = within(dialog).getByLabelText('Label selectors, one per line');
  await user.clear(selectors);
  await within(dialog).findByText('Without targets, all agents remove the stack.');
  await user.type(selectors, 'env=dev{Enter}region in (eu,us)');
  await within(dialog).findByText('region in (eu,us): 1 agent');
  await accessible(dialog);
  await user.click(within(dialog).getByRole('button', { name: 'Retarget' }));
  await user.click(await within(dialog).findByRole('button', { name: 'Retarget, and remove 12' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  const body = { selectors: ['env=dev', 'region in (eu,us)'], agents: [] };
  expect(sent.map((one) => [one.search, one.match, one.body])).toEqual([
    ['', '"tag-of-web"', body],
    ['?expect=12', '"tag-of-web"', body],
  ]);
});

/** The stack as somebody else has changed it, with its tag. */
function changed(targets: Stack['targets'], tag: string | null = '"newer"') {
  const body = JSON.stringify({ ...example<Stack>('GET /api/v1/stacks/{stack}'), targets });
  return new Response(body, { headers: { 'content-type': 'application/json', ...(tag && { etag: tag }) } });
}

test('targets are changed from those that the tag belongs to, not from those that the page has read before', async () => {
  const state = { isChanged: false };
  const sent = record(({ method, url }) => {
    const isStack = method === 'GET' && new URL(url).pathname === '/api/v1/stacks/web';
    return isStack && state.isChanged ? changed({ selectors: ['env=dev'], agents: [] }) : undefined;
  });
  const { user } = open('/stacks/web?tab=targets');
  await screen.findByText('env=prod');
  state.isChanged = true;
  await user.click(screen.getByRole('button', { name: 'Retarget' }));
  const dialog = await dialogOf('Change the targets of web');
  const selectors = await within(dialog).findByLabelText<HTMLTextAreaElement>('Label selectors, one per line');
  expect(selectors.value).toBe('env=dev');
  await user.type(selectors, '{Enter}env=test');
  await user.click(within(dialog).getByRole('button', { name: 'Retarget' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(sent.map((one) => [one.match, one.body])).toEqual([
    ['"newer"', { selectors: ['env=dev', 'env=test'], agents: [] }],
  ]);
});

test('named agents that lose the stack are listed and typed, because the broker does not ask', async () => {
  const sent = record(({ method, url }) => {
    const isStack = method === 'GET' && new URL(url).pathname === '/api/v1/stacks/web';
    return isStack ? changed({ selectors: ['env=prod'], agents: ['eu-1', 'us-1'] }) : undefined;
  });
  const { user } = open('/stacks/web');
  await user.click(await screen.findByRole('button', { name: 'Retarget' }));
  const dialog = await dialogOf('Change the targets of web');
  const agents = await within(dialog).findByLabelText('Agents by name, one per line');
  await within(dialog).findByText('0 agents would get it, 1 keep it, 1 lose it');
  await user.clear(agents);
  await user.type(agents, 'us-1');
  within(dialog).getByText(/^1 agent no longer named: eu-1\./);
  const before = '0 agents would get it, 1 keep it, 1 lose it';
  await waitFor(() => expect(within(dialog).queryByText(before), 'it counts the agents that are named now').toBeNull());
  await accessible(dialog);
  await user.click(within(dialog).getByRole('button', { name: 'Retarget' }));
  expect(sent).toEqual([]);
  await user.type(within(dialog).getByLabelText('Type web to confirm'), 'web{Enter}');
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(sent.map((one) => one.body)).toEqual([{ selectors: ['env=prod'], agents: ['us-1'] }]);
});

test.each([
  ['Retarget', 'Change the targets of web'],
  ['Roll back', 'Roll back web'],
  ['Delete', 'Delete web'],
])('%s is not sent without the tag of the stack', async (name, title) => {
  const sent = record(({ method, url }) => {
    const isStack = method === 'GET' && new URL(url).pathname === '/api/v1/stacks/web';
    return isStack ? changed({ selectors: ['env=prod'] }, null) : undefined;
  });
  const { user } = open('/stacks/web');
  await user.click(await screen.findByRole('button', { name }));
  const dialog = await dialogOf(title);
  const problem = 'The current state of the stack could not be read.';
  await waitFor(() => expect(within(dialog).getByRole('alert').textContent).toContain(problem));
  const submit = within(dialog).getByRole('button', { name });
  expect(document.getElementById(submit.getAttribute('aria-describedby') ?? '')?.textContent).toBe(problem);
  await user.click(submit);
  expect(sent).toEqual([]);
});
