import { screen, waitFor, within } from '@testing-library/react';
import { expect, test } from 'vitest';

import type { ApiToken, Page } from '../../api/types';
import { accessible, button, closed, dialog, record } from '../../test/acts';
import { example, problem } from '../../test/broker';
import { json } from '../../test/json';
import { open } from '../../test/open';

test('an owner creates a token for a project; its secret is shown once, and only a button closes it', async () => {
  const sent = record('owner');
  const { user } = open('/admin/tokens');
  await user.click(await button('Create a token'));
  const form = within(await dialog('Create a token'));
  const roles = within(form.getByLabelText('Role')).getAllByRole('option');
  expect(roles.map((option) => option.textContent)).toEqual(['viewer', 'deployer', 'owner']);
  await accessible();
  await user.type(form.getByLabelText('Name'), 'ci-web');
  await user.selectOptions(form.getByLabelText('Role'), 'deployer');
  await user.click(form.getByRole('button', { name: 'Create a token' }));
  const shown = within(await dialog('Create a token'));
  await shown.findByText(/^brk_EXAMPLE/);
  shown.getByText('The secret is not shown again. Copy it now.');
  await accessible();
  await user.click(shown.getByRole('button', { name: 'Copy the secret' }));
  expect(await navigator.clipboard.readText()).toMatch(/^brk_EXAMPLE/);
  await user.keyboard('{Escape}');
  expect(screen.getByRole('dialog'), 'Escape does not lose it').toBeTruthy();
  await user.click(shown.getByRole('button', { name: 'Close' }));
  await closed();
  expect(document.body.textContent).not.toContain('brk_EXAMPLE');
  expect(sent).toEqual([
    ['POST /api/v1/api-tokens', { name: 'ci-web', role: 'deployer', ttl_seconds: 7_776_000 }],
  ]);
});

test('an admin may also give the roles of the installation', async () => {
  record('admin');
  const { user } = open('/admin/tokens');
  await user.click(await button('Create a token'));
  const roles = within(await screen.findByLabelText('Role')).getAllByRole('option');
  expect(roles.map((option) => option.textContent)).toEqual(['viewer', 'deployer', 'owner', 'admin', 'auditor']);
});

test('a token is rotated and revoked; the own one is marked', async () => {
  const sent = record('owner');
  const { user } = open('/admin/tokens');
  await user.click(await button('Revoke: pipeline'));
  within(await dialog('Revoke the token pipeline')).getByText('This is the token that you are signed in with.');
  await user.keyboard('{Escape}');
  await closed();
  await user.click(await button('Rotate: dashboard'));
  const form = within(await dialog('Rotate the token dashboard'));
  await accessible();
  const overlap = form.getByLabelText<HTMLInputElement>('The old token stays valid for');
  await user.type(overlap, '{Home}1');
  expect(overlap.value, 'the rows behind do not take the key').toBe('124h');
  await user.type(overlap, '{Home}{Delete}');
  await user.click(form.getByRole('button', { name: 'Rotate' }));
  await screen.findByText(/^brk_EXAMPLE/);
  await user.click(screen.getByRole('button', { name: 'Close' }));
  await user.click(await button('Revoke: dashboard'));
  await user.click(within(await dialog('Revoke the token dashboard')).getByRole('button', { name: 'Revoke' }));
  await closed();
  const tokens = example<Page<ApiToken>>('GET /api/v1/api-tokens').items;
  const path = `/api/v1/api-tokens/${tokens.find(({ name }) => name === 'dashboard')?.id}`;
  expect(sent).toEqual([[`POST ${path}/rotate`, { overlap_seconds: 86_400 }], [`DELETE ${path}`]]);
});

test('only the buttons of the current row are reached with Tab', async () => {
  record('owner');
  open('/admin/tokens');
  const first = await button('Revoke: pipeline');
  expect([first.tabIndex, (await button('Revoke: dashboard')).tabIndex]).toEqual([0, -1]);
});

test('a narrower grant is confirmed with the number that the broker names', async () => {
  const refused = { status: 409, code: 'BRK2009', detail: 'it freezes 4', next: '', type: '', title: '', expect: 4 };
  const asked: string[] = [];
  const sent = record('admin', ({ method, url }) => {
    asked.push(url);
    return method === 'PUT' && !url.includes('expect=4') ? json(409, refused) : undefined;
  });
  const { user } = open('/admin/grants');
  await user.click(await button('Change: shop-prod'));
  const form = within(await dialog('Change the grant shop-prod'));
  await form.findByText('Covers 1 agent');
  await accessible();
  const selector = form.getByLabelText('Agents with these labels');
  await user.clear(selector);
  await user.type(selector, '*');
  await waitFor(() => expect(asked.some((url) => url.includes('selector=*'))).toBe(true));
  await user.clear(selector);
  await user.type(selector, 'env=prod');
  const namespaces = form.getByLabelText('Namespaces');
  await user.clear(namespaces);
  await user.type(namespaces, 'shop, till');
  await user.click(form.getByRole('button', { name: 'Change' }));
  await user.click(await form.findByRole('button', { name: 'Change, and remove 4' }));
  await closed();
  const body = {
    project: 'shop',
    selector: 'env=prod',
    namespaces: ['shop', 'till'],
    kinds: ['*'],
    account: 'shop/brokkr-shop',
  };
  expect(sent).toEqual([
    ['PUT /api/v1/grants/shop-prod', body],
    ['PUT /api/v1/grants/shop-prod?expect=4', body],
  ]);
});

test('projects get quotas, and an empty one is deleted by typing its name', async () => {
  const sent = record('admin');
  const { user } = open('/admin/projects');
  await user.click(await button('Change: shop'));
  const form = within(await dialog('Change the quotas of shop'));
  await accessible();
  await user.clear(form.getByLabelText('Stacks'));
  await user.type(form.getByLabelText('Stacks'), '60');
  await user.click(form.getByRole('button', { name: 'Change' }));
  await closed();
  await user.click(await button('Delete: shop'));
  await user.type(await screen.findByLabelText('Type shop to confirm'), 'shop{Enter}');
  await closed();
  expect(sent).toEqual([
    [
      'PUT /api/v1/projects/shop',
      {
        allowed: {
          stacks: 60,
          submissions_per_hour: 10_000_000,
          stored_bytes: 1_099_511_627_776,
          tokens: 1000,
          webhooks: 5,
        },
      },
    ],
    ['DELETE /api/v1/projects/shop'],
  ]);
});

test.each([
  ['projects', 'Create a project', 'shop', '/api/v1/projects/shop'],
  ['grants', 'Create a grant', 'shop-prod', '/api/v1/grants/shop-prod'],
])('what exists in %s is not replaced by creating it', async (page, name, existing, path) => {
  const sent = record('admin', ({ method, url }) =>
    method === 'GET' && new URL(url).pathname === `${path}-2` ? problem(404, 'BRK2001', 'there is none') : undefined,
  );
  const { user } = open(`/admin/${page}`);
  await user.click(await button(name));
  const form = within(await dialog(name));
  const values = { Project: 'shop', 'Agents with these labels': '*', Namespaces: '*', Kinds: '*', ServiceAccount: 'a/b' };
  if (page === 'grants') {
    for (const [field, value] of Object.entries(values)) await user.type(form.getByLabelText(field), value);
  }
  await user.type(form.getByLabelText('Name'), `${existing}{Enter}`);
  expect((await form.findByRole('alert')).textContent).toContain(`${existing} exists already`);
  expect(sent).toEqual([]);
  await user.type(form.getByLabelText('Name'), '-2{Enter}');
  await closed();
  expect(sent.map((one) => (one as [string])[0])).toEqual([`PUT ${path}-2`]);
});

test('a webhook is created, tested, disabled and deleted', async () => {
  const sent = record('owner');
  const { user } = open('/admin/webhooks');
  await user.click(await button('Create a webhook'));
  const form = within(await dialog('Create a webhook'));
  await accessible();
  await user.type(form.getByLabelText('Name'), 'chat');
  await user.type(form.getByLabelText('Address'), 'https://hooks.example.com/brokkr');
  await user.type(form.getByLabelText('Events, one per line'), 'alert.opened{Enter}rollout.stopped');
  await user.click(form.getByRole('button', { name: 'Create a webhook' }));
  await screen.findByText(/^whsec_EXAMPLE/);
  await user.click(screen.getByRole('button', { name: 'Close' }));
  await user.click(await button('Test: chat'));
  await user.click(within(await dialog('Send a test to chat')).getByRole('button', { name: 'Test' }));
  await screen.findByText('Delivered: status 204 after 12 ms');
  await user.click(screen.getByRole('button', { name: 'Close' }));
  await user.click(await button('Disable: chat'));
  await user.click(within(await dialog('Disable: chat')).getByRole('button', { name: 'Disable' }));
  await closed();
  await user.click(await button('Delete: chat'));
  await user.type(await screen.findByLabelText('Type chat to confirm'), 'chat{Enter}');
  await closed();
  const filter = { events: ['alert.opened', 'rollout.stopped'] };
  expect(sent).toEqual([
    [
      'POST /api/v1/webhooks',
      { name: 'chat', url: 'https://hooks.example.com/brokkr', format: 'standard', filter },
    ],
    ['POST /api/v1/webhooks/chat/test'],
    ['PATCH /api/v1/webhooks/chat', { enabled: false }],
    ['DELETE /api/v1/webhooks/chat'],
  ]);
});

test('deliveries are sent again, and the secret is rotated', async () => {
  const sent = record('owner');
  const { user } = open('/admin/webhooks/chat');
  const [again] = await screen.findAllByRole('button', { name: /^Send again: / });
  await user.click(again as HTMLElement);
  await user.click(within(await dialog('Send the delivery again')).getByRole('button', { name: 'Send again' }));
  await closed();
  await user.click(await button('Rotate the secret'));
  const form = within(await dialog('Rotate the secret of chat'));
  await user.click(form.getByRole('button', { name: 'Rotate the secret' }));
  await screen.findByText(/^whsec_EXAMPLE/);
  expect(sent.map((one) => (one as [string])[0].replace(/[0-9a-f-]{36}/, 'ID'))).toEqual([
    'POST /api/v1/webhooks/chat/deliveries/ID/resend',
    'POST /api/v1/webhooks/chat/rotate-secret',
  ]);
});

test.each([
  ['auditor', '/admin/tokens', 'Create a token', 'owner'],
  ['auditor', '/admin/tokens', 'Revoke: dashboard', 'owner'],
  ['auditor', '/admin/join', 'Join a cluster', 'admin'],
  ['owner', '/admin/projects', 'Create a project', 'admin'],
  ['auditor', '/admin/grants', 'Change: shop-prod', 'admin'],
  ['viewer', '/admin/webhooks', 'Create a webhook', 'owner'],
  ['deployer', '/admin/webhooks', 'Test: chat', 'owner'],
  ['owner', '/agents/eu-1?tab=details', 'Retire', 'admin'],
] as const)('a token with the role %s sees on %s what it may not do: %s', async (role, path, name, needed) => {
  const sent = record(role);
  const { user } = open(path);
  const found = await button(name);
  await waitFor(() => {
    const reason = document.getElementById(found.getAttribute('aria-describedby') ?? '');
    expect(reason?.textContent).toBe(`Needs the role ${needed}.`);
  });
  await user.click(found);
  expect(screen.queryByRole('dialog')).toBeNull();
  expect(sent).toEqual([]);
});
