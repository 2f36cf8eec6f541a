import { waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';

import type { Agent } from '../../api/types';
import { accessible, button, closed, dialog, record } from '../../test/acts';
import { example } from '../../test/broker';
import { json } from '../../test/json';
import { open } from '../../test/open';

test('an agent is retired by typing its name, after its stacks are shown', async () => {
  const sent = record('admin');
  const { user } = open('/agents/eu-1?tab=details');
  await user.click(await button('Retire'));
  const form = within(await dialog('Retire eu-1'));
  await form.findByText('1 stack is removed from its cluster.');
  await accessible();
  await user.type(form.getByLabelText('Type eu-1 to confirm'), 'eu-1{Enter}');
  await closed();
  await user.click(await button('Abandon'));
  const abandon = within(await dialog('Abandon eu-1'));
  await abandon.findByText('The resources of 1 stack stay in its cluster, and are no longer managed.');
  await user.type(abandon.getByLabelText('Reason'), 'the shop has closed');
  await user.type(abandon.getByLabelText('Type eu-1 to confirm'), 'eu-1');
  await user.click(abandon.getByRole('button', { name: 'Abandon' }));
  await closed();
  await user.click(await button('Rotate the key'));
  await user.click(within(await dialog('Rotate the key of eu-1')).getByRole('button', { name: 'Rotate the key' }));
  await closed();
  await user.click(await button('Change labels'));
  const labels = within(await dialog('Change the labels of eu-1'));
  await user.type(labels.getByLabelText('Labels, one per line'), '{Enter}tier=canary');
  await user.click(labels.getByRole('button', { name: 'Change labels' }));
  await closed();
  const path = `/api/v1/agents/${example<Agent>('GET /api/v1/agents/{agent}').id}`;
  expect(sent).toEqual([
    [`POST ${path}/retirement`],
    [`POST ${path}/abandonment`, { reason: 'the shop has closed' }],
    [`POST ${path}/rotation`],
    [`PATCH ${path}`, { labels: { env: 'prod', region: 'eu', tier: 'canary' } }],
  ]);
  const remove = await button('Delete');
  expect(document.getElementById(remove.getAttribute('aria-describedby') ?? '')?.textContent).toBe(
    'Retire or abandon the agent first.',
  );
});

test('the reach counts the stacks of all projects, each once', async () => {
  const target = (project: string, id: string, stack: string, selector: string) => ({
    project,
    stack_id: id,
    stack_name: stack,
    why: { kind: 'selector', selector },
  });
  record('admin', ({ url }) => {
    const { pathname, searchParams } = new URL(url);
    if (!pathname.endsWith('/targets')) return undefined;
    const first = [target('shop', '1', 'web', 'env=prod'), target('shop', '1', 'web', 'region=eu')];
    const isFirst = searchParams.get('after') === null;
    return json(200, isFirst ? { items: first, next: 'x' } : { items: [target('bank', '2', 'web', '*')], next: null });
  });
  const { user } = open('/agents/eu-1?tab=details');
  await user.click(await button('Retire'));
  const form = within(await dialog('Retire eu-1'));
  await form.findByText('2 stacks are removed from its cluster.');
  form.getByText('shop/web, bank/web');
});

test('a dialog does what it showed when it was opened', async () => {
  const state: { status: Agent['status'] } = { status: 'ACTIVE' };
  const agent = example<Agent>('GET /api/v1/agents/{agent}');
  const sent = record('admin', ({ method, url }) =>
    method === 'GET' && url.endsWith('/agents/eu-1') ? json(200, { ...agent, status: state.status }) : undefined,
  );
  const { user, queryClient } = open('/agents/eu-1?tab=details');
  await user.click(await button('Pause'));
  const form = within(await dialog('Pause eu-1'));
  state.status = 'INACTIVE';
  await queryClient.invalidateQueries();
  await waitFor(() => expect(document.body.textContent).toContain('INACTIVE'));
  form.getByText('The agent neither fetches nor changes anything.');
  await user.click(form.getByRole('button', { name: 'Pause' }));
  await closed();
  expect(sent).toEqual([[`PATCH /api/v1/agents/${agent.id}`, { status: 'INACTIVE' }]]);
});
