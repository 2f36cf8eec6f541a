// Lists that are loaded page by page.

import { infiniteQueryOptions, type InfiniteData, type QueryClient } from '@tanstack/react-query';

import type { Page } from './types';

export const PAGE_ROWS = 500;
/** A list loads at most this many rows; then it asks for a filter. */
export const MOST_ROWS = 5_000;
const POLL_MS = 15_000;

type After = { after: string | undefined; limit: number };

export function list<T>(queryKey: unknown[], read: (page: After, signal: AbortSignal) => Promise<Page<T>>, poll = POLL_MS) {
  return infiniteQueryOptions({
    queryKey,
    queryFn: ({ pageParam, signal, client }) =>
      knownPage<T>(client, queryKey, pageParam) ?? read({ after: pageParam, limit: PAGE_ROWS }, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last: Page<T>, pages: Page<T>[]) => {
      const loaded = pages.reduce((sum, page) => sum + page.items.length, 0);
      return loaded >= MOST_ROWS ? undefined : (last.next ?? undefined);
    },
    refetchInterval: poll,
  });
}

/**
 * Returns a further page that was read before: polling reads only the first one, and those after it that begin at another
 * row than before. What was changed by an act is invalid, and read completely.
 */
function knownPage<T>(client: QueryClient, queryKey: unknown[], after: string | undefined): Page<T> | undefined {
  const state = client.getQueryState<InfiniteData<Page<T>>>(queryKey);
  if (after === undefined || state?.data === undefined || state.isInvalidated) return undefined;
  return state.data.pages[state.data.pageParams.indexOf(after)];
}
