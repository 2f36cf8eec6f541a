// The agents of one stack with one value of a label: a glyph, the number that matters most, and a bar.

import { memo } from 'react';

import type { FleetCell } from '../../api/types';
import { describe, markOf, parts } from '../../lib/matrix';
import { words } from '../../words';
import styles from './Matrix.module.css';

interface Props {
  cell: FleetCell;
  stack: string;
  column: string;
  row: number;
  index: number;
  /** Whether the key Tab leads to this cell. */
  isActive: boolean;
}

/** Only cells that have changed are drawn again. */
export const MatrixCell = memo(function MatrixCell({ cell, stack, column, row, index, isActive }: Props) {
  const { tone, glyph, text } = markOf(cell);
  return (
    <div
      role="gridcell"
      aria-colindex={index + 2}
      aria-label={words.matrix.cell(stack, column, describe(cell))}
      data-cell={`${row}/${index}`}
      tabIndex={isActive ? 0 : -1}
      className={`${styles.cell} ${styles[tone]}`}
    >
      <span aria-hidden="true">{glyph}</span> {text}
      <span className={styles.bar}>
        {parts(cell).map(([part, share]) => (
          <span key={part} className={`${styles.part} ${styles[part]}`} style={{ flexGrow: share }} />
        ))}
      </span>
    </div>
  );
});
