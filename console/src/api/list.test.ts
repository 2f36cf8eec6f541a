import { InfiniteQueryObserver, QueryClient } from '@tanstack/react-query';
import { expect, test } from 'vitest';

import { list } from './list';

test('polling reads the first page; after an act, all pages are read', async () => {
  const asked: (string | undefined)[] = [];
  const client = new QueryClient();
  let next = 'b';
  const query = list(['rows'], async ({ after }) => {
    asked.push(after);
    return { items: [after ?? 'a'], next: after === undefined ? next : null };
  });
  const observer = new InfiniteQueryObserver(client, query);
  const stop = observer.subscribe(() => undefined);
  await observer.refetch();
  await observer.fetchNextPage();
  asked.length = 0;
  await observer.refetch();
  expect(asked).toEqual([undefined]);
  expect(observer.getCurrentResult().data?.pages.map(({ items }) => items)).toEqual([['a'], ['b']]);
  await client.invalidateQueries();
  expect(asked).toEqual([undefined, undefined, 'b']);
  next = 'c';
  await observer.refetch();
  expect(observer.getCurrentResult().data?.pages.map(({ items }) => items), 'a row was added').toEqual([['a'], ['c']]);
  stop();
});
