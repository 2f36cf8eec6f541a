// A grid of rows that can be long: only the visible rows are in the document. One row has the focus; `j`, `k` and the
// arrow keys move it, Enter opens it.

import { defaultRangeExtractor, useVirtualizer, type Range } from '@tanstack/react-virtual';
import { useRef, useState, type KeyboardEvent, type ReactNode } from 'react';
import { flushSync } from 'react-dom';

import { FIRST, indexOfChosen } from '../lib/chosen';
import { useShortcuts } from '../lib/keys';
import { words } from '../words';
import styles from './Grid.module.css';

export interface Column<T> {
  name: string;
  /** `isCurrent` is whether the row has the focus, or gets it: only its buttons are reached with Tab. */
  cell: (row: T, isCurrent: boolean) => ReactNode;
  /** Numbers are aligned to the right. */
  isNumber?: boolean;
}

interface Props<T> {
  label: string;
  /** A class that sets `--columns`, the widths of the columns. */
  className: string | undefined;
  columns: readonly Column<T>[];
  rows: readonly T[];
  /** All rows on the broker, if known. */
  total?: number | undefined;
  /** Whether the rows are those of the previous filter. */
  isOld?: boolean;
  rowKey: (row: T) => string;
  onOpen?: ((row: T) => void) | undefined;
  /** What `y` does with the row. */
  onWhy?: ((row: T) => void) | undefined;
}

const ROW_PX = 36;
const PAGE_ROWS = 10;

export function Grid<T>({ label, className, columns, rows, total, isOld = false, rowKey, onOpen, onWhy }: Props<T>) {
  const scroller = useRef<HTMLDivElement>(null);
  const [chosen, setChosen] = useState(FIRST);
  const keys = rows.map(rowKey);
  const current = indexOfChosen(keys, chosen);
  const choose = (index: number) => setChosen({ key: keys[index], index });
  // Tab leads to the current row, so it is in the document wherever the list is scrolled to.
  const rangeExtractor = (range: Range) => {
    const visible = defaultRangeExtractor(range);
    const isThere = current >= range.count || visible.includes(current);
    return isThere ? visible : [...visible, current].toSorted((one, other) => one - other);
  };
  // The compiler of React is not used.
  // oxlint-disable-next-line react/incompatible-library
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: 8,
    getItemKey: (index) => keys[index] as string,
    rangeExtractor,
  });

  const focusRow = (index: number) => {
    const to = Math.max(0, Math.min(index, rows.length - 1));
    // At once, and not with the next frame: the next key, such as Enter, is meant for this row. The chosen row is always in the
    // document.
    flushSync(() => choose(to));
    virtual.scrollToIndex(to);
    scroller.current?.querySelector<HTMLElement>(`[data-row="${to}"]`)?.focus();
  };
  const isFocused = () => scroller.current?.contains(document.activeElement) ?? false;
  const step = (by: number) => focusRow(isFocused() ? current + by : current);
  const withRow = (then: ((row: T) => void) | undefined) => {
    const row = rows[current];
    if (row !== undefined) then?.(row);
  };
  useShortcuts(
    [
      { keys: 'j', label: words.keys.down, run: () => step(1) },
      { keys: 'k', label: words.keys.up, run: () => step(-1) },
      ...(onWhy ? [{ keys: 'y', label: words.keys.why, run: () => withRow(onWhy) }] : []),
      ...(onOpen ? [{ keys: 'Enter', label: words.keys.open, run: () => isFocused() && withRow(onOpen) }] : []),
    ],
    scroller,
  );

  const onKeyDown = (event: KeyboardEvent) => {
    // React also passes on the keys of a dialog that a row has opened.
    if (!scroller.current?.contains(event.target as Node)) return;
    const moves: Record<string, number> = {
      ArrowDown: current + 1,
      ArrowUp: current - 1,
      PageDown: current + PAGE_ROWS,
      PageUp: current - PAGE_ROWS,
      Home: 0,
      End: rows.length - 1,
    };
    const to = moves[event.key];
    const isOpening = event.key === 'Enter' && event.target instanceof HTMLElement && event.target.role === 'row';
    if (to === undefined && !isOpening) return;
    event.preventDefault();
    if (to === undefined) withRow(onOpen);
    else focusRow(to);
  };

  return (
    <div
      ref={scroller}
      role="grid"
      tabIndex={-1}
      aria-label={label}
      aria-rowcount={(total ?? rows.length) + 1}
      aria-colcount={columns.length}
      aria-busy={isOld}
      className={`${styles.grid} ${className}`}
      onKeyDown={onKeyDown}
    >
      <div role="row" aria-rowindex={1} className={`${styles.row} ${styles.head}`}>
        {columns.map(({ name, isNumber }) => (
          <div key={name} role="columnheader" className={isNumber ? styles.number : styles.cell}>
            {name}
          </div>
        ))}
      </div>
      <div role="rowgroup" className={styles.body} style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map(({ index, key, start }) => (
          <div
            key={key}
            role="row"
            aria-rowindex={index + 2}
            data-row={index}
            tabIndex={index === current ? 0 : -1}
            className={`${styles.row} ${styles.line}`}
            style={{ transform: `translateY(${start}px)` }}
            onFocus={() => choose(index)}
          >
            {columns.map(({ name, cell, isNumber }) => (
              <div key={name} role="gridcell" className={isNumber ? styles.number : styles.cell}>
                {cell(rows[index] as T, index === current)}
              </div>
            ))}
          </div>
        ))}
      </div>
    </div>
  );
}
