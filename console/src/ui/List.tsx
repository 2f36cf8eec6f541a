// A grid whose rows are loaded page by page.

import type { InfiniteData, UseInfiniteQueryResult } from '@tanstack/react-query';

import { MOST_ROWS } from '../api/list';
import type { Page } from '../api/types';
import { number } from '../lib/format';
import { rowsOf, totalOf } from '../lib/pages';
import { words } from '../words';
import { Button } from './Button';
import { Grid, type Column } from './Grid';
import styles from './List.module.css';
import { Loaded } from './Loaded';
import { Empty } from './Problem';

interface Props<T> {
  query: UseInfiniteQueryResult<InfiniteData<Page<T>>>;
  label: string;
  className: string | undefined;
  columns: readonly Column<T>[];
  rowKey: (row: T) => string;
  onOpen?: ((row: T) => void) | undefined;
  onWhy?: ((row: T) => void) | undefined;
  empty: { text: string; command?: string | undefined };
}

export function List<T>({ query, empty, ...grid }: Props<T>) {
  return (
    <Loaded query={query}>
      {(data) => {
        const rows = rowsOf(data);
        if (rows.length === 0 && !query.hasNextPage) return <Empty {...empty} />;
        return (
          <>
            <Grid {...grid} rows={rows} total={totalOf(data)} isOld={query.isPlaceholderData} />
            <Foot query={query} shown={rows.length} total={totalOf(data)} />
          </>
        );
      }}
    </Loaded>
  );
}

interface FootProps {
  query: Pick<UseInfiniteQueryResult, 'hasNextPage' | 'fetchNextPage' | 'isFetchingNextPage'>;
  shown: number;
  total: number | undefined;
}

export function Foot({ query, shown, total }: FootProps) {
  const say = words.list;
  const text = total === undefined ? say.shownFirst(number(shown)) : say.shown(number(shown), number(total));
  return (
    <div className={styles.foot}>
      <span role="status">{text}</span>
      {query.hasNextPage && (
        <Button onPress={() => void query.fetchNextPage()} disabledReason={query.isFetchingNextPage ? words.loading : undefined}>
          {say.more}
        </Button>
      )}
      {!query.hasNextPage && shown >= MOST_ROWS && <span>{say.limit(number(MOST_ROWS))}</span>}
    </div>
  );
}
