import { expect, test } from 'vitest';

import type { FleetCell, FleetMatrix } from '../api/types';
import { applyChanges, columnName, describe as describeCell, markOf, parts, rowName, selectorOf, statesOf } from './matrix';

const calm: FleetCell = {
  agents: 100,
  on_intent: 100,
  pending: 0,
  failing: 0,
  blocked: 0,
  unknown: 0,
  silent: 0,
  current: 100,
  older: 0,
};
const cell = (parts: Partial<FleetCell>): FleetCell => ({ ...calm, ...parts });

test('a cell shows its worst number', () => {
  const mark = (parts: Partial<FleetCell>) => {
    const { glyph, text } = markOf(cell(parts));
    return glyph + text;
  };
  expect(mark({})).toBe('✔');
  expect(mark({ agents: 0 })).toBe('·');
  expect(mark({ failing: 5, pending: 40, blocked: 2 })).toBe('✖5');
  expect(mark({ blocked: 2, pending: 40 })).toBe('■2');
  expect(mark({ pending: 37, current: 63 })).toBe('…63%');
  expect(mark({ pending: 1, agents: 1000, current: 999 }), 'not 100 % before it is').toBe('…99%');
  expect(mark({ silent: 3 })).toBe('○3');
});

test('a cell is described completely', () => {
  expect(describeCell(cell({ on_intent: 92, failing: 5, pending: 3, silent: 1, current: 97, older: 3 }))).toBe(
    '100 agents, 92 on intent, 3 pending, 5 failing, 1 silent, 97% with the newest version',
  );
  expect(parts(cell({ on_intent: 92, failing: 5, pending: 3 }))).toEqual([
    ['good', 0.92],
    ['busy', 0.03],
    ['bad', 0.05],
  ]);
});

test('a cell leads to its agents', () => {
  const columns = [{ kind: 'value', value: 'eu' }, { kind: 'value', value: 'us' }, { kind: 'unset' }] as const;
  expect(selectorOf(columns[0], columns, 'region', 'env=prod')).toBe('env=prod,region=eu');
  expect(selectorOf({ kind: 'unset' }, columns, 'region', undefined)).toBe('!region');
  expect(selectorOf({ kind: 'all' }, [], undefined, undefined)).toBeUndefined();
  expect(selectorOf({ kind: 'other' }, columns, 'region', 'env=prod')).toBe('env=prod,region,region notin (eu,us)');
  expect(statesOf(cell({ failing: 1, pending: 1 }))).toEqual(['failed', 'degraded', 'pending', 'applied', 'removing']);
});

test('columns and rows have names', () => {
  expect(columnName({ kind: 'unset' }, 'region')).toBe('without region');
  expect(columnName({ kind: 'value', value: 'eu' }, 'region')).toBe('eu');
  expect(rowName({ stacks: 12, cells: [] })).toBe('12 other stacks');
});

test('only rows with a change are new objects', () => {
  const row = (name: string) => ({ stack_id: name, stack_name: name, sequence_id: 1, stacks: 1, cells: [calm, calm] });
  const matrix: FleetMatrix = {
    complete: true,
    position: '1.1',
    columns: [
      { kind: 'value', value: 'eu' },
      { kind: 'value', value: 'us' },
    ],
    rows: [row('web'), row('till')],
  };
  const changed = cell({ failing: 1 });
  const cells = [{ row: 1, column: 0, ...changed }];
  const freshness = { complete: true, position: '1.2', as_of: '2026-01-15T09:00:00Z' };
  const next = applyChanges(matrix, { ...freshness, cells, versions: [{ row: 1, sequence_id: 9 }] });
  expect(next.rows.map(({ sequence_id: newest }) => newest)).toEqual([matrix.rows[0]?.sequence_id, 9]);
  expect(next.rows[0]).toBe(matrix.rows[0]);
  expect(next.rows[1]?.cells).toEqual([changed, calm]);
  expect(next.rows[1]?.cells[1]).toBe(calm);
  expect(matrix.rows[1]?.cells[0], 'the matrix before stays as it was').toBe(calm);
  expect(next.position).toBe('1.2');
});
