// The frame of all pages: navigation, search, account, and the panel that explains a pair.

import { useQuery } from '@tanstack/react-query';
import { Link, Outlet, useNavigate, useSearch } from '@tanstack/react-router';
import { Search } from 'lucide-react';
import { useRef, useState } from 'react';

import { sessionQuery } from '../api/session';
import type { Session } from '../api/types';
import { useShortcuts } from '../lib/keys';
import { Button } from '../ui/Button';
import { lazyPart } from '../ui/lazyPart';
import { words } from '../words';
import { Account } from './Account';
import { NoProject } from './Failures';
import { Hold } from './Hold';
import { Pill } from './Pill';
import { pairOf } from './searches';
import styles from './Shell.module.css';
import { useWhyPanel } from './useWhyPanel';

const Palette = lazyPart(() => import('./Palette'));
const Help = lazyPart(() => import('./Help'));
const WhyPanel = lazyPart(() => import('./WhyPanel'));

/** The main pages, and the key that follows `g`. */
export const PAGES = [
  { to: '/', key: 'f', name: words.nav.fleet },
  { to: '/stacks', key: 's', name: words.nav.stacks },
  { to: '/agents', key: 'a', name: words.nav.agents },
  { to: '/rollouts', key: 'r', name: words.nav.rollouts },
  { to: '/approvals', key: 'p', name: words.nav.approvals },
  { to: '/activity', key: 'e', name: words.nav.activity },
] as const;

/** The session lists at most this many projects. */
const MOST_PROJECTS = 500;

function isForeign({ projects }: Session, project: string | undefined): project is string {
  return project !== undefined && projects.length < MOST_PROJECTS && !projects.includes(project);
}

export function Shell() {
  const [overlay, setOverlay] = useState<'palette' | 'help'>();
  const main = useRef<HTMLElement>(null);
  const navigate = useNavigate();
  const { data: session } = useQuery(sessionQuery);
  const { why, project } = useSearch({ from: '/shell' });
  const pair = pairOf(why);
  const panel = useWhyPanel();
  useShortcuts([
    { keys: 'Ctrl-K', label: words.keys.palette, run: () => setOverlay('palette') },
    { keys: '?', label: words.keys.help, run: () => setOverlay('help') },
    ...PAGES.map(({ to, key, name }) => ({
      keys: `g ${key}`,
      label: words.keys.go(name),
      run: () => void navigate({ to }),
    })),
  ]);
  return (
    <div className={styles.shell}>
      <a
        href="#content"
        className={styles.skip}
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        {words.skip}
      </a>
      <header className={styles.header}>
        <span className={styles.product}>{words.product}</span>
        <nav aria-label={words.nav.label} className={styles.nav}>
          {PAGES.map(({ to, name }) => (
            <Link key={to} to={to} activeOptions={{ exact: to === '/', includeSearch: false }} className={styles.link}>
              {name}
            </Link>
          ))}
          <Link to="/admin" activeOptions={{ exact: false }} className={styles.link}>
            {words.nav.admin}
          </Link>
        </nav>
        <Pill />
        <Button onPress={() => setOverlay('palette')}>
          <Search size={16} aria-hidden /> {words.palette.open} <kbd className={styles.key}>Ctrl-K</kbd>
        </Button>
        {session && <Account session={session} />}
      </header>
      {session?.hold && <Hold hold={session.hold} />}
      <div className={styles.body}>
        <main ref={main} id="content" tabIndex={-1} className={styles.main}>
          {session && isForeign(session, project) ? <NoProject name={project} /> : <Outlet />}
        </main>
        {pair && <WhyPanel key={`${pair.stack}/${pair.agent}`} {...pair} onClose={panel.close} />}
      </div>
      {overlay === 'palette' && <Palette onClose={() => setOverlay(undefined)} />}
      {overlay === 'help' && <Help onClose={() => setOverlay(undefined)} />}
    </div>
  );
}
