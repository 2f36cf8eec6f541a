// What is read before an act: what it reaches, and what the broker would refuse.

import { queryOptions, type UseQueryResult } from '@tanstack/react-query';

import { words } from '../words';
import { api, body } from './client';
import { asApiError, notSent } from './problem';
import { readStatus } from './queries';
import { project } from './scope';
import type { Stack, StackStatus } from './types';

function key(...parts: unknown[]): unknown[] {
  return [project() ?? '', 'acts', ...parts];
}

/** Names that are shown as examples. */
export const EXAMPLES = 5;

export interface ReachFilter {
  selector?: string | undefined;
}

/** Of the rows that are read, some may be of agents that only had the stack. */
const READ = 50;

/** The agents that have or get a stack: their number, and the names of some; also of those that should have it, and have it. */
export const reachQuery = (stack: string, filter: ReachFilter) =>
  queryOptions({
    queryKey: key('reach', stack, filter),
    queryFn: async ({ signal }) => {
      const { items, total } = await readStatus(stack, { ...filter, count: true, limit: READ }, signal);
      const names = (rows: readonly StackStatus[]) => rows.slice(0, EXAMPLES).map((row) => row.agent_name);
      return {
        agents: total ?? items.length,
        names: names(items),
        targeted: names(items.filter((row) => row.wanted_sequence_id != null)),
        holding: names(items.filter((row) => row.sequence_id != null && row.state !== 'removed')),
      };
    },
  });

/** The agent with a name or id, if the stack reaches it. */
export const agentReachQuery = (stack: string, agent: string) =>
  queryOptions({
    queryKey: key('agent-reach', stack, agent),
    queryFn: async ({ signal }) => {
      try {
        const params = { path: { stack, agent } };
        const why = await body(api.GET('/api/v1/stacks/{stack}/agents/{agent}/why', { params, signal }));
        return why.wanted_sequence_id == null && why.sequence_id == null ? [] : [why.agent_name];
      } catch (thrown) {
        if (asApiError(thrown).status === 404) return [];
        throw thrown;
      }
    },
  });

/** A stack as a dialog shows it, and its tag: an act with the tag is refused if the stack has changed since. */
export interface TaggedStack {
  stack: Stack;
  tag: string;
}

/** Reads a stack and its tag in one request: a tag that is read later would also be that of a change the dialog does not show. */
export const taggedStackQuery = (stack: string) =>
  queryOptions({
    queryKey: key('tagged', stack),
    queryFn: async ({ signal }): Promise<TaggedStack> => {
      const { data, response } = await api.GET('/api/v1/stacks/{stack}', { params: { path: { stack } }, signal });
      const tag = response.headers.get('etag');
      // A proxy may remove it. Without it, an act would overwrite changes that nobody has seen.
      if (data === undefined || tag === null) throw notSent(words.acts.untagged);
      return { stack: data, tag };
    },
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
  });

/** Returns the header of an act that needs a tag. The dialog cannot be submitted without one. */
export function ifMatch({ data }: { data: TaggedStack | undefined }) {
  if (data === undefined) throw notSent(words.acts.untagged);
  return { header: { 'If-Match': data.tag } };
}

/** Returns why an act that needs a tag is not possible yet. */
export function untaggedReason({ isPending, isSuccess }: Pick<UseQueryResult, 'isPending' | 'isSuccess'>) {
  if (isPending) return words.loading;
  return isSuccess ? undefined : words.acts.untagged;
}

export const barredQuery = (stack: string) =>
  queryOptions({
    queryKey: key('barred', stack),
    queryFn: ({ signal }) =>
      body(
        api.GET('/api/v1/stacks/{stack}/barred-contents', {
          params: { path: { stack }, query: { limit: 500 } },
          signal,
        }),
      ),
  });

export const suspensionsQuery = (stack: string) =>
  queryOptions({
    queryKey: key('suspensions', stack),
    queryFn: ({ signal }) =>
      body(
        api.GET('/api/v1/stacks/{stack}/suspensions', { params: { path: { stack }, query: { limit: 500 } }, signal }),
      ),
    refetchInterval: 15_000,
    // Those that have ended are only history.
    select: ({ items }) => items.filter((one) => one.ended == null),
  });

/** The reason that agents report while a prune waits for approval. */
export const PRUNE_REASON = 'PruneNeedsApproval';

interface PrunePlan {
  agent: string;
  objects: number;
  total: number;
}

/** The agents on which a prune waits, with the number of objects that each would delete. */
export const pendingPrunesQuery = (stack: string) =>
  queryOptions({
    queryKey: key('prunes', stack),
    queryFn: async ({ signal }) => {
      const page = await readStatus(stack, { error: PRUNE_REASON, count: true, limit: 500 }, signal);
      // The broker finds the rows in memory, and what it then reads can be newer.
      const waiting = page.items.filter(({ reason }) => reason === PRUNE_REASON);
      const prunes = waiting.map((row): PrunePlan => {
        const details = (row.details ?? {}) as { delete?: number; total?: number };
        return { agent: row.agent_name, objects: details.delete ?? 0, total: details.total ?? row.total };
      });
      return { agents: page.next == null ? prunes.length : (page.total ?? prunes.length), prunes };
    },
    refetchInterval: 15_000,
  });

/** How another selector would change the agents of a stack. */
export const retargetQuery = (stack: string, selector: string) =>
  queryOptions({
    queryKey: key('retarget', stack, selector),
    queryFn: ({ signal }) =>
      body(
        api.GET('/api/v1/selectors/preview', {
          params: { query: { selector, stack, limit: EXAMPLES } },
          signal,
        }),
      ),
  });

/** The stacks of all projects that target an agent, as `PROJECT/STACK`. Several reasons can be for the same stack. */
export const agentTargetsQuery = (agent: string) =>
  queryOptions({
    queryKey: key('agent-targets', agent),
    queryFn: async ({ signal }) => {
      const names = new Map<string, string>();
      let after: string | undefined;
      do {
        const params = { path: { agent }, query: { after, limit: 500 } };
        const page = await body(api.GET('/api/v1/agents/{agent}/targets', { params, signal }));
        for (const target of page.items) names.set(target.stack_id, `${target.project}/${target.stack_name}`);
        after = page.next ?? undefined;
      } while (after !== undefined);
      return [...names.values()];
    },
  });
