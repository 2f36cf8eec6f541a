import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';

import type { Page, Rollout, RolloutDecision } from '../../api/types';
import { dateTime } from '../../lib/format';
import { commandsOf, roleFor } from '../../lib/rolloutCommands';
import { example, problem, serve, SESSION } from '../../test/broker';
import { json } from '../../test/json';
import { open } from '../../test/open';

const recorded = example<Rollout>('GET /api/v1/rollouts/{sequence_id}');

test('a command is confirmed, and meant for the wave that is shown', async () => {
  const sent: unknown[] = [];
  const { requests } = serve(async (request) => {
    const stopped = { ...recorded, state: 'stopped', stop_reason: { kind: 'person', reason: 'too slow' } };
    if (request.method === 'POST') sent.push(await request.clone().json());
    else if (sent.length === 0 || !request.url.endsWith('/rollouts/8')) return undefined;
    return json(200, stopped);
  });
  const { user } = open('/rollouts/8');
  await user.click(await screen.findByRole('button', { name: 'Stop' }));
  const dialog = await screen.findByRole('dialog', { name: 'Stop: Rollout of till 7 → 8' });
  within(dialog).getByText(/^Reaches \d+ agents?$/);
  await user.type(within(dialog).getByLabelText('Reason'), 'too slow');
  await user.click(within(dialog).getByRole('button', { name: 'Stop' }));
  await screen.findByText('too slow');
  expect(sent).toEqual([{ wave: 1, reason: 'too slow' }]);
  const post = requests.find(({ method }) => method === 'POST');
  expect(new URL(post?.url ?? '').pathname).toBe('/api/v1/rollouts/8/stop');
  expect(post?.headers.get('brokkr-console')).toBe('1');
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(screen.getByRole('button', { name: 'Resume' })).toBeTruthy();
  expect(document.getElementById('announcements')?.textContent).toBe('Stop: Rollout of till 7 → 8: done');
  const heading = screen.getByRole('heading', { level: 1 });
  await waitFor(() => expect(document.activeElement, 'the button has gone').toBe(heading));
});

test('the decisions are listed with the agents as they were counted', async () => {
  serve();
  open('/rollouts/8');
  const heading = await screen.findByRole('heading', { name: 'Decisions' });
  const section = within(heading.closest('section') as HTMLElement);
  const lines = (await section.findAllByRole('listitem')).map((line) => line.textContent);
  const [paused, begun] = example<Page<RolloutDecision>>('GET /api/v1/rollouts/{sequence_id}/decisions').items;
  expect(lines).toEqual([
    `${dateTime(paused?.at ?? '')}Wave 1‖pausedreleased to 1 of 2 agents · seen: 1 in flight`,
    `${dateTime(begun?.at ?? '')}Wave 1▶runningreleased to 0 of 2 agents · seen: none`,
  ]);
});

test('a widening names no agents: which of them it is for is not known', async () => {
  serve(({ url }) => (url.endsWith('/rollouts/8') ? json(200, { ...recorded, widens: 7 }) : undefined));
  const { user } = open('/rollouts/8');
  await user.click(await screen.findByRole('button', { name: 'Pause' }));
  const dialog = within(await screen.findByRole('dialog'));
  await dialog.findByText(/^Reaches \d+ agents?$/);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(dialog.queryByText(/eu-1/)).toBeNull();
});

test('a refusal stays in the dialog', async () => {
  serve(({ method }) => (method === 'POST' ? problem(409, 'BRK2023', 'the rollout is at wave 2') : undefined));
  const { user } = open('/rollouts/8');
  await user.click(await screen.findByRole('button', { name: 'Pause' }));
  await user.click(within(await screen.findByRole('dialog')).getByRole('button', { name: 'Pause' }));
  expect((await within(screen.getByRole('dialog')).findByRole('alert')).textContent).toContain('the rollout is at wave 2');
});

test('a viewer sees the commands, and the role that they need', async () => {
  serve(({ url }) => (url.endsWith('/sessions/current') ? json(200, { ...SESSION, role: 'viewer' }) : undefined));
  const { user } = open('/rollouts/8');
  const stop = await screen.findByRole('button', { name: 'Stop' });
  expect(document.getElementById(stop.getAttribute('aria-describedby') ?? '')?.textContent).toBe(
    'Needs the role deployer.',
  );
  await user.click(stop);
  expect(screen.queryByRole('dialog')).toBeNull();
});

test('the commands fit the state', () => {
  const last: Rollout = { ...recorded, wave: 2 };
  const ended: Rollout = { ...recorded, state: 'completed' };
  expect(commandsOf(recorded)).toContain('promote');
  expect(commandsOf(last), 'there is no next wave').not.toContain('promote');
  expect(commandsOf(ended)).toEqual([]);
  const waves = [{ size: '100%', gate: { role: 'owner' as const } }];
  const gated: Rollout = { ...recorded, state: 'gated', wave: 1, policy: { waves } };
  expect([roleFor('approve', gated), roleFor('pause', gated)]).toEqual(['owner', 'deployer']);
});
