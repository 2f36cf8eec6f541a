// The rows of a list that is loaded page by page.

import type { InfiniteData } from '@tanstack/react-query';

import type { Page } from '../api/types';

export function rowsOf<T>(data: InfiniteData<Page<T>> | undefined): T[] {
  return data?.pages.flatMap((page) => page.items) ?? [];
}

/** Returns the number of rows on the broker, if it counts them or all are loaded. */
export function totalOf<T>(data: InfiniteData<Page<T>> | undefined): number | undefined {
  const pages = data?.pages ?? [];
  if (pages[0]?.total != null) return pages[0].total;
  return pages.length > 0 && pages.at(-1)?.next == null ? rowsOf(data).length : undefined;
}

/** Replaces one row in place, so that no row moves. */
export function replaceRow<T>(
  data: InfiniteData<Page<T>> | undefined,
  row: T,
  isSame: (known: T) => boolean,
): InfiniteData<Page<T>> | undefined {
  if (data === undefined) return undefined;
  const pages = data.pages.map((page) =>
    page.items.some(isSame) ? { ...page, items: page.items.map((known) => (isSame(known) ? row : known)) } : page,
  );
  return { ...data, pages };
}
