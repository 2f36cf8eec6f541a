// All stacks by the values of a label. The arrow keys move between the cells, Enter lists the agents of a cell, `y`
// explains one of them.

import { useNavigate } from '@tanstack/react-router';
import { useRef, useState, type FocusEvent, type KeyboardEvent, type MouseEvent } from 'react';

import type { FleetMatrix, FleetRow } from '../../api/types';
import { useWhyPanel } from '../../app/useWhyPanel';
import { FIRST, indexOfChosen } from '../../lib/chosen';
import { useShortcuts } from '../../lib/keys';
import { columnName, rowName, selectorOf } from '../../lib/matrix';
import { announce } from '../../ui/announce';
import { Problem } from '../../ui/Problem';
import { words } from '../../words';
import styles from './Matrix.module.css';
import { MatrixCell } from './MatrixCell';
import { useWorst } from './useWorst';

interface Props {
  matrix: FleetMatrix;
  by: string | undefined;
  selector: string | undefined;
}

interface Place {
  row: number;
  column: number;
}

const say = words.matrix;

export function Matrix({ matrix, by, selector }: Props) {
  const grid = useRef<HTMLDivElement>(null);
  const [chosen, setChosen] = useState({ row: FIRST, column: FIRST });
  const { find, error } = useWorst(matrix.complete);
  const navigate = useNavigate();
  const panel = useWhyPanel();
  const { rows, columns } = matrix;
  const keys = rows.map((row) => row.stack_id ?? '');
  const names = columns.map((column) => columnName(column, by));
  const active = { row: indexOfChosen(keys, chosen.row), column: indexOfChosen(names, chosen.column) };

  /** Returns the stack and the agents of a cell; nothing for cells that add up several stacks. */
  const pairOf = ({ row, column }: Place) => {
    const [stack, cell, place] = [rows[row]?.stack_name, rows[row]?.cells[column], columns[column]];
    if (stack == null || cell === undefined || place === undefined) return undefined;
    return { stack, cell, selector: selectorOf(place, columns, by, selector) };
  };
  const move = (to: Place) => {
    const { row, column } = within(to, rows.length, columns.length);
    grid.current?.querySelector<HTMLElement>(`[data-cell="${row}/${column}"]`)?.focus();
  };
  const step = (by: number) => {
    const isInside = grid.current?.contains(document.activeElement) ?? false;
    move(isInside ? { ...active, row: active.row + by } : active);
  };
  const open = (place: Place) => {
    const pair = pairOf(place);
    if (pair === undefined) return;
    find(pair, (worst) => {
      const search = { selector: pair.selector, state: worst?.state };
      void navigate({ to: '/stacks/$stack', params: { stack: pair.stack }, search });
    });
  };
  const explain = (place: Place) => {
    const pair = pairOf(place);
    if (pair === undefined) return announce(say.nothingToExplain);
    find(pair, (worst) => {
      if (worst === undefined) announce(say.nothingToExplain);
      else panel.open(worst.stack_name, worst.agent_name);
    });
  };
  useShortcuts(
    [
      { keys: 'j', label: words.keys.down, run: () => step(1) },
      { keys: 'k', label: words.keys.up, run: () => step(-1) },
      { keys: 'y', label: words.keys.why, run: () => explain(worstPlace(rows, active, grid.current)) },
    ],
    grid,
  );

  const onKeyDown = (event: KeyboardEvent) => {
    const { row, column } = active;
    const moves: Record<string, Place> = {
      ArrowDown: { row: row + 1, column },
      ArrowUp: { row: row - 1, column },
      ArrowRight: { row, column: column + 1 },
      ArrowLeft: { row, column: column - 1 },
      Home: { row, column: 0 },
      End: { row, column: columns.length - 1 },
    };
    const to = moves[event.key];
    if (to !== undefined) move(to);
    else if (event.key === 'Enter') open(active);
    else return;
    event.preventDefault();
  };
  const onFocus = (event: FocusEvent) => {
    const place = placeOf(event.target);
    if (place === undefined) return;
    const { row, column } = place;
    setChosen({ row: { key: keys[row], index: row }, column: { key: names[column], index: column } });
  };
  const onClick = (event: MouseEvent) => {
    const place = placeOf(event.target);
    if (place !== undefined) open(place);
  };

  return (
    <>
      {error !== undefined && <Problem error={error} />}
      <div
        ref={grid}
        role="grid"
        tabIndex={-1}
        aria-label={say.label}
        aria-rowcount={rows.length + 1}
        aria-colcount={columns.length + 1}
        className={styles.grid}
        onKeyDown={onKeyDown}
        onFocus={onFocus}
        onClick={onClick}
      >
        <div role="row" className={styles.head}>
          <div role="columnheader" className={styles.stack}>
            {say.stack}
          </div>
          {names.map((name) => (
            <div key={name} role="columnheader" className={styles.column} title={name}>
              {name}
            </div>
          ))}
        </div>
        {rows.map((row, at) => (
          <div key={keys[at]} role="row" aria-rowindex={at + 2} className={styles.row}>
            <div role="rowheader" className={styles.stack} title={rowName(row)}>
              <span className={styles.name}>{rowName(row)}</span>
              {row.sequence_id != null && <span className={styles.version}>{say.version(row.sequence_id)}</span>}
            </div>
            {row.cells.map((cell, column) => (
              <MatrixCell
                key={names[column]}
                cell={cell}
                stack={rowName(row)}
                column={names[column] ?? ''}
                row={at}
                index={column}
                isActive={at === active.row && column === active.column}
              />
            ))}
          </div>
        ))}
      </div>
    </>
  );
}

function within({ row, column }: Place, rows: number, columns: number): Place {
  return { row: Math.max(0, Math.min(row, rows - 1)), column: Math.max(0, Math.min(column, columns - 1)) };
}

function placeOf(target: EventTarget): Place | undefined {
  const cell = target instanceof Element ? target.closest<HTMLElement>('[data-cell]')?.dataset['cell'] : undefined;
  const [row, column] = cell?.split('/').map(Number) ?? [];
  return row === undefined || column === undefined ? undefined : { row, column };
}

/** Returns the cell that has the focus, else the one with the most failing or blocked agents: `y` alone explains the worst. */
function worstPlace(rows: readonly FleetRow[], active: Place, grid: HTMLElement | null): Place {
  if (grid?.contains(document.activeElement)) return active;
  const cells = rows.flatMap(({ stack_name: name, cells: all }, row) =>
    name == null ? [] : all.map(({ failing, blocked }, column) => ({ row, column, failing, blocked })),
  );
  return cells.toSorted((one, other) => other.failing - one.failing || other.blocked - one.blocked)[0] ?? active;
}
