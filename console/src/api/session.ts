// The session of the browser.
//
// The types here are written by hand; `docs/openapi.json` has the routes, so the generated ones can replace them.

import { queryOptions } from '@tanstack/react-query';

import { received, send } from './client';
import type { Role } from './types';

/** The response of `POST /api/v1/sessions` and `GET /api/v1/sessions/current`. */
export interface Session {
  id: string;
  token_id: string;
  /** The name of the token. */
  name: string;
  role: Role;
  /** The project of the token; requests without the header `brokkr-project` act in it. */
  project: string;
  created_at: string;
  last_used_at: string;
  /** When it ends unless it is used before. */
  idle_at: string;
  /** When it ends even if it is used. */
  expires_at: string;
  /** The projects that a request may name in `brokkr-project`, by name; at most 500. */
  projects: string[];
  server_version: string;
  hold: { since: string; because: string } | null;
}

const SESSIONS = '/api/v1/sessions';

function request(path: string, init?: RequestInit): Request {
  return new Request(new URL(path, globalThis.location.origin), { credentials: 'same-origin', ...init });
}

export async function readSession(signal: AbortSignal | null, expects401: boolean): Promise<Session> {
  const response = await send(request(`${SESSIONS}/current`, { signal }), expects401);
  return (await received(response.json())) as Session;
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
export async function signIn(token: string): Promise<Session> {
  const headers = { authorization: `Bearer ${token}` };
  const response = await send(request(SESSIONS, { method: 'POST', headers }), true);
  return (await received(response.json())) as Session;
}

export async function signOut(): Promise<void> {
  await send(request(`${SESSIONS}/current`, { method: 'DELETE' }), true);
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
