// Whether the page is live.

import { clockTime } from '../lib/format';
import { words } from '../words';
import { useLiveState, useStaleSince } from './liveState';
import styles from './Pill.module.css';

export function Pill() {
  const live = useLiveState();
  const staleSince = useStaleSince();
  const shown = staleSince === undefined ? live : 'stale';
  const text = staleSince === undefined ? words.live[live] : words.live.stale(clockTime(staleSince));
  return (
    <span role="status" className={`${styles.pill} ${styles[shown]}`}>
      {text}
    </span>
  );
}
