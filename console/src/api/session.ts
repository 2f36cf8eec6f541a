// The session of the browser.

import { queryOptions } from '@tanstack/react-query';

import { api, body, send } from './client';
import type { Role, Session } from './types';

const path = { session: 'current' };

const expecting401 = (request: Request) => send(request, true);

export function readSession(signal: AbortSignal | null, expects401: boolean): Promise<Session> {
  const fetch = expects401 ? expecting401 : undefined;
  return body(api.GET('/api/v1/sessions/{session}', { params: { path }, signal, fetch }));
}

export const sessionQuery = queryOptions({
  queryKey: ['session'],
  queryFn: ({ signal }) => readSession(signal, false),
  staleTime: 60_000,
  // The broker may be put on hold at any time.
  refetchInterval: 15_000,
  retry: false,
});

/** The same when a page is opened: without a session, the router opens the login page. */
export const firstSessionQuery = queryOptions({
  ...sessionQuery,
  queryFn: ({ signal }) => readSession(signal, true),
});

/** Exchanges a token for a session cookie. The token is kept nowhere. */
export function signIn(token: string): Promise<Session> {
  const header = { 'brokkr-console': '1' };
  const headers = { authorization: `Bearer ${token}` };
  return body(api.POST('/api/v1/sessions', { params: { header }, headers, fetch: expecting401 }));
}

export async function signOut(): Promise<void> {
  await api.DELETE('/api/v1/sessions/{session}', { params: { path }, fetch: expecting401 });
}

const INCLUDES: Record<Role, readonly Role[]> = {
  viewer: ['viewer'],
  deployer: ['viewer', 'deployer'],
  owner: ['viewer', 'deployer', 'owner'],
  admin: ['viewer', 'deployer', 'owner', 'admin', 'auditor'],
  auditor: ['viewer', 'auditor'],
};

/** Returns whether a role has all permissions of another one. */
export function includes(role: Role, needed: Role): boolean {
  return INCLUDES[role].includes(needed);
}

const CHANNEL = 'brokkr-session';
type Change = 'signed-in' | 'signed-out';

/** Announces a change of the session to the other tabs. */
export function announce(change: Change): void {
  const channel = new BroadcastChannel(CHANNEL);
  channel.postMessage(change);
  channel.close();
}

/** Calls back when another tab signs in or out. */
export function onAnnounced(then: (change: Change) => void): () => void {
  const channel = new BroadcastChannel(CHANNEL);
  channel.addEventListener('message', (event: MessageEvent<Change>) => then(event.data));
  return () => channel.close();
}
