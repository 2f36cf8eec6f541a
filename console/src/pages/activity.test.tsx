import { screen, waitFor, within } from '@testing-library/react';
import { expect, test, vi } from 'vitest';

import type { ErrorGroup, Event, Page, Rollout, StackStatus } from '../api/types';
import { fold, withSubmissions } from '../lib/activity';
import { csv } from '../lib/csv';
import { accessible, record } from '../test/acts';
import { example, serve } from '../test/broker';
import { json } from '../test/json';
import { open } from '../test/open';

const [recorded] = example<Page<Event>>('GET /api/v1/events').items;

function event(id: string, at: string, agent: string, transition: string): Event {
  return { ...(recorded as Event), id, at: `2026-01-15T${at}:00Z`, agent_name: agent, transition };
}

test('reports of many agents about the same version are one line, unless there is a pause', () => {
  const events = [
    event('6', '14:09', 'c', 'healthy'),
    event('5', '14:05', 'a', 'failed'),
    event('4', '14:04', 'b', 'healthy'),
    event('3', '14:03', 'a', 'healthy'),
    event('2', '14:03', 'a', 'healthy'),
    event('1', '11:00', 'a', 'healthy'),
  ];
  const folds = fold(events).map(({ transition, agents, events: count, from, at }) => {
    return [transition, agents.size, count, from.slice(11, 16), at.slice(11, 16)];
  });
  expect(folds).toEqual([
    ['healthy', 3, 4, '14:03', '14:09'],
    ['failed', 1, 1, '14:05', '14:05'],
    ['healthy', 1, 1, '11:00', '11:00'],
  ]);
});

test('submissions of a time that is not loaded are left out', () => {
  const folds = fold([event('2', '14:05', 'a', 'failed'), event('1', '14:03', 'a', 'healthy')]);
  const [one] = example<Page<Rollout>>('GET /api/v1/stacks/{stack}/deployment-objects').items;
  const version = (sequence: number, at: string) =>
    ({ ...one, sequence_id: sequence, created_at: `2026-01-15T${at}:00Z` }) as never;
  const versions = [version(3, '15:00'), version(2, '14:04'), version(1, '10:00')];
  const shown = (hasStart: boolean, hasEnd: boolean) =>
    withSubmissions(folds, 'web', versions, { hasStart, hasEnd })
      .filter((line) => line.kind === 'submitted')
      .map((line) => line.version);
  expect([shown(false, false), shown(true, false), shown(true, true)]).toEqual([[3, 2, 1], [3, 2], [2]]);
});

test('the file has one line for each event, and no formulas', () => {
  expect(csv(['a', 'b'], [['x,y', 'say "no"'], ['=1+1', 2]])).toBe('a,b\r\n"x,y","say ""no"""\r\n\'=1+1,2\r\n');
});

test('the activity folds events, adds who submitted what, and opens the events of a line', async () => {
  record('viewer');
  const { user, address } = open('/activity?stack=web');
  const grid = await screen.findByRole('grid', { name: 'Activity' });
  await within(grid).findByText('by pipeline: the image of 1.5.0 was not pushed');
  const rows = () => within(grid).getAllByRole('row').slice(1);
  expect(rows().map((row) => within(row).getAllByRole('gridcell')[3]?.textContent)).toContain('▲submitted');
  const failed = rows().find((row) => row.textContent?.includes('failed')) as HTMLElement;
  failed.focus();
  await user.keyboard('{Enter}');
  await waitFor(() => expect(address()).toBe('/ui/events?stack=web&version=2&transition=failed'));
});

test('filters are in the address, a time may be a duration, and the file has what they select', async () => {
  const files: Blob[] = [];
  vi.spyOn(URL, 'createObjectURL').mockImplementation((blob) => {
    files.push(blob as Blob);
    return 'blob:file';
  });
  const clicked = vi.spyOn(HTMLAnchorElement.prototype, 'click').mockImplementation(() => undefined);
  const read: string[] = [];
  record('viewer', ({ url }) => {
    if (new URL(url).pathname === '/api/v1/events') read.push(new URL(url).search);
    return undefined;
  });
  const { user, address } = open('/activity');
  await user.type(await screen.findByLabelText('Since'), '2h');
  await user.selectOptions(screen.getByLabelText('Event'), 'failed');
  await waitFor(() => expect(address()).toBe('/ui/activity?transition=failed&since=2h'));
  await waitFor(() => expect(read.at(-1)).toContain('transition=failed&since=2026-01-15T07%3A00%3A30.000Z'));
  await user.click(screen.getByRole('button', { name: 'Download CSV' }));
  await waitFor(() => expect(files).toHaveLength(1));
  expect((clicked.mock.contexts[0] as HTMLAnchorElement).download).toBe('brokkr-events.csv');
  const [head, first] = (await (files[0] as Blob).text()).split('\r\n');
  expect(head).toBe('time,project,stack,version,agent,event,reason,message');
  expect(first).toBe(
    `${recorded?.at},shop,web,2,eu-1,failed,ImagePullBackOff,Deployment shop/web: 0/3 replicas ready`,
  );
});

test('rows of the previous filter are marked until the new ones arrive', async () => {
  const answer = Promise.withResolvers<void>();
  serve(async ({ url }) => {
    if (new URL(url).searchParams.get('transition') === 'failed') await answer.promise;
    return undefined;
  });
  const { user } = open('/activity');
  const grid = await screen.findByRole('grid', { name: 'Activity' });
  const isBusy = () => grid.getAttribute('aria-busy');
  expect(isBusy()).toBe('false');
  await user.selectOptions(screen.getByLabelText('Event'), 'failed');
  await waitFor(() => expect(isBusy()).toBe('true'));
  answer.resolve();
  await waitFor(() => expect(isBusy()).toBe('false'));
});

test('a text that is no time is said, and does no harm', async () => {
  record('viewer');
  open('/events?since=soon');
  expect((await screen.findByRole('alert')).textContent).toContain('“soon” is not a time');
});

test('from an error to all its agents, counted', async () => {
  const read: string[] = [];
  record('viewer', ({ url }) => {
    const { pathname, search } = new URL(url);
    if (pathname !== '/api/v1/stacks/web/status') return undefined;
    read.push(search);
    const page = example<Page<StackStatus>>('GET /api/v1/stacks/{stack}/status');
    return json(200, { ...page, next: 'more', total: 398 });
  });
  const { user, address } = open('/stacks/web?tab=errors');
  await user.click(await screen.findByRole('link', { name: 'Show the agent' }));
  await waitFor(() => expect(address()).toBe('/ui/stacks/web?error=ImagePullBackOff'));
  await screen.findByText('1 of 398');
  expect(read).toContain('?error=ImagePullBackOff&limit=500&count=true');
  await user.selectOptions(screen.getByLabelText('Presence'), 'silent');
  await user.selectOptions(screen.getByLabelText('Version'), 'true');
  await user.selectOptions(screen.getByLabelText('Order'), '-created');
  await waitFor(() =>
    expect(read.at(-1)).toBe(
      '?error=ImagePullBackOff&presence=silent&behind=true&sort=-created&limit=500&count=true',
    ),
  );
  expect(address()).toBe('/ui/stacks/web?error=ImagePullBackOff&presence=silent&behind=true&sort=-created');
});

test.each(['deployer', 'viewer'] as const)('gates and prunes wait for a person: %s', async (role) => {
  const [group] = example<Page<ErrorGroup>>('GET /api/v1/errors').items;
  const [row] = example<Page<StackStatus>>('GET /api/v1/stacks/{stack}/status').items;
  const [rollout] = example<Page<Rollout>>('GET /api/v1/rollouts').items;
  const sent = record(role, ({ method, url }) => {
    const { pathname, search } = new URL(url);
    if (method === 'POST') return json(200, { ...rollout, state: 'running' });
    if (pathname === '/api/v1/errors') {
      return json(200, { items: [{ ...group, reason: 'PruneNeedsApproval', stacks: 3 }], next: null });
    }
    if (pathname === '/api/v1/rollouts') {
      const gate = { approvals: 2, role: 'deployer', not_author: true };
      const gated = { ...rollout, state: 'gated', wave: 1, policy: { waves: [{ size: '25%', gate }] } };
      return json(200, { items: [gated], next: null });
    }
    if (!search.includes('error=PruneNeedsApproval')) return undefined;
    return json(200, { items: [{ ...row, reason: 'PruneNeedsApproval', details: { delete: 61, total: 180 } }], next: null, total: 1 });
  });
  const { user } = open('/approvals');
  await screen.findByText('needs 2 approvals of deployer');
  screen.getByText('not by the author');
  screen.getByText('Prunes of 2 more stacks wait, which are shown on their pages.');
  const prune = await screen.findByRole('button', { name: 'Approve the prune of web' });
  const gate = screen.getByRole('button', { name: 'Approve' });
  await accessible();
  if (role === 'viewer') {
    for (const one of [prune, gate]) {
      const reason = document.getElementById(one.getAttribute('aria-describedby') ?? '');
      expect(reason?.textContent).toBe('Needs the role deployer.');
    }
    return;
  }
  await user.click(prune);
  await user.click(await screen.findByRole('button', { name: 'Approve 61' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  await user.click(screen.getByRole('button', { name: 'Approve' }));
  await user.click(within(await screen.findByRole('dialog')).getByRole('button', { name: 'Approve' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(sent).toEqual([
    ['POST /api/v1/stacks/web/prune-approvals', { sequence_id: 2, objects: 61, agent: null }],
    ['POST /api/v1/rollouts/8/approve', { wave: 1 }],
  ]);
});
