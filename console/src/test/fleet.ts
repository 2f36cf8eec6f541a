// Views of the fleet. Written by hand, as the types are.

import examples from '../../../docs/api-examples.json';
import type { FleetCell, FleetMatrix, FleetSummary, SearchResults } from '../api/fleet';
import type { Page, StackStatus } from '../api/types';
import { json } from './json';

export function cell(agents: number, failing = 0): FleetCell {
  const onIntent = agents - failing;
  const rest = { pending: 0, blocked: 0, unknown: 0, silent: 0, older: 0 };
  return { agents, on_intent: onIntent, failing, current: agents, ...rest };
}

const fresh = { complete: true, as_of: '2026-01-15T09:00:27Z', position: '1768467600.1042' };

export const SUMMARY: FleetSummary = {
  ...fresh,
  stacks: 2,
  agents: 2,
  on_intent: 1,
  pending: 0,
  failing: 1,
  blocked: 0,
  unknown: 0,
  silent: 0,
};

export const MATRIX: FleetMatrix = {
  ...fresh,
  columns: [
    { kind: 'value', value: 'eu' },
    { kind: 'value', value: 'us' },
  ],
  rows: [
    { stack_id: 't', stack_name: 'till', sequence_id: 8, stacks: 1, cells: [cell(1), cell(1)] },
    { stack_id: 'w', stack_name: 'web', sequence_id: 2, stacks: 1, cells: [cell(1, 1), cell(1)] },
  ],
};

const FOUND: SearchResults = {
  agents: [
    { id: 'e', name: 'eu-1' },
    { id: 'u', name: 'us-1' },
  ],
  stacks: [{ id: 'w', name: 'web' }],
  versions: [{ stack_id: 'w', stack_name: 'web', sequence_id: 3, checksum: '830b5e36' }],
  more: false,
};

/** Answers the routes of the fleet. */
export function fleet({ url }: Request): Response | undefined {
  const { pathname } = new URL(url);
  if (pathname === '/api/v1/fleet/summary') return json(200, SUMMARY);
  if (pathname === '/api/v1/fleet/matrix') return json(200, MATRIX);
  if (pathname === '/api/v1/labels') {
    return json(200, { items: [{ key: 'region', agents: 2, values: 2, top: [] }], next: null });
  }
  if (pathname === '/api/v1/search') return json(200, FOUND);
  if (!/^\/api\/v1\/agents\/[^/]+\/stacks$/.test(pathname)) return undefined;
  // The row is the recorded one of the stack.
  const [status] = (examples['GET /api/v1/stacks/{stack}/status'].answer as Page<StackStatus>).items;
  const because = [{ kind: 'selector', selector: 'env=prod' }];
  return json(200, { items: [{ status, because, holds: true }], next: null });
}
