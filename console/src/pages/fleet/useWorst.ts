// Finds an agent that explains a cell of the matrix.

import { useEffect, useRef, useState } from 'react';

import { readStatus } from '../../api/queries';
import type { FleetCell, StackStatus } from '../../api/types';
import { statesOf } from '../../lib/matrix';

interface Pair {
  stack: string;
  cell: FleetCell;
  selector: string | undefined;
}

/** Returns a function that finds an agent, unless the page is left or another cell is chosen meanwhile. */
export function useWorst(isComplete: boolean) {
  const [error, setError] = useState<unknown>();
  const search = useRef<AbortController>(undefined);
  useEffect(() => () => search.current?.abort(), []);
  const run = async (pair: Pair, then: (worst: StackStatus | undefined) => void) => {
    search.current?.abort();
    const own = new AbortController();
    search.current = own;
    setError(undefined);
    try {
      const worst = await findWorst(pair, isComplete, own.signal);
      if (!own.signal.aborted) then(worst);
    } catch (thrown) {
      if (!own.signal.aborted) setError(thrown);
    }
  };
  const find = (pair: Pair, then: (worst: StackStatus | undefined) => void) => void run(pair, then);
  return { find, error };
}

/** Returns an agent of the cell in the worst state that has one. */
async function findWorst({ stack, cell, selector }: Pair, isComplete: boolean, signal: AbortSignal) {
  for (const state of statesOf(cell)) {
    let after: string | undefined;
    do {
      // To count, the broker finds the rows in memory. Else it reads them in pages, and a page can have no matching row.
      const query = { state, selector, after, limit: 1, ...(isComplete && { count: true }) };
      const { items, next } = await readStatus(stack, query, signal);
      if (items[0] !== undefined) return items[0];
      after = next ?? undefined;
    } while (after !== undefined);
  }
  return undefined;
}
