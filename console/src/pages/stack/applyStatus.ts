// Takes over what the stream reports: rows change in place, and counts are read again, at most once in a while.

import type { InfiniteData, QueryClient } from '@tanstack/react-query';

import { statusKey, summaryKey } from '../../api/queries';
import type { Message } from '../../api/sse';
import type { Page, StackStatus } from '../../api/types';
import { replaceRow } from '../../lib/pages';

const SUMMARY_MS = 2_000;
const waiting = new Map<string, ReturnType<typeof setTimeout>>();

export function applyStatus(queries: QueryClient, stack: string, message: Message): void {
  const refresh = () => void queries.invalidateQueries({ queryKey: statusKey(stack) });
  // The database was restored: nothing that was read before is certain.
  if (message.name === 'reset') return refresh();
  const row = JSON.parse(message.data) as StackStatus;
  type Rows = InfiniteData<Page<StackStatus>> | undefined;
  queries.setQueriesData({ queryKey: statusKey(stack) }, (data: Rows) =>
    replaceRow(data, row, (known) => known.agent_id === row.agent_id),
  );
  if (waiting.has(stack)) return;
  const timer = setTimeout(() => {
    waiting.delete(stack);
    void queries.invalidateQueries({ queryKey: summaryKey(stack) });
  }, SUMMARY_MS);
  waiting.set(stack, timer);
}
