import { screen, waitFor } from '@testing-library/react';
import { expect, test, vi } from 'vitest';

import { announce } from '../api/session';
import { open } from '../test/open';
import { problem, serve, SESSION } from '../test/broker';
import { json } from '../test/json';
import { safeTarget } from './leave';

const unauthenticated = () => problem(401, 'BRK1001', 'request is not authenticated');

/** A broker with a session that can end; `brk_good` begins one. */
function serveSessions() {
  const state = { isSignedIn: false };
  const served = serve(({ url, method, headers }) => {
    if (method === 'POST' && url.endsWith('/sessions')) {
      state.isSignedIn = headers.get('authorization') === 'Bearer brk_good';
      return state.isSignedIn ? undefined : unauthenticated();
    }
    return state.isSignedIn ? undefined : unauthenticated();
  });
  return { ...served, state };
}

test('signing in leads to the page that was asked for', async () => {
  serveSessions();
  const { user, address } = open('/stacks/web?tab=versions');
  await user.type(await screen.findByLabelText('API token'), 'brk_good{Enter}');
  await screen.findByRole('heading', { name: 'web' });
  expect(address()).toBe('/ui/stacks/web?tab=versions');
  expect(screen.queryByText(/Stale/), 'what failed before the sign-in does not count').toBeNull();
});

test('a wrong token is refused without a hint whether it exists', async () => {
  serveSessions();
  const { user } = open('/');
  await user.type(await screen.findByLabelText('API token'), 'brk_bad{Enter}');
  expect((await screen.findByRole('alert')).textContent).toContain('The token is not valid.');
  expect(screen.getByRole('heading', { name: 'Sign in' })).toBeTruthy();
});

test.each([
  [false, 1],
  [true, 0],
])('in a secure context (%s), the login page asks for HTTPS or localhost %i times', async (isSecure, times) => {
  vi.stubGlobal('isSecureContext', isSecure);
  serveSessions();
  open('/');
  await screen.findByLabelText('API token');
  expect(screen.queryAllByText(/^The console needs HTTPS/)).toHaveLength(times);
});

test('a session that ends in between leads to the login page and back', async () => {
  const { state } = serveSessions();
  state.isSignedIn = true;
  const { user, address, queryClient } = open('/agents?presence=silent');
  await screen.findByRole('grid', { name: 'Agents' });
  state.isSignedIn = false;
  void queryClient.invalidateQueries();
  await user.type(await screen.findByLabelText('API token'), 'brk_good{Enter}');
  await screen.findByRole('grid', { name: 'Agents' });
  expect(address()).toBe('/ui/agents?presence=silent');
});

test('nothing stays on a page that reads nothing else, when the session is revoked', async () => {
  let isRevoked = false;
  serve(({ url }) => {
    if (!url.endsWith('/sessions/current')) return undefined;
    return isRevoked ? unauthenticated() : json(200, { ...SESSION, role: 'admin' });
  });
  const { queryClient } = open('/admin/tokens');
  await screen.findByRole('grid', { name: 'Tokens' });
  isRevoked = true;
  void queryClient.invalidateQueries({ queryKey: ['session'] });
  await screen.findByLabelText('API token');
  expect(screen.queryByRole('grid')).toBeNull();
});

test('signing out in one tab signs out the others', async () => {
  const { state } = serveSessions();
  state.isSignedIn = true;
  open('/stacks');
  await screen.findByRole('grid', { name: 'Stacks' });
  state.isSignedIn = false;
  announce('signed-out');
  await screen.findByLabelText('API token');
  expect(screen.queryByRole('grid')).toBeNull();
});

test('signing in in one tab opens the page that another tab waits for', async () => {
  const { state } = serveSessions();
  const { address } = open('/stacks/web?tab=versions');
  await screen.findByLabelText('API token');
  state.isSignedIn = true;
  announce('signed-in');
  await screen.findByRole('grid', { name: 'Versions' });
  expect(address()).toBe('/ui/stacks/web?tab=versions');
});

test('when another tab signs in as somebody else, nothing of the former session stays', async () => {
  let session = SESSION;
  serve(({ url }) => (url.endsWith('/sessions/current') ? json(200, session) : undefined));
  const { reload } = open('/stacks');
  await screen.findByRole('grid', { name: 'Stacks' });
  announce('signed-in');
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(reload, 'the same session').not.toHaveBeenCalled();
  session = { ...SESSION, id: '019bc0e2-1280-7000-8000-0000000000bb', name: 'bob' };
  announce('signed-in');
  await waitFor(() => expect(reload).toHaveBeenCalledOnce());
});

test('signing out ends the session on the broker', async () => {
  const { state, requests } = serveSessions();
  state.isSignedIn = true;
  const { user } = open('/');
  await user.click(await screen.findByText('ana, owner'));
  await user.click(screen.getByRole('button', { name: 'Sign out' }));
  await screen.findByLabelText('API token');
  await waitFor(() => {
    expect(requests.some(({ method, url }) => method === 'DELETE' && url.endsWith('/sessions/current'))).toBe(true);
  });
});

test('the address after the sign-in is one of this site', () => {
  expect(safeTarget('/stacks/web?tab=diff#a')).toBe('/stacks/web?tab=diff#a');
  for (const bad of ['//evil.example/x', 'https://evil.example', '/\\evil.example', 'javascript:alert(1)', undefined]) {
    expect(safeTarget(bad)).toBe('/');
  }
});

test('every page says that the broker is on hold, until it is not', async () => {
  let hold: typeof SESSION.hold = { since: '2026-01-15T09:00:00Z', because: 'a running replica has seen more' };
  serve(({ url }) => (url.endsWith('/sessions/current') ? json(200, { ...SESSION, hold }) : undefined));
  const { queryClient } = open('/stacks');
  const notice = await screen.findByRole('status', { name: 'The broker is on hold' });
  expect(notice.textContent).toMatch(/^On hold since \d\d:\d\d\. .* Cause: a running replica has seen more\.$/);
  hold = null;
  void queryClient.invalidateQueries();
  await waitFor(() => expect(screen.queryByRole('status', { name: 'The broker is on hold' })).toBeNull());
});

test('the session is read without the project of the address, which may not exist', async () => {
  const { requests } = serve((request) =>
    request.headers.get('brokkr-project') === 'shpo' ? problem(404, 'BRK2001', 'there is no such project') : undefined,
  );
  const { user, address } = open('/stacks?project=shpo&name=web');
  await screen.findByText('There is no project shpo, or you may not use it.');
  expect(screen.queryByRole('alert')).toBeNull();
  await user.click(screen.getByRole('link', { name: 'Open this page in your own project' }));
  await screen.findByRole('grid', { name: 'Stacks' });
  expect(address()).toBe('/ui/stacks?name=web');
  expect(requests.some(({ headers }) => headers.has('brokkr-project'))).toBe(false);
});
