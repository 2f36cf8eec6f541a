// Each step of a rollout: when, what it led to, and the agents as they were counted then.

import { useInfiniteQuery } from '@tanstack/react-query';

import { rolloutDecisionsQuery } from '../../api/queries';
import type { RolloutDecision } from '../../api/types';
import { dateTime, number } from '../../lib/format';
import { rowsOf } from '../../lib/pages';
import { countsText, stopText } from '../../lib/rollout';
import { Foot } from '../../ui/List';
import { Loaded } from '../../ui/Loaded';
import { Section } from '../../ui/Page';
import { RolloutMark } from '../../ui/StateMark';
import { words } from '../../words';
import styles from './Rollout.module.css';

const say = words.rollout;

export function Decisions({ sequence }: { sequence: number }) {
  const query = useInfiniteQuery(rolloutDecisionsQuery(sequence));
  return (
    <Section title={say.decisions}>
      <Loaded query={query} lines={2}>
        {(data) => {
          const decisions = rowsOf(data);
          if (decisions.length === 0) return <p>{say.noDecisions}</p>;
          return (
            <>
              <ol className={styles.decisions}>
                {decisions.map((decision) => (
                  <Decision key={decision.number} decision={decision} />
                ))}
              </ol>
              <Foot query={query} shown={decisions.length} total={undefined} />
            </>
          );
        }}
      </Loaded>
    </Section>
  );
}

function Decision({ decision }: { decision: RolloutDecision }) {
  const { at, state, wave, figures, stop_reason: reason } = decision;
  return (
    <li className={styles.decision}>
      <time dateTime={at}>{dateTime(at)}</time>
      <span>{say.wave(wave)}</span>
      <RolloutMark state={state} />
      <span>
        {reason != null && <strong>{stopText(reason)} · </strong>}
        {say.released(number(figures.released), number(figures.members))} · {say.seen(countsText(decision))}
      </span>
    </li>
  );
}
