// The views of the fleet.

import { keepPreviousData, queryOptions } from '@tanstack/react-query';

import { api, body } from './client';
import { list } from './list';
import { project } from './scope';
import type { MatrixFilter } from './types';

const POLL_MS = 15_000;

export const fleetSummaryQuery = () =>
  queryOptions({
    queryKey: [project() ?? '', 'fleet-summary'],
    queryFn: ({ signal }) => body(api.GET('/api/v1/fleet/summary', { signal })),
    refetchInterval: POLL_MS,
  });

/** A matrix that is streamed is not read again: the cells of the stream refer to the matrix that the stream has sent. */
export const matrixQuery = (filter: MatrixFilter, isStreamed: boolean) =>
  queryOptions({
    queryKey: [project() ?? '', 'fleet-matrix', filter],
    queryFn: ({ signal }) => body(api.GET('/api/v1/fleet/matrix', { params: { query: filter }, signal })),
    refetchInterval: isStreamed ? false : POLL_MS,
    staleTime: isStreamed ? Number.POSITIVE_INFINITY : 0,
  });

export const labelsQuery = () =>
  queryOptions({
    queryKey: [project() ?? '', 'labels'],
    queryFn: ({ signal }) => body(api.GET('/api/v1/labels', { params: { query: { limit: 500 } }, signal })),
    staleTime: 60_000,
  });

export const agentStacksKey = (agent: string) => [project() ?? '', 'agent-stacks', agent];

export const agentStacksQuery = (agent: string) =>
  list(agentStacksKey(agent), (query, signal) =>
    body(api.GET('/api/v1/agents/{agent}/stacks', { params: { path: { agent }, query }, signal })),
  );

const MOST_FOUND = 8;

/** Finds agents and stacks by a part of the name or by id, and versions by the first digits of the checksum. */
export const searchQuery = (q: string) =>
  queryOptions({
    queryKey: [project() ?? '', 'search', q],
    queryFn: ({ signal }) => body(api.GET('/api/v1/search', { params: { query: { q, limit: MOST_FOUND } }, signal })),
    enabled: q !== '',
    placeholderData: q === '' ? undefined : keepPreviousData,
  });
