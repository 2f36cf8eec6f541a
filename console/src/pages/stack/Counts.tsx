// The agents of a stack, counted by what they have reported about its newest version. Each count is a filter.

import { Link } from '@tanstack/react-router';

import type { StackSummary, State } from '../../api/types';
import { number } from '../../lib/format';
import { StateMark } from '../../ui/StateMark';
import { words } from '../../words';
import styles from './Counts.module.css';

const SHOWN = ['healthy', 'failed', 'degraded', 'blocked', 'applied', 'pending', 'unknown', 'removed'] as const;

interface Props {
  summary: StackSummary;
  /** The state that the list is filtered by. */
  state: State | undefined;
}

export function Counts({ summary, state }: Props) {
  const say = words.stack;
  const shown = SHOWN.filter((one) => (summary[one] ?? 0) > 0 || one === 'healthy' || one === 'failed');
  return (
    <ul aria-label={say.counts} className={styles.counts}>
      {summary.sequence_id != null && <li className={styles.total}>{say.atVersion(summary.sequence_id)}</li>}
      {shown.map((one) => (
        <li key={one}>
          <Link
            to="."
            // Those that have not reported about it may be healthy with the version before.
            search={(one === 'pending' ? { behind: true } : { state: one === state ? undefined : one }) as never}
            aria-current={one === state ? 'true' : undefined}
            className={styles.count}
          >
            <span className={styles.number}>{number(summary[one] ?? 0)}</span>
            <StateMark state={one} />
          </Link>
        </li>
      ))}
      <li className={styles.total}>
        <span className={styles.number}>{number(summary.targeted)}</span> {say.targeted}
      </li>
      <li className={styles.total}>
        <span className={styles.number}>{number(summary.behind)}</span> {say.behind}
      </li>
    </ul>
  );
}
