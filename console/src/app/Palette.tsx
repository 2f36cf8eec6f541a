// Goes to a page, a stack or an agent by typing a part of its name.

import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useDeferredValue, useEffect, useId, useRef, useState, type KeyboardEvent } from 'react';

import { searchQuery } from '../api/fleet';
import { sessionQuery } from '../api/session';
import { recents } from '../lib/recents';
import { Problem } from '../ui/Problem';
import { words } from '../words';
import { ADMIN_PAGES, mayRead } from './adminPages';
import { Overlay } from './Overlay';
import styles from './Palette.module.css';
import { PAGES } from './Shell';

interface Entry {
  id: string;
  kind: keyof typeof words.palette.kinds;
  name: string;
  go: () => void;
}

const say = words.palette;

export default function Palette({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState('');
  /** By its id: other entries take its place when the results of what is typed arrive. */
  const [chosen, setChosen] = useState<string>();
  const list = useId();
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const { entries, hasMore, isOld, error } = useEntries(text);
  const at = Math.max(0, entries.findIndex(({ id }) => id === chosen));
  const current = entries[at];
  const option = current && `${list}-${current.id}`;
  useEffect(() => {
    if (option !== undefined) document.getElementById(option)?.scrollIntoView({ block: 'nearest' });
  }, [option]);
  // Enter is meant for what is typed: it waits for its results.
  const [isEntered, setEntered] = useState(false);
  const pick = (entry: Entry | undefined) => {
    if (entry === undefined) return;
    onClose();
    entry.go();
  };
  useEffect(() => {
    if (isEntered && !isOld) pick(current);
  });
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === 'Enter') setEntered(true);
    else if (step !== undefined) setChosen(entries.at((at + step) % entries.length)?.id);
    else return;
    event.preventDefault();
  };
  return (
    <Overlay title={say.title} onClose={onClose}>
      <input
        role="combobox"
        aria-label={say.placeholder}
        aria-expanded
        aria-controls={list}
        aria-autocomplete="list"
        aria-activedescendant={option}
        className={styles.input}
        placeholder={say.placeholder}
        spellCheck={false}
        ref={input}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setChosen(undefined);
          setEntered(false);
        }}
        onKeyDown={onKeyDown}
      />
      <div id={list} role="listbox" aria-label={say.results} aria-busy={isOld} className={styles.list}>
        {entries.map((entry) => (
          // The input has the focus and handles the keys.
          // oxlint-disable-next-line jsx-a11y/click-events-have-key-events
          <div
            key={entry.id}
            id={`${list}-${entry.id}`}
            role="option"
            tabIndex={-1}
            aria-selected={entry === current}
            className={styles.entry}
            onClick={() => pick(entry)}
          >
            <span>{entry.name}</span>
            <span className={styles.kind}>{say.kinds[entry.kind]}</span>
          </div>
        ))}
      </div>
      {error !== null && <Problem error={error} />}
      <p role="status">
        {entries.length === 0 && !isOld && error === null && say.none}
        {hasMore && say.more}
      </p>
    </Overlay>
  );
}

interface Entries {
  entries: Entry[];
  hasMore: boolean;
  /** Whether the entries are those of what was typed before. */
  isOld: boolean;
  error: unknown;
}

function useEntries(text: string): Entries {
  const navigate = useNavigate();
  const typed = useDeferredValue(text.trim().toLowerCase());
  const { data, error, isPending, isPlaceholderData } = useQuery(searchQuery(typed));
  const { data: session } = useQuery(sessionQuery);
  const admin = ADMIN_PAGES.filter(({ role }) => session !== undefined && mayRead(session.role, role));
  const pages = [...PAGES, ...admin].filter(({ name }) => name.toLowerCase().includes(typed)).map(
    ({ to, name }): Entry => ({ id: `page-${name}`, kind: 'page', name, go: () => void navigate({ to }) }),
  );
  const stacks = (data?.stacks ?? []).map(
    ({ name }): Entry => ({
      id: `stack-${name}`,
      kind: 'stack',
      name,
      go: () => void navigate({ to: '/stacks/$stack', params: { stack: name } }),
    }),
  );
  const agents = (data?.agents ?? []).map(
    ({ name }): Entry => ({
      id: `agent-${name}`,
      kind: 'agent',
      name,
      go: () => void navigate({ to: '/agents/$agent', params: { agent: name } }),
    }),
  );
  const versions = (data?.versions ?? []).map(
    ({ stack_name: stack, sequence_id: version }): Entry => ({
      id: `version-${version}`,
      kind: 'version',
      name: say.version(stack, version),
      go: () => void navigate({ to: '/stacks/$stack', params: { stack }, search: { tab: 'versions' } }),
    }),
  );
  const opened = recents().map(
    ({ kind, name }): Entry => ({
      id: `recent-${kind}-${name}`,
      kind,
      name,
      go: () =>
        void (kind === 'stack'
          ? navigate({ to: '/stacks/$stack', params: { stack: name } })
          : navigate({ to: '/agents/$agent', params: { agent: name } })),
    }),
  );
  const isOld = typed !== text.trim().toLowerCase() || (typed !== '' && (isPending || isPlaceholderData));
  if (typed === '') return { entries: [...opened, ...pages], hasMore: false, isOld, error: null };
  const isExact = ({ name }: Entry) => Number(name.toLowerCase() === typed);
  const entries = [...pages, ...stacks, ...agents, ...versions].toSorted((one, other) => isExact(other) - isExact(one));
  return { entries, hasMore: data?.more ?? false, isOld, error };
}
