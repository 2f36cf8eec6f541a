// Shown on every page while the broker is on hold, after its database was restored: what is on the screen may be older than what
// agents have.

import type { Session } from '../api/types';
import { clockTime } from '../lib/format';
import { words } from '../words';
import styles from './Hold.module.css';

export function Hold({ hold }: { hold: NonNullable<Session['hold']> }) {
  return (
    <div role="status" aria-label={words.hold.label} className={styles.hold}>
      <strong>{words.hold.since(clockTime(Date.parse(hold.since)))}</strong> {words.hold.effect}{' '}
      {words.hold.because(hold.because)}
    </div>
  );
}
