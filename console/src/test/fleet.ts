// Views of the fleet with more stacks and results than the recorded examples have.

import type { FleetCell, FleetMatrix, SearchResults } from '../api/types';
import { json } from './json';

export function cell(agents: number, failing = 0): FleetCell {
  const onIntent = agents - failing;
  const rest = { pending: 0, blocked: 0, unknown: 0, silent: 0, older: 0 };
  return { agents, on_intent: onIntent, failing, current: agents, ...rest };
}

export const MATRIX: FleetMatrix = {
  complete: true,
  as_of: '2026-01-15T09:00:27Z',
  position: '1768467600.1042',
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

/** Answers with these views. */
export function fleet({ url }: Request): Response | undefined {
  const { pathname } = new URL(url);
  if (pathname === '/api/v1/fleet/matrix') return json(200, MATRIX);
  return pathname === '/api/v1/search' ? json(200, FOUND) : undefined;
}
