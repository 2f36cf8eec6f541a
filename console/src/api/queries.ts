// What the console reads. Each key begins with the project, so that no page shows another project's data.

import { queryOptions } from '@tanstack/react-query';

import { timeOf } from '../lib/time';
import { api, body } from './client';
import { list, MOST_ROWS, PAGE_ROWS } from './list';
import { project } from './scope';
import type { Event, Presence, StatusQuery } from './types';

const POLL_MS = 15_000;

function key(...parts: unknown[]): unknown[] {
  return [project() ?? '', ...parts];
}

export interface AgentFilter {
  name?: string | undefined;
  selector?: string | undefined;
  presence?: Presence | undefined;
}

export const agentsQuery = (filter: AgentFilter) =>
  list(key('agents', filter), (page, signal) =>
    body(api.GET('/api/v1/agents', { params: { query: { ...filter, ...page, count: page.after === undefined } }, signal })),
  );

export const agentQuery = (agent: string) =>
  queryOptions({
    queryKey: key('agent', agent),
    queryFn: ({ signal }) => body(api.GET('/api/v1/agents/{agent}', { params: { path: { agent } }, signal })),
    refetchInterval: POLL_MS,
  });

export const agentWhyKey = (agent: string) => key('agent-why', agent);

export const agentWhyQuery = (agent: string) =>
  queryOptions({
    queryKey: agentWhyKey(agent),
    queryFn: ({ signal }) => body(api.GET('/api/v1/agents/{agent}/why', { params: { path: { agent } }, signal })),
    refetchInterval: POLL_MS,
  });

export interface StackFilter {
  name?: string | undefined;
  selector?: string | undefined;
}

export const stacksQuery = (filter: StackFilter) =>
  list(key('stacks', filter), (page, signal) =>
    body(api.GET('/api/v1/stacks', { params: { query: { ...filter, ...page, count: page.after === undefined } }, signal })),
  );

export const stackQuery = (stack: string) =>
  queryOptions({
    queryKey: key('stack', stack),
    queryFn: ({ signal }) => body(api.GET('/api/v1/stacks/{stack}', { params: { path: { stack } }, signal })),
    refetchInterval: POLL_MS,
  });

export const summaryKey = (stack: string) => key('summary', stack);

export const summaryQuery = (stack: string) =>
  queryOptions({
    queryKey: summaryKey(stack),
    queryFn: ({ signal }) =>
      body(api.GET('/api/v1/stacks/{stack}/status/summary', { params: { path: { stack } }, signal })),
    refetchInterval: POLL_MS,
  });

export const readStatus = (stack: string, query: StatusQuery, signal: AbortSignal) =>
  body(api.GET('/api/v1/stacks/{stack}/status', { params: { path: { stack }, query }, signal }));

/** What is absent does not filter, so `behind` is never false. */
export type StatusFilter = Omit<StatusQuery, 'count' | 'after' | 'limit'> & { behind?: true };

export const statusKey = (stack: string) => key('status', stack);

export const statusQuery = (stack: string, filter: StatusFilter) =>
  list([...statusKey(stack), filter], (page, signal) =>
    // The broker counts from memory, which a replica that has just started does not have: only where it is needed anyway.
    readStatus(stack, { ...filter, ...page, count: (needsIndex(filter) && page.after === undefined) || undefined }, signal),
  );

/** Returns whether the broker finds the rows in memory rather than in the database. */
function needsIndex({ error, presence, behind, sort }: StatusFilter): boolean {
  return [error, presence, behind, sort].some((value) => value !== undefined);
}

export const versionsQuery = (stack: string) =>
  list(key('versions', stack), (query, signal) =>
    body(api.GET('/api/v1/stacks/{stack}/deployment-objects', { params: { path: { stack }, query }, signal })),
  );

export const stackErrorsQuery = (stack: string) =>
  list(key('stack-errors', stack), (query, signal) =>
    body(api.GET('/api/v1/stacks/{stack}/errors', { params: { path: { stack }, query }, signal })),
  );

export const errorsQuery = () =>
  list(key('errors'), (query, signal) => body(api.GET('/api/v1/errors', { params: { query }, signal })));

export const diffQuery = (stack: string, from: number, to: number) =>
  queryOptions({
    queryKey: key('diff', stack, from, to),
    queryFn: ({ signal }) =>
      body(api.GET('/api/v1/stacks/{stack}/diff', { params: { path: { stack }, query: { from, to } }, signal })),
    // Versions never change.
    staleTime: Number.POSITIVE_INFINITY,
  });

export const whyQuery = (stack: string, agent: string) =>
  queryOptions({
    queryKey: key('why', stack, agent),
    queryFn: ({ signal }) =>
      body(api.GET('/api/v1/stacks/{stack}/agents/{agent}/why', { params: { path: { stack, agent } }, signal })),
    refetchInterval: 5_000,
  });

export const hopsQuery = (stack: string, agent: string) =>
  queryOptions({
    queryKey: key('hops', stack, agent),
    queryFn: ({ signal }) =>
      body(
        api.GET('/api/v1/stacks/{stack}/agents/{agent}/hops', {
          params: { path: { stack, agent }, query: { limit: 5 } },
          signal,
        }),
      ),
  });

export const previewQuery = (selector: string) =>
  queryOptions({
    queryKey: key('preview', selector),
    queryFn: ({ signal }) =>
      body(api.GET('/api/v1/selectors/preview', { params: { query: { selector, limit: 1 } }, signal })),
  });

export interface EventFilter {
  stack?: string | undefined;
  agent?: string | undefined;
  version?: number | undefined;
  transition?: string | undefined;
  /** A time, or a duration before now. */
  since?: string | undefined;
  until?: string | undefined;
}

/** Returns the filter as the API has it. */
export function eventParameters({ version, since, until, ...filter }: EventFilter, now = Date.now()) {
  return { ...filter, sequence_id: version, since: timeOf(since, now), until: timeOf(until, now) };
}

export const eventsKey = (filter: EventFilter) => key('events', filter);

export const eventsQuery = (filter: EventFilter) =>
  list(eventsKey(filter), async (page, signal) =>
    body(api.GET('/api/v1/events', { params: { query: { ...eventParameters(filter), ...page } }, signal })),
  );

/** Reads events up to the number of rows that a list loads, and whether there are more. */
export async function readEvents(filter: EventFilter): Promise<{ events: Event[]; hasMore: boolean }> {
  const events: Event[] = [];
  const query = eventParameters(filter);
  let after: string | undefined;
  do {
    const page = await body(api.GET('/api/v1/events', { params: { query: { ...query, after, limit: PAGE_ROWS } } }));
    events.push(...page.items);
    after = page.next ?? undefined;
  } while (after !== undefined && events.length < MOST_ROWS);
  return { events, hasMore: after !== undefined };
}

export const rolloutsQuery = (filter: { stack?: string | undefined; active?: boolean | undefined }) =>
  list(key('rollouts', filter), (page, signal) =>
    body(api.GET('/api/v1/rollouts', { params: { query: { ...filter, ...page } }, signal })),
  );

export const rolloutDecisionsQuery = (sequence: number) =>
  list(key('rollout-decisions', sequence), (page, signal) =>
    body(
      api.GET('/api/v1/rollouts/{sequence_id}/decisions', {
        params: { path: { sequence_id: sequence }, query: page },
        signal,
      }),
    ),
  );

export const rolloutQuery = (sequence: number) =>
  queryOptions({
    queryKey: key('rollout', sequence),
    queryFn: ({ signal }) =>
      body(api.GET('/api/v1/rollouts/{sequence_id}', { params: { path: { sequence_id: sequence } }, signal })),
    refetchInterval: 5_000,
  });
