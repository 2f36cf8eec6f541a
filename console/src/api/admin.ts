// What the pages of the administration read.

import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query';

import { words } from '../words';
import { api, body } from './client';
import { PAGE_ROWS } from './list';
import { asApiError, notSent } from './problem';
import { project } from './scope';
import type { Agent, Page } from './types';

function list<T>(name: string, read: (query: { after: string | undefined; limit: number }) => Promise<Page<T>>) {
  return infiniteQueryOptions({
    queryKey: [project() ?? '', 'admin', name],
    queryFn: ({ pageParam }) => read({ after: pageParam, limit: PAGE_ROWS }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last: Page<T>) => last.next ?? undefined,
  });
}

export const tokensQuery = () =>
  list('tokens', (query) => body(api.GET('/api/v1/api-tokens', { params: { query } })));

export const joinTokensQuery = () =>
  list('join-tokens', (query) => body(api.GET('/api/v1/join-tokens', { params: { query } })));

export const projectsQuery = () =>
  list('projects', (query) => body(api.GET('/api/v1/projects', { params: { query } })));

export const grantsQuery = () => list('grants', (query) => body(api.GET('/api/v1/grants', { params: { query } })));

export const webhooksQuery = () =>
  list('webhooks', (query) => body(api.GET('/api/v1/webhooks', { params: { query } })));

export const deliveriesQuery = (webhook: string) =>
  list(`deliveries/${webhook}`, (query) =>
    body(api.GET('/api/v1/webhooks/{webhook}/deliveries', { params: { path: { webhook }, query } })),
  );

export const auditQuery = () => list('audit', (query) => body(api.GET('/api/v1/audit', { params: { query } })));

export const systemQuery = () =>
  queryOptions({
    queryKey: [project() ?? '', 'admin', 'system'],
    queryFn: ({ signal }) => body(api.GET('/api/v1/system', { signal })),
    refetchInterval: 15_000,
  });

/** Refuses to create what exists: a `PUT` would replace it. */
export async function refuseExisting(name: string, read: Promise<unknown>): Promise<void> {
  try {
    await read;
  } catch (thrown) {
    if (asApiError(thrown).status === 404) return;
    throw thrown;
  }
  throw notSent(words.adminActs.exists(name));
}

const JOIN_POLL_MS = 2_000;

/** The agent that is expected to join; null until it exists. It is read until it has joined. */
export const joiningQuery = (agent: string, hasJoined: (found: Agent) => boolean) =>
  queryOptions({
    queryKey: [project() ?? '', 'admin', 'joining', agent],
    queryFn: async ({ signal }) => {
      try {
        return await body(api.GET('/api/v1/agents/{agent}', { params: { path: { agent } }, signal }));
      } catch (thrown) {
        if (asApiError(thrown).status === 404) return null;
        throw thrown;
      }
    },
    refetchInterval: ({ state: { data } }) => (data != null && hasJoined(data) ? false : JOIN_POLL_MS),
  });

/** Verifies the whole audit chain, 10,000 links a request. Returns the last verdict, with the number of all links. */
export async function verifyAudit() {
  let links = 0;
  let after: number | undefined;
  for (;;) {
    const verdict = await body(api.GET('/api/v1/audit/verify', { params: { query: { after } } }));
    links += verdict.links;
    after = verdict.next ?? undefined;
    if (verdict.broken != null || after === undefined) return { ...verdict, links };
  }
}
