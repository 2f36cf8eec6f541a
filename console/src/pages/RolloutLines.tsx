// Rollouts, one line each.

import { Link } from '@tanstack/react-router';

import type { Rollout } from '../api/types';
import { age, number } from '../lib/format';
import { useNow } from '../lib/now';
import { nextText, stopText, versionsText } from '../lib/rollout';
import { RolloutMark } from '../ui/StateMark';
import { words } from '../words';
import styles from './RolloutLines.module.css';

const say = words.rollouts;

export function RolloutLines({ rollouts }: { rollouts: readonly Rollout[] }) {
  const now = useNow();
  return (
    <ul className={styles.list}>
      {rollouts.map((rollout) => (
        <li key={rollout.sequence_id} className={styles.line}>
          <Link to="/rollouts/$sequence" params={{ sequence: String(rollout.sequence_id) }}>
            {rollout.stack_name}
          </Link>
          <span>{versionsText(rollout)}</span>
          <RolloutMark state={rollout.state} />
          <span>{say.wave(rollout.wave, rollout.waves)}</span>
          <span>{words.rollout.released(number(rollout.figures.released), number(rollout.figures.members))}</span>
          <span className={styles.reason}>{rollout.stop_reason ? stopText(rollout.stop_reason) : nextText(rollout)}</span>
          <span className={styles.age}>{words.ago(age(rollout.created_at, now))}</span>
        </li>
      ))}
    </ul>
  );
}
