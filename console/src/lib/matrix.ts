// The matrix of the fleet: what a cell says, and which agents it contains.

import type { FleetCell, FleetChanges, FleetColumn, FleetMatrix, FleetRow, State } from '../api/types';
import { words } from '../words';
import { number } from './format';

const say = words.matrix;

/** Takes over changed cells. Rows without a change stay the same objects, so that only changed cells are drawn again. */
export function applyChanges(matrix: FleetMatrix, changes: FleetChanges): FleetMatrix {
  const rows = [...matrix.rows];
  for (const { row: at, column, ...cell } of changes.cells) {
    const row = rows[at];
    if (row === undefined) continue;
    const cells = row === matrix.rows[at] ? [...row.cells] : row.cells;
    cells[column] = cell;
    rows[at] = { ...row, cells };
  }
  for (const { row: at, sequence_id: newest } of changes.versions) {
    const row = rows[at];
    if (row !== undefined) rows[at] = { ...row, sequence_id: newest };
  }
  return { ...matrix, complete: changes.complete, as_of: changes.as_of, position: changes.position, rows };
}

export type Tone = 'good' | 'busy' | 'warn' | 'bad' | 'quiet';

export interface CellMark {
  tone: Tone;
  glyph: string;
  /** The number that matters most. */
  text: string;
}

/** Returns what a cell shows: its worst number, else how far the newest version is. */
export function markOf({ agents, failing, blocked, pending, unknown, silent, current }: FleetCell): CellMark {
  if (agents === 0) return { tone: 'quiet', glyph: '·', text: '' };
  if (failing > 0) return { tone: 'bad', glyph: '✖', text: number(failing) };
  if (blocked > 0) return { tone: 'warn', glyph: '■', text: number(blocked) };
  if (pending > 0) return { tone: 'busy', glyph: '…', text: newestPart(current, agents) };
  if (unknown > 0) return { tone: 'quiet', glyph: '?', text: number(unknown) };
  if (silent > 0) return { tone: 'warn', glyph: '○', text: number(silent) };
  return { tone: 'good', glyph: '✔', text: '' };
}

/** `63%`; not 100 % before it is. */
function newestPart(current: number, agents: number): string {
  return say.percent(Math.floor((100 * current) / agents));
}

/** Returns the counts of a cell as a sentence, without those that are zero. */
export function describe(cell: FleetCell): string {
  const counts = Object.keys(say.counts) as (keyof typeof say.counts)[];
  const shown = counts.filter((name) => cell[name] > 0).map((name) => `${number(cell[name])} ${say.counts[name]}`);
  const { current, agents } = cell;
  if (current < agents) shown.push(say.newest(newestPart(current, agents)));
  return [say.agents(number(agents)), ...shown].join(', ');
}

/** Returns the parts of the bar, in order. */
export function parts({ agents, on_intent, pending, blocked, failing, unknown }: FleetCell): [Tone, number][] {
  const all: [Tone, number][] = [
    ['good', on_intent],
    ['busy', pending],
    ['quiet', unknown],
    ['warn', blocked],
    ['bad', failing],
  ];
  return all.filter(([, count]) => count > 0).map(([tone, count]) => [tone, count / agents]);
}

export function columnName(column: FleetColumn, by: string | undefined): string {
  switch (column.kind) {
    case 'value':
      return column.value;
    case 'unset':
      return say.unset(by ?? '');
    case 'other':
      return say.other;
    default:
      return say.all;
  }
}

export function rowName(row: FleetRow): string {
  return row.stack_name ?? say.otherStacks(number(row.stacks));
}

/** Returns the selector of the agents in one of the columns; nothing if all agents are in it. */
export function selectorOf(
  column: FleetColumn,
  columns: readonly FleetColumn[],
  by: string | undefined,
  selector: string | undefined,
): string | undefined {
  return [selector, ownSelector(column, columns, by)].filter(Boolean).join(',') || undefined;
}

function ownSelector(column: FleetColumn, columns: readonly FleetColumn[], by: string | undefined): string | undefined {
  switch (column.kind) {
    case 'value':
      return `${by}=${column.value}`;
    case 'unset':
      return `!${by}`;
    case 'other': {
      const shown = columns.flatMap((one) => (one.kind === 'value' ? [one.value] : []));
      // Alone, `notin` also matches agents without the label.
      return `${by},${by} notin (${shown.join(',')})`;
    }
    default:
      return undefined;
  }
}

/** Returns the states that explain the mark of a cell, the worst first. */
export function statesOf({ failing, blocked, pending, unknown }: FleetCell): State[] {
  const states: [number, State[]][] = [
    [failing, ['failed', 'degraded']],
    [blocked, ['blocked']],
    [pending, ['pending', 'applied', 'removing']],
    [unknown, ['unknown']],
  ];
  return states.filter(([count]) => count > 0).flatMap(([, names]) => names);
}
