import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';

import type { Broken, Page, Role, StackStatus, StackWhy } from '../../api/types';
import { accessible, closed, dialog, record } from '../../test/acts';
import { example } from '../../test/broker';
import { json } from '../../test/json';
import { open } from '../../test/open';

const recorded = example<StackWhy>('GET /api/v1/stacks/{stack}/agents/{agent}/why');

type Answer = Parameters<typeof record>[1];

function explain(role: Role, change: Partial<Broken>, answer: Answer = () => undefined) {
  return record(role, (request) =>
    request.url.endsWith('/stacks/web/agents/eu-1/why')
      ? json(200, { ...recorded, broken: { ...recorded.broken, ...change } })
      : answer(request),
  );
}

const command = { line: 'brokkr rollback web --project shop', reach: { kind: 'stack', agents: 2 } } as const;

test('the next step can be done at once: the dialog shows its reach first', async () => {
  const sent = explain('deployer', { command });
  const { user } = open('/stacks/web/agents/eu-1');
  await user.click(await screen.findByRole('button', { name: 'Roll back' }));
  await within(await dialog('Roll back web')).findByText('Reaches 2 agents');
  await accessible();
  expect(sent).toEqual([]);
});

test('who may not do the next step sees the role that it needs', async () => {
  explain('viewer', { command });
  open('/stacks/web?why=web%2Feu-1');
  const panel = within(await screen.findByRole('complementary', { name: 'Why' }));
  const button = await panel.findByRole('button', { name: 'Roll back' });
  expect(document.getElementById(button.getAttribute('aria-describedby') ?? '')?.textContent).toBe(
    'Needs the role deployer.',
  );
});

test.each([
  ['awaits_approval', 'button', 'Approve the prune of web'],
  ['suspended', 'link', 'Suspensions'],
  ['gate_closed', 'link', 'Rollouts'],
] as const)('the cause %s leads to what ends it', async (cause, role, name) => {
  explain('deployer', { cause });
  open('/stacks/web/agents/eu-1');
  await within(await screen.findByRole('main')).findByRole(role, { name });
});

test('a prune is approved on the agent that is explained, as it was shown, whatever else waits', async () => {
  const [row] = example<Page<StackStatus>>('GET /api/v1/stacks/{stack}/status').items;
  const waits = (agent: string, objects: number, reason = 'PruneNeedsApproval') => ({
    ...row,
    agent_name: agent,
    reason,
    details: { delete: objects, total: 180 },
  });
  let isLater = false;
  const sent = explain('deployer', { cause: 'awaits_approval' }, ({ url }) => {
    if (!url.includes('error=PruneNeedsApproval')) return undefined;
    const items = [waits('eu-1', isLater ? 90 : 7), waits('us-1', 20), waits('us-2', 99, 'ImagePullBackOff')];
    return json(200, { items, next: null, total: 3 });
  });
  const { user, queryClient } = open('/stacks/web/agents/eu-1');
  await user.click(await screen.findByRole('button', { name: 'Approve the prune of web' }));
  const form = within(await dialog('Approve the prune of web 2'));
  await form.findByText('A prune waits for approval on 2 agents.');
  expect(form.getByLabelText<HTMLSelectElement>('Where').value).toBe('eu-1');
  isLater = true;
  await queryClient.invalidateQueries();
  await waitFor(() => expect(queryClient.isFetching()).toBe(0));
  await user.click(form.getByRole('button', { name: 'Approve 7' }));
  await closed();
  expect(sent).toEqual([
    ['POST /api/v1/stacks/web/prune-approvals', { sequence_id: 2, objects: 7, agent: 'eu-1' }],
  ]);
});
