import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';

import type { DeploymentObject, Page, StackStatus, Suspension } from '../../api/types';
import { example, problem, serve, SESSION } from '../../test/broker';
import { json } from '../../test/json';
import { open } from '../../test/open';
import { accessible, dialogOf, record, type Sent } from '../../test/stack';

/** Nothing is barred. */
const unbarred = ({ method, url }: Request) =>
  method === 'GET' && url.includes('/barred-contents') ? json(200, { items: [], next: null }) : undefined;

test('a rollback shows reach, changes and what is barred, and is meant for the stack as it is shown', async () => {
  const sent = record(unbarred);
  const { user } = open('/stacks/web');
  await user.click(await screen.findByRole('button', { name: 'Roll back' }));
  const dialog = await dialogOf('Roll back web');
  await within(dialog).findByText('Reaches 2 agents');
  await within(dialog).findByText('eu-1 and 1 more');
  // The newest version has the content of version 1, so only version 2 is left.
  const choice = await within(dialog).findByLabelText<HTMLSelectElement>('To version');
  await waitFor(() => expect(choice.value).toBe('2'));
  await within(dialog).findByText('Deployment shop/web');
  within(dialog).getByText(/^Version 3 \(sha256 830b5e36de35\) is barred/);
  await accessible(dialog);
  await user.type(within(dialog).getByLabelText('Reason'), 'too slow');
  await user.click(within(dialog).getByRole('button', { name: 'Roll back' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(sent).toEqual([
    {
      method: 'POST',
      path: '/api/v1/stacks/web/roll-back',
      search: '',
      match: '"tag-of-web"',
      body: { to: 2, keep_open: false, force: false, reason: 'too slow' },
    },
  ]);
  expect(document.getElementById('announcements')?.textContent).toBe('web is rolled back');
});

test('a version of the list is rolled back to, and Enter presses the button of its row', async () => {
  const sent = record(unbarred);
  const { user, address } = open('/stacks/web?tab=versions');
  const button = await screen.findByRole('button', { name: 'Roll back to version 2' });
  const same = screen.getByRole('button', { name: 'Roll back to version 1' });
  expect(same.getAttribute('title')).toBe('It has the content of the newest version, or is a deletion.');
  button.focus();
  await user.keyboard('{Enter}');
  const dialog = await dialogOf('Roll back web');
  expect(address()).toBe('/ui/stacks/web?tab=versions');
  await waitFor(() => expect(within(dialog).getByLabelText<HTMLSelectElement>('To version').value).toBe('2'));
  await user.click(within(dialog).getByLabelText('Do not bar it'));
  await user.click(within(dialog).getByRole('button', { name: 'Roll back' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(sent.map((one) => one.body)).toEqual([{ to: 2, keep_open: true, force: false }]);
});

const reasonOf = (button: HTMLElement) =>
  document.getElementById(button.getAttribute('aria-describedby') ?? '')?.textContent;

test('a version that is barred is not offered, with the reason', async () => {
  record();
  const { user } = open('/stacks/web?tab=versions');
  const inList = await screen.findByRole('button', { name: 'Roll back to version 2' });
  await waitFor(() => expect(reasonOf(inList)).toBe('Its content is barred. Unbar it first.'));
  await user.click(screen.getByRole('button', { name: 'Roll back' }));
  const dialog = within(await dialogOf('Roll back web'));
  const versions = example<Page<DeploymentObject>>('GET /api/v1/stacks/{stack}/deployment-objects').items;
  const at = versions.find(({ sequence_id: version }) => version === 2)?.created_at ?? '';
  const name = new RegExp(`^2, ${(Date.now() - Date.parse(at)) / 1000}s ago by pipeline: barred`);
  const option = await dialog.findByRole<HTMLOptionElement>('option', { name });
  expect(option.disabled).toBe(true);
  expect(dialog.getByLabelText<HTMLSelectElement>('To version').value).toBe('');
  expect(reasonOf(dialog.getByRole('button', { name: 'Roll back' }))).toBe('Choose a version');
});

test('a deleted stack is not rolled back', async () => {
  const deleted = { ...example<object>('GET /api/v1/stacks/{stack}'), deleted_at: '2026-01-15T09:00:00Z' };
  record(({ url }) => (new URL(url).pathname === '/api/v1/stacks/web' ? json(200, deleted) : unbarred(new Request(url))));
  open('/stacks/web?tab=versions');
  for (const name of ['Roll back', 'Roll back to version 2']) {
    const button = await screen.findByRole('button', { name });
    await waitFor(() => expect(reasonOf(button)).toBe('The stack is deleted.'));
  }
});

test('a suspension says where, what, for how long, and why', async () => {
  const sent = record();
  const { user } = open('/stacks/web');
  await user.click(await screen.findByRole('button', { name: 'Suspend' }));
  const dialog = await dialogOf('Suspend web');
  await within(dialog).findByText('Reaches 2 agents');
  await user.selectOptions(within(dialog).getByLabelText('Where'), 'selector');
  await user.type(within(dialog).getByLabelText('Label selector'), 'env=prod');
  await user.type(within(dialog).getByLabelText('Kind'), 'Deployment');
  await within(dialog).findByText('Reaches 1 agent');
  await user.type(within(dialog).getByLabelText('Name'), 'web');
  const time = within(dialog).getByLabelText('For');
  await user.clear(time);
  await user.type(time, 'soon');
  await user.type(within(dialog).getByLabelText('Reason'), 'load test');
  await accessible(dialog);
  await user.click(within(dialog).getByRole('button', { name: 'Suspend' }));
  expect((await within(dialog).findByRole('alert')).textContent).toContain('“soon” is not a duration');
  await user.clear(time);
  await user.type(time, '1h30m');
  await user.click(within(dialog).getByRole('button', { name: 'Suspend' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(sent.map((one) => [one.path, one.body])).toEqual([
    [
      '/api/v1/stacks/web/suspensions',
      {
        selector: 'env=prod',
        object: { kind: 'Deployment', name: 'web', namespace: null },
        seconds: 5400,
        reason: 'load test',
      },
    ],
  ]);
});

test('the reach of a suspension follows what is typed: an agent that does not exist is none', async () => {
  record(({ url }) =>
    url.endsWith('/agents/eu-9/why') ? problem(404, 'BRK2001', 'there is no such agent') : undefined,
  );
  const { user } = open('/stacks/web');
  await user.click(await screen.findByRole('button', { name: 'Suspend' }));
  const dialog = within(await dialogOf('Suspend web'));
  await user.selectOptions(dialog.getByLabelText('Where'), 'agent');
  await user.type(dialog.getByLabelText('Agent'), 'eu-1');
  await dialog.findByText('Reaches 1 agent');
  await user.type(dialog.getByLabelText('Agent'), '{Backspace}9');
  await dialog.findByText('Reaches 0 agents');
});

test('a suspension with half an object or a blank place is refused instead of widened', async () => {
  const sent = record();
  const { user } = open('/stacks/web');
  await user.click(await screen.findByRole('button', { name: 'Suspend' }));
  const dialog = within(await dialogOf('Suspend web'));
  await user.selectOptions(dialog.getByLabelText('Where'), 'selector');
  await user.type(dialog.getByLabelText('Label selector'), ' ');
  await user.type(dialog.getByLabelText('Reason'), 'load test{Enter}');
  expect((await dialog.findByRole('alert')).textContent).toContain('Enter an agent or a label selector');
  await user.type(dialog.getByLabelText('Label selector'), 'env=prod');
  for (const [filled, missing] of [
    ['Kind', 'Name'],
    ['Name', 'Kind'],
    ['Namespace', 'Kind'],
  ] as const) {
    await user.type(dialog.getByLabelText(filled), 'x{Enter}');
    await waitFor(() => expect(dialog.getByRole('alert').textContent, missing).toContain('needs a kind and a name'));
    await user.clear(dialog.getByLabelText(filled));
  }
  expect(sent).toEqual([]);
});

test('a suspension is shown with its reason and the time that is left, and can be ended', async () => {
  const sent: Sent[] = record(({ method, url }) => {
    const isRead = method === 'GET' && url.includes('/suspensions');
    return isRead && sent.length > 0 ? json(200, { items: [], next: null }) : undefined;
  });
  const { user } = open('/stacks/web');
  await screen.findByText('2h left, by pipeline: debugging the cache');
  await user.click(screen.getByRole('button', { name: 'Resume Deployment web on eu-1' }));
  const dialog = await dialogOf('End the suspension');
  await within(dialog).findByText('Reaches 1 agent');
  within(dialog).getByText('eu-1');
  await accessible(dialog);
  await user.click(within(dialog).getByRole('button', { name: 'Resume' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  await waitFor(() => expect(screen.queryByText('2h left, by pipeline: debugging the cache')).toBeNull());
  const heading = screen.getByRole('heading', { level: 1 });
  await waitFor(() => expect(document.activeElement, 'the button has gone').toBe(heading));
  const [suspension] = example<Page<Suspension>>('GET /api/v1/stacks/{stack}/suspensions').items;
  expect(sent.map((one) => [one.path, one.body])).toEqual([
    ['/api/v1/stacks/web/resume', { id: suspension?.id }],
  ]);
});

test('the name of a stack is typed before it is deleted', async () => {
  const sent = record();
  const { user } = open('/stacks/web');
  await user.click(await screen.findByRole('button', { name: 'Delete' }));
  const dialog = await dialogOf('Delete web');
  await within(dialog).findByText('1 agent has it');
  const submit = await within(dialog).findByRole('button', { name: 'Delete' });
  await accessible(dialog);
  await user.type(within(dialog).getByLabelText('Type web to confirm'), 'we{Enter}');
  expect(submit.getAttribute('aria-disabled')).toBe('true');
  expect(sent).toEqual([]);
  await user.type(within(dialog).getByLabelText('Type web to confirm'), 'b');
  await user.click(within(dialog).getByLabelText('Leave the resources in the clusters, unmanaged'));
  await user.click(submit);
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(sent.map((one) => [one.method, one.path, one.search, one.match])).toEqual([
    ['DELETE', '/api/v1/stacks/web', '?keep_resources=true&force=false', '"tag-of-web"'],
  ]);
});

test('a prune of more than 100 objects is approved by typing the number', async () => {
  const [row] = example<Page<StackStatus>>('GET /api/v1/stacks/{stack}/status').items;
  const waits = (agent: string, objects: number) => ({
    ...row,
    agent_name: agent,
    reason: 'PruneNeedsApproval',
    details: { delete: objects, total: 180 },
  });
  const sent = record(({ url }) => {
    if (url.includes('/status/summary')) {
      return json(200, { ...example<object>('GET /api/v1/stacks/{stack}/status/summary'), blocked: 2 });
    }
    if (!url.includes('error=PruneNeedsApproval')) return undefined;
    return json(200, { items: [waits('eu-1', 61), waits('us-1', 70)], next: null, total: 2 });
  });
  const { user } = open('/stacks/web');
  await user.click(await screen.findByRole('button', { name: 'Approve the prune of web' }));
  const dialog = await dialogOf('Approve the prune of web 2');
  await within(dialog).findByText('eu-1 deletes 61 of 180 objects');
  await within(dialog).findByText('Each agent may delete at most 70 objects.');
  await accessible(dialog);
  const submit = within(dialog).getByRole('button', { name: 'Approve 70' });
  expect(submit.getAttribute('aria-disabled')).toBe('true');
  // On one agent, it is less than 100.
  await user.selectOptions(within(dialog).getByLabelText('Where'), 'eu-1');
  await user.click(within(dialog).getByRole('button', { name: 'Approve 61' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(sent.map((one) => one.body)).toEqual([{ sequence_id: 2, objects: 61, agent: 'eu-1' }]);
});

test('barred content can be allowed again, and Jobs run again', async () => {
  const sent = record();
  const { user } = open('/stacks/web?tab=versions');
  await screen.findByText('Barred by pipeline: the image of 1.5.0 was not pushed');
  await user.click(screen.getByRole('button', { name: 'Unbar version 2' }));
  await user.click(within(await dialogOf('Unbar version 2')).getByRole('button', { name: 'Unbar' }));
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  await user.click(screen.getByRole('button', { name: 'Run Jobs again' }));
  const dialog = await dialogOf('Run Jobs of web again');
  await user.type(within(dialog).getByLabelText('Only this Job'), 'migrate{Enter}');
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  expect(sent.map((one) => [one.method, one.body])).toEqual([
    ['DELETE', undefined],
    ['POST', { job: 'migrate' }],
  ]);
});

test.each(['viewer', 'auditor'] as const)('a token with the role %s sees the acts, and the role that they need', async (role) => {
  serve(({ url }) => (url.endsWith('/sessions/current') ? json(200, { ...SESSION, role }) : undefined));
  const { user } = open('/stacks/web?tab=versions');
  await screen.findByText('Barred by pipeline: the image of 1.5.0 was not pushed');
  const names = ['Roll back', 'Retarget', 'Suspend', 'Run Jobs again', 'Delete', 'Unbar version 2'];
  for (const name of [...names, 'Resume Deployment web on eu-1']) {
    const button = screen.getByRole('button', { name });
    const reason = document.getElementById(button.getAttribute('aria-describedby') ?? '')?.textContent;
    expect([name, reason]).toEqual([name, 'Needs the role deployer.']);
    await user.click(button);
    expect(screen.queryByRole('dialog')).toBeNull();
  }
});

test('a refusal stays in the dialog, and what was typed, too', async () => {
  record(({ method }) => (method === 'POST' ? problem(409, 'BRK2012', 'the resource was changed') : undefined));
  const { user } = open('/stacks/web');
  await user.click(await screen.findByRole('button', { name: 'Run Jobs again' }));
  const dialog = await dialogOf('Run Jobs of web again');
  await user.type(within(dialog).getByLabelText('Only this Job'), 'migrate{Enter}');
  expect((await within(dialog).findByRole('alert')).textContent).toContain('the resource was changed');
  expect(within(dialog).getByLabelText<HTMLInputElement>('Only this Job').value).toBe('migrate');
});
