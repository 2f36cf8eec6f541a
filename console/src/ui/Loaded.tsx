// What a query has: nothing yet, data, an error, or an error with older data.

import type { UseQueryResult, UseInfiniteQueryResult } from '@tanstack/react-query';
import { useEffect, useState, type ReactNode } from 'react';

import { words } from '../words';
import styles from './Loaded.module.css';
import { Problem } from './Problem';

/** Faster responses show no skeleton, which would only flicker. */
const SKELETON_MS = 150;

interface Props<T> {
  query: UseQueryResult<T> | UseInfiniteQueryResult<T>;
  children: (data: T) => ReactNode;
  lines?: number;
}

export function Loaded<T>({ query, children, lines = 6 }: Props<T>) {
  const { data, error, isError, refetch } = query;
  if (data === undefined && !isError) return <Skeleton lines={lines} />;
  return (
    <>
      {isError && <Problem error={error} onRetry={() => void refetch()} isStale={data !== undefined} />}
      {data !== undefined && children(data)}
    </>
  );
}

export function Skeleton({ lines }: { lines: number }) {
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), SKELETON_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <>
      {/* Assistive technology may hold back what is busy, so the announcement is beside it. */}
      <div aria-busy="true" className={isShown ? styles.skeleton : undefined}>
        {isShown && Array.from({ length: lines }, (_, line) => <div key={line} className={styles.line} />)}
      </div>
      <span role="status" className="visually-hidden">
        {isShown && words.loading}
      </span>
    </>
  );
}
