// The views of the fleet.
//
// The types here are written by hand; `docs/openapi.json` has the routes, so the generated ones can replace them.

import { keepPreviousData, queryOptions } from '@tanstack/react-query';

import { received, send } from './client';
import { project } from './scope';
import { list } from './list';
import type { Page, Presence, StackStatus, State, Target } from './types';

interface Freshness {
  /** False while the replica, after its start, still loads what agents have reported. */
  complete: boolean;
  as_of?: string;
  position: string;
}

/** Each agent is counted once: by its worst stack, or as silent. */
export interface FleetSummary extends Freshness {
  stacks: number;
  agents: number;
  on_intent: number;
  pending: number;
  failing: number;
  blocked: number;
  unknown: number;
  silent: number;
}

/** The agents of a stack with one value of a label. */
export interface FleetCell {
  agents: number;
  /** The next five add up to `agents`. */
  on_intent: number;
  pending: number;
  failing: number;
  blocked: number;
  unknown: number;
  /** Also counted above, by their last report. */
  silent: number;
  /** Have last reported about the newest version. */
  current: number;
  older: number;
}

export type FleetColumn = { kind: 'all' | 'unset' | 'other' } | { kind: 'value'; value: string };

export interface FleetRow {
  /** Absent in the row that adds up all other stacks. */
  stack_id?: string;
  stack_name?: string;
  sequence_id?: number;
  stacks: number;
  cells: FleetCell[];
}

export interface FleetMatrix extends Freshness {
  columns: FleetColumn[];
  rows: FleetRow[];
}

export interface FleetChanges extends Freshness {
  cells: (FleetCell & { row: number; column: number })[];
  versions: { row: number; sequence_id?: number }[];
}

/** A stack that reaches an agent, or that the agent still holds. */
export interface AgentStack {
  status: StackStatus;
  /** Why the stack reaches the agent; empty if it does not. */
  because: Target['why'][];
  holds: boolean;
}

export interface SearchResults {
  agents: { id: string; name: string }[];
  stacks: { id: string; name: string }[];
  versions: { stack_id: string; stack_name: string; sequence_id: number; checksum: string }[];
  more: boolean;
}

interface LabelKey {
  key: string;
  agents: number;
  values: number;
}

export interface MatrixFilter {
  by?: string | undefined;
  selector?: string | undefined;
}

const POLL_MS = 15_000;

/** Returns a path with parameters that the generated types do not know. */
function pathOf(path: string, query: object): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined) search.set(name, String(value));
  return search.size === 0 ? path : `${path}?${search}`;
}

async function read<T>(path: string, signal: AbortSignal): Promise<T> {
  const response = await send(new Request(new URL(path, globalThis.location.origin), { signal }));
  return (await received(response.json())) as T;
}

/** Filters of the status of a stack that the generated types do not know yet. */
export interface StatusQuery {
  state?: State | undefined;
  selector?: string | undefined;
  /** The reason of the last report. */
  error?: string | undefined;
  presence?: Presence | undefined;
  behind?: true | undefined;
  sort?: StatusSort | undefined;
  count?: boolean | undefined;
  after?: string | undefined;
  limit?: number | undefined;
}

export type StatusSort = 'name' | '-name' | 'created' | '-created';

export function readStatus(stack: string, query: StatusQuery, signal: AbortSignal): Promise<Page<StackStatus>> {
  return read(pathOf(`/api/v1/stacks/${encodeURIComponent(stack)}/status`, query), signal);
}

export const matrixPath = (filter: MatrixFilter) => pathOf('/api/v1/fleet/matrix', filter);
export const matrixStreamPath = (filter: MatrixFilter) => pathOf('/api/v1/fleet/stream', filter);

export const fleetSummaryQuery = () =>
  queryOptions({
    queryKey: [project() ?? '', 'fleet-summary'],
    queryFn: ({ signal }) => read<FleetSummary>('/api/v1/fleet/summary', signal),
    refetchInterval: POLL_MS,
  });

/** A matrix that is streamed is not read again: the cells of the stream refer to the matrix that the stream has sent. */
export const matrixQuery = (filter: MatrixFilter, isStreamed: boolean) =>
  queryOptions({
    queryKey: [project() ?? '', 'fleet-matrix', filter],
    queryFn: ({ signal }) => read<FleetMatrix>(matrixPath(filter), signal),
    refetchInterval: isStreamed ? false : POLL_MS,
    staleTime: isStreamed ? Number.POSITIVE_INFINITY : 0,
  });

export const labelsQuery = () =>
  queryOptions({
    queryKey: [project() ?? '', 'labels'],
    queryFn: ({ signal }) => read<Page<LabelKey>>('/api/v1/labels?limit=500', signal),
    staleTime: 60_000,
  });

export const agentStacksKey = (agent: string) => [project() ?? '', 'agent-stacks', agent];

export const agentStacksQuery = (agent: string) =>
  list(agentStacksKey(agent), (page, signal) =>
    read<Page<AgentStack>>(pathOf(`/api/v1/agents/${encodeURIComponent(agent)}/stacks`, page), signal),
  );

const MOST_FOUND = 8;

/** Finds agents and stacks by a part of the name or by id, and versions by the first digits of the checksum. */
export const searchQuery = (q: string) =>
  queryOptions({
    queryKey: [project() ?? '', 'search', q],
    queryFn: ({ signal }) => read<SearchResults>(pathOf('/api/v1/search', { q, limit: MOST_FOUND }), signal),
    enabled: q !== '',
    placeholderData: q === '' ? undefined : keepPreviousData,
  });
