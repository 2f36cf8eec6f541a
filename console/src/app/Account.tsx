// Who is signed in, in which project, and how to leave.

import { useNavigate, useSearch } from '@tanstack/react-router';
import { useEffect, useRef, useState } from 'react';

import { announce, signOut } from '../api/session';
import type { Session } from '../api/types';
import { asApiError } from '../api/problem';
import { dateTime } from '../lib/format';
import { chooseTheme, theme, THEMES, type Theme } from '../lib/theme';
import { Button } from '../ui/Button';
import { Problem } from '../ui/Problem';
import { words } from '../words';
import styles from './Account.module.css';
import { useLeave } from './leave';

export function Account({ session }: { session: Session }) {
  const say = words.account;
  const menu = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: globalThis.Event) => {
      const isInside = event.target instanceof Node && menu.current?.contains(event.target);
      const isEscape = event instanceof KeyboardEvent && event.key === 'Escape';
      if (menu.current?.open && (isEscape || (event.type === 'pointerdown' && !isInside))) menu.current.open = false;
    };
    const types = ['pointerdown', 'keydown'] as const;
    for (const type of types) document.addEventListener(type, close);
    return () => {
      for (const type of types) document.removeEventListener(type, close);
    };
  }, []);
  return (
    <details ref={menu} className={styles.account}>
      <summary className={styles.summary}>{say.label(session.name, session.role)}</summary>
      <div className={styles.menu}>
        {session.projects.length > 1 && <ProjectChoice session={session} />}
        <ThemeChoice />
        <p>{say.expires(dateTime(session.expires_at))}</p>
        <p>{say.version(session.server_version)}</p>
        <SignOut />
      </div>
    </details>
  );
}

function ProjectChoice({ session }: { session: Session }) {
  const { project } = useSearch({ from: '__root__' });
  const navigate = useNavigate();
  return (
    <label className={styles.field}>
      <span>{words.account.project}</span>
      <select
        value={project ?? session.project}
        onChange={(event) => void navigate({ to: '/', search: { project: event.target.value } })}
      >
        {session.projects.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

function ThemeChoice() {
  const [current, setCurrent] = useState(theme);
  const choose = (choice: Theme) => {
    chooseTheme(choice);
    setCurrent(choice);
  };
  return (
    <label className={styles.field}>
      <span>{words.account.theme}</span>
      <select value={current} onChange={(event) => choose(event.target.value as Theme)}>
        {THEMES.map((one) => (
          <option key={one} value={one}>
            {words.account.themes[one]}
          </option>
        ))}
      </select>
    </label>
  );
}

function SignOut() {
  const [error, setError] = useState<unknown>();
  const leave = useLeave();
  const run = async () => {
    try {
      await signOut();
    } catch (thrown) {
      // A session that is over needs no sign-out.
      if (!asApiError(thrown).isUnauthenticated) return setError(thrown);
    }
    announce('signed-out');
    leave();
  };
  return (
    <>
      <Button onPress={() => void run()}>{words.account.signOut}</Button>
      {error !== undefined && <Problem error={error} />}
    </>
  );
}
