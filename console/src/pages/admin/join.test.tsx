import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';

import type { Agent, JoinToken, Page } from '../../api/types';
import { accessible, button, closed, dialog, record } from '../../test/acts';
import { example, problem } from '../../test/broker';
import { json } from '../../test/json';
import { open } from '../../test/open';

test('a cluster joins with a command, and the check list turns green on the first contact', async () => {
  const state: { agent: Agent | undefined } = { agent: undefined };
  const recorded = example<Agent>('GET /api/v1/agents/{agent}');
  record('admin', ({ url }) => {
    const { pathname } = new URL(url);
    if (pathname === '/api/v1/agents') return json(200, { items: [], next: null });
    if (pathname !== '/api/v1/agents/shop-9') return undefined;
    return state.agent ? json(200, state.agent) : problem(404, 'BRK1003', 'no agent shop-9');
  });
  const { user } = open('/admin/join');
  await user.click(await button('Join a cluster'));
  const form = within(await dialog('Join a cluster'));
  await user.type(form.getByLabelText('Name for the agent'), 'shop-9');
  await user.type(form.getByLabelText('Labels, such as env=prod, region=eu'), 'env=prod, region=eu');
  await accessible();
  await user.click(form.getByRole('button', { name: 'Continue' }));
  await screen.findByText('brokkr agent join shop-9 --label env=prod --label region=eu');
  const steps = await screen.findByRole('list', { name: 'Progress of shop-9' });
  const lines = () => within(steps).getAllByRole('listitem').map((line) => line.textContent);
  expect(lines()).toEqual(['…The agent has joined: waiting', '…The agent is connected: waiting']);
  await accessible();
  state.agent = { ...recorded, presence: 'never' };
  await waitFor(() => expect(lines()[0]).toBe('✔The agent has joined: done'));
  expect(lines()[1]).toBe('…The agent is connected: waiting');
  state.agent = { ...recorded, presence: 'fresh' };
  await waitFor(() => expect(lines()[1]).toBe('✔The agent is connected: done'));
  screen.getByText('brokkr apply hello -f examples/hello --to env=prod --wait');
  expect(screen.getByRole('link', { name: 'Open shop-9' }).getAttribute('href')).toBe('/ui/agents/shop-9');
});

test('an agent that exists joins again, and a label without a value is refused before anything is sent', async () => {
  const sent = record('admin');
  const { user } = open('/admin/join');
  await user.click(await button('Join a cluster'));
  const form = within(await dialog('Join a cluster'));
  await user.type(form.getByLabelText('Name for the agent'), 'eu-1');
  await user.type(form.getByLabelText('Labels, such as env=prod, region=eu'), 'prod');
  await user.click(form.getByRole('button', { name: 'Continue' }));
  expect((await form.findByRole('alert')).textContent).toContain('“prod” is not a label');
  await user.clear(form.getByLabelText('Labels, such as env=prod, region=eu'));
  await user.click(form.getByRole('button', { name: 'Continue' }));
  await screen.findByText('brokkr agent join eu-1 --rejoin');
  await user.click(screen.getByRole('button', { name: 'Close' }));
  await user.click(await button('Create a join token'));
  const token = within(await dialog('Create a join token'));
  await user.type(token.getByLabelText('Name for the agent'), 'us-3');
  await user.click(token.getByRole('button', { name: 'Create a join token' }));
  await screen.findByText(/^brj_EXAMPLE/);
  await user.click(screen.getByRole('button', { name: 'Close' }));
  await user.click(await button('Revoke: us-2'));
  await user.click(within(await dialog('Revoke the join token of us-2')).getByRole('button', { name: 'Revoke' }));
  await closed();
  const tokens = example<Page<JoinToken>>('GET /api/v1/join-tokens').items;
  const id = tokens.find(({ agent_name: name }) => name === 'us-2')?.id;
  expect(sent).toEqual([
    ['POST /api/v1/join-tokens', { agent_name: 'us-3', labels: {}, ttl_seconds: 3600 }],
    [`DELETE /api/v1/join-tokens/${id}`],
  ]);
});

test('an agent that joins again has joined when it has a new key', async () => {
  const state: { key: string } = { key: '2026-01-01T00:00:00Z' };
  const recorded = example<Agent>('GET /api/v1/agents/{agent}');
  record('admin', ({ url }) => {
    const found = { ...recorded, presence: 'fresh', key_since: state.key };
    const { pathname } = new URL(url);
    if (pathname === '/api/v1/agents') return json(200, { items: [found], next: null });
    return pathname === '/api/v1/agents/eu-1' ? json(200, found) : undefined;
  });
  const { user } = open('/admin/join');
  await user.click(await button('Join a cluster'));
  await user.type(await screen.findByLabelText('Name for the agent'), 'eu-1{Enter}');
  const steps = await screen.findByRole('list', { name: 'Progress of eu-1' });
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(steps.textContent).toBe('…The agent has joined: waiting…The agent is connected: waiting');
  state.key = '2026-01-15T09:00:40Z';
  await waitFor(() => expect(steps.textContent).toBe('✔The agent has joined: done✔The agent is connected: done'));
});
