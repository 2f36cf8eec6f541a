import { screen, waitFor, within } from '@testing-library/react';
import { expect, test, vi } from 'vitest';

import { problem, serve, SESSION } from '../test/broker';
import { json } from '../test/json';
import { open } from '../test/open';
import { makeQueryClient } from './queryClient';
import { makeRouter } from './router';

test('the addresses of the console do not change', () => {
  const router = makeRouter(makeQueryClient());
  const locations = [
    router.buildLocation({ to: '/' }),
    router.buildLocation({ to: '/login', search: { to: '/stacks/web' } }),
    router.buildLocation({ to: '/stacks', search: { name: 'we', selector: 'team=shop' } }),
    router.buildLocation({ to: '/stacks/$stack', params: { stack: 'web' } }),
    router.buildLocation({ to: '/stacks/$stack', params: { stack: 'web' }, search: { tab: 'diff', from: 1, to: 2 } }),
    router.buildLocation({ to: '/stacks/$stack', params: { stack: 'web' }, search: { state: 'failed', why: 'web/eu-1' } }),
    router.buildLocation({ to: '/stacks/$stack', params: { stack: 'web' }, search: { error: 'ImagePullBackOff', behind: true } }),
    router.buildLocation({ to: '/stacks/$stack/agents/$agent', params: { stack: 'web', agent: 'eu-1' } }),
    router.buildLocation({ to: '/agents', search: { presence: 'silent', project: 'shop' } }),
    router.buildLocation({ to: '/agents/$agent', params: { agent: 'eu-1' }, search: { tab: 'events' } }),
    router.buildLocation({ to: '/rollouts/$sequence', params: { sequence: '42' } }),
    router.buildLocation({ to: '/approvals' }),
    router.buildLocation({ to: '/activity', search: { stack: 'web', version: 2, transition: 'failed', since: '2h' } }),
    router.buildLocation({ to: '/events', search: { stack: 'web' } }),
    router.buildLocation({ to: '/admin/webhooks/$webhook', params: { webhook: 'chat' } }),
  ];
  expect(locations.map(({ href }) => href)).toMatchInlineSnapshot(`
    [
      "/ui/",
      "/ui/login?to=%2Fstacks%2Fweb",
      "/ui/stacks?name=we&selector=team%3Dshop",
      "/ui/stacks/web",
      "/ui/stacks/web?tab=diff&from=1&to=2",
      "/ui/stacks/web?state=failed&why=web%2Feu-1",
      "/ui/stacks/web?error=ImagePullBackOff&behind=true",
      "/ui/stacks/web/agents/eu-1",
      "/ui/agents?presence=silent&project=shop",
      "/ui/agents/eu-1?tab=events",
      "/ui/rollouts/42",
      "/ui/approvals",
      "/ui/activity?stack=web&version=2&transition=failed&since=2h",
      "/ui/events?stack=web",
      "/ui/admin/webhooks/chat",
    ]
  `);
});

test('`g` and a letter go to a page, which is announced and gets the focus', async () => {
  serve();
  const { user, address } = open('/');
  await screen.findByRole('heading', { name: 'Fleet' });
  for (const [key, name] of [
    ['s', 'Stacks'],
    ['a', 'Agents'],
    ['r', 'Rollouts'],
    ['p', 'Approvals'],
    ['e', 'Activity'],
    ['f', 'Fleet'],
  ] as const) {
    await user.keyboard(`g${key}`);
    const heading = await screen.findByRole('heading', { name, level: 1 });
    await waitFor(() => expect(document.activeElement).toBe(heading));
    expect(document.getElementById('announcements')?.textContent).toBe(name);
    expect(document.title).toBe(`${name} · Brokkr`);
  }
  expect(address()).toBe('/ui/');
});

test('a sequence of keys ends after a while', async () => {
  serve();
  const { user, address } = open('/');
  await screen.findByRole('heading', { name: 'Fleet' });
  await user.keyboard('g');
  vi.setSystemTime(Date.now() + 5_000);
  await user.keyboard('s');
  expect(address()).toBe('/ui/');
});

test('letters that are typed into a field are no shortcuts', async () => {
  serve();
  const { user, address } = open('/stacks');
  const field = await screen.findByLabelText('Name contains');
  await user.type(field, 'ga');
  expect(address()).toBe('/ui/stacks');
  await user.keyboard('{Enter}');
  await waitFor(() => expect(address()).toBe('/ui/stacks?name=ga'));
});

test('single-key shortcuts can be turned off', async () => {
  serve();
  const { user, address } = open('/');
  await screen.findByRole('heading', { name: 'Fleet' });
  await user.keyboard('?');
  const help = await screen.findByRole('dialog', { name: 'Keyboard shortcuts' });
  expect(within(help).getByText('Go to Stacks')).toBeTruthy();
  await user.click(within(help).getByRole('checkbox'));
  await user.keyboard('{Escape}');
  await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  await user.keyboard('gs');
  expect(address()).toBe('/ui/');
  await user.keyboard('{Control>}k{/Control}');
  const palette = await screen.findByRole('dialog', { name: 'Go to' });
  await user.keyboard('{Escape}');
  await waitFor(() => expect(palette.isConnected).toBe(false));
  await user.keyboard('?');
  expect(screen.queryByRole('dialog')).toBeNull();
  localStorage.clear();
});

test('the palette finds pages, stacks and agents by a part of the name', async () => {
  serve();
  const { user, address } = open('/');
  await screen.findByRole('heading', { name: 'Fleet' });
  await user.keyboard('{Control>}k{/Control}');
  const input = await screen.findByRole('combobox', { name: /name of a stack/ });
  await waitFor(() => expect(document.activeElement).toBe(input));
  await user.keyboard('e');
  await screen.findByRole('option', { name: /eu-1/ });
  await user.keyboard('u');
  await waitFor(() => expect(screen.queryByRole('option', { name: /Fleet/ })).toBeNull());
  const options = within(screen.getByRole('listbox', { name: 'Results' }))
    .getAllByRole('option')
    .map((option) => option.textContent);
  expect(options).toEqual(['webstack', 'eu-1agent', 'us-1agent', 'web 3version']);
  await user.keyboard('{ArrowDown}{Enter}');
  await waitFor(() => expect(address()).toBe('/ui/agents/eu-1'));
  expect(screen.queryByRole('dialog')).toBeNull();
});

test('Enter waits for the results of what is typed, and an exact name is the first one', async () => {
  const answer = Promise.withResolvers<void>();
  serve(async ({ url }) => {
    const { pathname, searchParams } = new URL(url);
    if (pathname !== '/api/v1/search' || searchParams.get('q') !== 'web') return undefined;
    await answer.promise;
    const stack = (name: string) => ({ id: name, name });
    return json(200, { agents: [], stacks: [stack('cobweb'), stack('web')], versions: [], more: false });
  });
  const { user, address } = open('/');
  await screen.findByRole('heading', { name: 'Fleet' });
  await user.keyboard('{Control>}k{/Control}');
  await screen.findByRole('combobox', { name: /name of a stack/ });
  await user.keyboard('we');
  await screen.findByRole('option', { name: /eu-1/ });
  await user.keyboard('b{Enter}');
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(address()).toBe('/ui/');
  answer.resolve();
  await waitFor(() => expect(address()).toBe('/ui/stacks/web'));
});

test('old results are marked as busy, and Enter keeps what was chosen among them', async () => {
  const answer = Promise.withResolvers<void>();
  const stack = (name: string) => ({ id: name, name });
  serve(async ({ url }) => {
    const { pathname, searchParams } = new URL(url);
    if (pathname !== '/api/v1/search') return undefined;
    const isOld = searchParams.get('q') !== 'xw';
    if (!isOld) await answer.promise;
    const stacks = (isOld ? ['x', 'xweb', 'xwide'] : ['wxw', 'xweb', 'xwide']).map(stack);
    return json(200, { agents: [], stacks, versions: [], more: false });
  });
  const { user, address } = open('/');
  await screen.findByRole('heading', { name: 'Fleet' });
  await user.keyboard('{Control>}k{/Control}');
  await screen.findByRole('combobox', { name: /name of a stack/ });
  await user.keyboard('x');
  await screen.findByRole('option', { name: /xwide/ });
  const results = screen.getByRole('listbox', { name: 'Results' });
  await waitFor(() => expect(results.getAttribute('aria-busy')).toBe('false'));
  await user.keyboard('w');
  expect(results.getAttribute('aria-busy')).toBe('true');
  await user.keyboard('{ArrowDown}{ArrowDown}{Enter}');
  expect(address()).toBe('/ui/');
  answer.resolve();
  await waitFor(() => expect(address()).toBe('/ui/stacks/xwide'));
});

test('Enter opens only results for the current text', async () => {
  const answer = Promise.withResolvers<void>();
  const stack = (name: string) => ({ id: name, name });
  serve(async ({ url }) => {
    const { pathname, searchParams } = new URL(url);
    if (pathname !== '/api/v1/search') return undefined;
    const isOld = searchParams.get('q') !== 'xw';
    if (!isOld) await answer.promise;
    const stacks = (isOld ? ['x', 'xa'] : ['xweb', 'xwide']).map(stack);
    return json(200, { agents: [], stacks, versions: [], more: false });
  });
  const { user, address } = open('/');
  await screen.findByRole('heading', { name: 'Fleet' });
  await user.keyboard('{Control>}k{/Control}');
  await screen.findByRole('combobox', { name: /name of a stack/ });
  await user.keyboard('x');
  await screen.findByRole('option', { name: /xa/ });
  await user.keyboard('w{ArrowDown}{Enter}');
  answer.resolve();
  await waitFor(() => expect(address()).toBe('/ui/stacks/xweb'));
});

test('a search that fails says so', async () => {
  serve(({ url }) => (url.includes('/api/v1/search') ? problem(400, 'BRK2003', 'the text is too long') : undefined));
  const { user } = open('/');
  await screen.findByRole('heading', { name: 'Fleet' });
  await user.keyboard('{Control>}k{/Control}');
  await screen.findByRole('combobox', { name: /name of a stack/ });
  await user.keyboard('xyz');
  expect((await screen.findByRole('alert')).textContent).toContain('the text is too long');
  expect(screen.queryByText('Nothing matches.')).toBeNull();
});

test('the empty palette offers what was opened last, until the session ends', async () => {
  serve();
  const { user, router } = open('/stacks/web');
  await screen.findByRole('heading', { name: 'web' });
  await screen.findByRole('grid');
  await router.navigate({ to: '/agents/$agent', params: { agent: 'eu-1' } });
  await screen.findByRole('grid', { name: 'Stacks' });
  await user.keyboard('{Control>}k{/Control}');
  const results = await screen.findByRole('listbox', { name: 'Results' });
  const options = within(results).getAllByRole('option').map((option) => option.textContent);
  expect(options.slice(0, 3)).toEqual(['eu-1agent', 'webstack', 'Fleetpage']);
  await user.keyboard('{Escape}');
  await user.click(screen.getByText('ana, owner'));
  await user.click(screen.getByRole('button', { name: 'Sign out' }));
  await screen.findByRole('heading', { name: 'Sign in' });
  expect(localStorage.getItem('brokkr-recents')).toBeNull();
});

test('an admin chooses the project, which is part of the address and of each request', async () => {
  const session = { ...SESSION, role: 'admin', projects: ['default', 'shop'] };
  const { requests } = serve(({ url }) => (url.endsWith('/sessions/current') ? json(200, session) : undefined));
  const { user, address } = open('/');
  await user.click(await screen.findByText('ana, admin'));
  await user.selectOptions(screen.getByLabelText('Project'), 'default');
  await waitFor(() => expect(address()).toBe('/ui/?project=default'));
  await user.click(screen.getByRole('link', { name: 'Stacks' }));
  await screen.findByRole('grid', { name: 'Stacks' });
  expect(address()).toBe('/ui/stacks?project=default');
  expect(requests.at(-1)?.headers.get('brokkr-project')).toBe('default');
});

test('an error shows code, next step and request id; older data stays, and the pill says since when it is stale', async () => {
  const state = { isDown: false };
  serve(({ url }) => {
    const isList = new URL(url).pathname === '/api/v1/stacks';
    return state.isDown && isList ? problem(400, 'BRK2001', 'the selector is not valid', 'correct it') : undefined;
  });
  const { user, queryClient } = open('/stacks');
  await screen.findByRole('grid', { name: 'Stacks' });
  expect(screen.getByText('Refreshes every 15 s')).toBeTruthy();
  state.isDown = true;
  void queryClient.invalidateQueries();
  const alert = await screen.findByRole('alert');
  for (const text of ['BRK2001', 'the selector is not valid', 'Next: correct it', 'Request request-1']) {
    expect(alert.textContent).toContain(text);
  }
  expect(screen.getByRole('grid', { name: 'Stacks' }), 'older data').toBeTruthy();
  expect(screen.getByText(/^Stale since \d\d:\d\d$/)).toBeTruthy();
  state.isDown = false;
  await user.click(within(alert).getByRole('button', { name: 'Retry' }));
  await waitFor(() => expect(screen.queryByRole('alert')).toBeNull());
});

test('a page that does not exist says so', async () => {
  serve();
  open('/nowhere');
  await screen.findByRole('heading', { name: 'Page not found' });
});
