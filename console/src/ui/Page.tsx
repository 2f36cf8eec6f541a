// The frame of a page: title, facts and actions. The title gets the focus after a navigation.

import { useEffect, useRef, type ReactNode } from 'react';

import type { View } from '../lib/views';
import { words } from '../words';
import { announce } from './announce';
import { lazyPart } from './lazyPart';
import styles from './Page.module.css';

const CopyMenu = lazyPart(() => import('./CopyMenu'), <span className={styles.menu} aria-busy="true" />);

interface Props {
  title: string;
  /** Short facts beside the title. */
  facts?: ReactNode;
  view?: View | undefined;
  children: ReactNode;
}

export function Page({ title, facts, view, children }: Props) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = words.pageTitle(title);
    announce(title);
    heading.current?.focus();
  }, [title]);
  return (
    <div className={styles.page}>
      <header className={styles.header}>
        <h1 ref={heading} tabIndex={-1} className={styles.title}>
          {title}
        </h1>
        <div className={styles.facts}>{facts}</div>
        {view && <CopyMenu view={view} />}
      </header>
      {children}
    </div>
  );
}

/** Names and values. */
export function Facts({ items }: { items: readonly (readonly [string, ReactNode])[] }) {
  return (
    <dl className={styles.list}>
      {items.map(([name, value]) => (
        <div key={name} className={styles.fact}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Section({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className={styles.section}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}
