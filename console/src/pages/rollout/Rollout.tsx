// A rollout: how far each wave is, what it waits for, and what stopped it.

import { useQuery } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';

import { rolloutQuery } from '../../api/queries';
import type { Rollout as RolloutData } from '../../api/types';
import { number } from '../../lib/format';
import { boundText, countsText, nextText, stopText, versionsText, waveBars } from '../../lib/rollout';
import { views } from '../../lib/views';
import { Age } from '../../ui/Age';
import { Loaded } from '../../ui/Loaded';
import { Facts, Page, Section } from '../../ui/Page';
import { RolloutMark } from '../../ui/StateMark';
import { words } from '../../words';
import { Commands } from './Commands';
import { Decisions } from './Decisions';
import styles from './Rollout.module.css';

const say = words.rollout;

export function Rollout() {
  const { sequence } = useParams({ from: '/shell/rollouts/$sequence' });
  const query = useQuery(rolloutQuery(Number(sequence)));
  const rollout = query.data;
  const title = rollout
    ? words.rollouts.one(rollout.stack_name, versionsText(rollout))
    : words.rollouts.unread(sequence);
  return (
    <Page
      title={title}
      facts={rollout && <Link to="/stacks/$stack" params={{ stack: rollout.stack_name }}>{rollout.stack_name}</Link>}
      view={views.rollout(rollout?.stack_name, Number(sequence))}
    >
      <Loaded query={query}>{(data) => <Body rollout={data} />}</Loaded>
    </Page>
  );
}

function Body({ rollout }: { rollout: RolloutData }) {
  const { figures, stop_reason: reason } = rollout;
  const next = nextText(rollout);
  return (
    <>
      <p className={styles.state}>
        <RolloutMark state={rollout.state} />
        {reason != null && <strong>{stopText(reason)}</strong>}
        <span>{say.released(number(figures.released), number(figures.members))}</span>
      </p>
      <Commands rollout={rollout} />
      <Section title={say.waves}>
        <ol className={styles.waves}>
          {waveBars(rollout).map(({ wave, size, filled, isCurrent }) => (
            <li key={wave} aria-current={isCurrent ? 'step' : undefined} className={styles.wave}>
              <span>{say.wave(wave)}</span>
              <span>{size}</span>
              {filled === undefined ? (
                <span />
              ) : (
                <progress value={filled} aria-label={say.wave(wave)} className={styles.bar} />
              )}
              {isCurrent && <strong>{say.current}</strong>}
            </li>
          ))}
        </ol>
      </Section>
      <Decisions sequence={rollout.sequence_id} />
      <Facts
        items={[
          [say.facts.agents, countsText(rollout)],
          [say.facts.badAtMost, boundText(rollout)],
          ...(next === undefined ? [] : [[say.facts.next, next] as const]),
          [say.facts.begun, <Age key="begun" at={rollout.created_at} />],
          [say.facts.by, rollout.created_by],
          ...(rollout.ended_at == null ? [] : [[say.facts.ended, <Age key="ended" at={rollout.ended_at} />] as const]),
        ]}
      />
    </>
  );
}
