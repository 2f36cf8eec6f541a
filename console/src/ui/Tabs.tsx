// Views of a page, as links: each has an address. `[` and `]` go to the one before and after.

import { Link, useNavigate } from '@tanstack/react-router';

import { useShortcuts } from '../lib/keys';
import { words } from '../words';
import styles from './Tabs.module.css';

interface Props<T extends string> {
  label: string;
  tabs: Record<T, string>;
  current: T;
}

export function Tabs<T extends string>({ label, tabs, current }: Props<T>) {
  const navigate = useNavigate();
  const names = Object.keys(tabs) as T[];
  const go = (by: number) => {
    const tab = names[(names.indexOf(current) + by + names.length) % names.length];
    void navigate({ to: '.', search: { tab } as never });
  };
  useShortcuts([
    { keys: ']', label: words.keys.nextTab, run: () => go(1) },
    { keys: '[', label: words.keys.previousTab, run: () => go(-1) },
  ]);
  return (
    <nav aria-label={label} className={styles.tabs}>
      {names.map((tab) => (
        <Link
          key={tab}
          to="."
          search={{ tab } as never}
          aria-current={tab === current ? 'page' : undefined}
          className={styles.tab}
        >
          {tabs[tab]}
        </Link>
      ))}
    </nav>
  );
}
