// What waits for a person, over all stacks: gates of rollouts, and prunes.

import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { lazy } from 'react';

import { pendingPrunesQuery, PRUNE_REASON } from '../api/acts';
import { errorsQuery, rolloutsQuery, stackQuery } from '../api/queries';
import type { ErrorGroup, Rollout } from '../api/types';
import { number } from '../lib/format';
import { loading } from '../lib/load';
import { rowsOf } from '../lib/pages';
import { versionsText } from '../lib/rollout';
import { views } from '../lib/views';
import { ActButton } from '../ui/Act';
import { Age } from '../ui/Age';
import { Loaded } from '../ui/Loaded';
import { Page, Section } from '../ui/Page';
import { Empty } from '../ui/Problem';
import { words } from '../words';
import { Commands } from './rollout/Commands';
import styles from '../ui/ActBar.module.css';

const ApprovePrune = lazy(loading(() => import('./stack/acts/ApprovePrune')));

const say = words.approvals;

export function Approvals() {
  const rollouts = useInfiniteQuery(rolloutsQuery({ active: true }));
  const errors = useInfiniteQuery(errorsQuery());
  return (
    <Page title={say.title} view={views.rollouts()}>
      <Loaded query={rollouts}>
        {(active) => (
          <Loaded query={errors}>
            {(groups) => <Body rollouts={rowsOf(active)} groups={rowsOf(groups)} />}
          </Loaded>
        )}
      </Loaded>
    </Page>
  );
}

function Body({ rollouts, groups }: { rollouts: readonly Rollout[]; groups: readonly ErrorGroup[] }) {
  const gated = rollouts.filter(({ state }) => state === 'gated');
  const prunes = groups.filter(({ reason }) => reason === PRUNE_REASON);
  const stacks = [...new Set(prunes.flatMap(({ examples }) => examples.map((one) => one.stack_name)))];
  const all = prunes.reduce((sum, group) => sum + group.stacks, 0);
  if (gated.length + stacks.length === 0) return <Empty text={say.calm} />;
  return (
    <>
      {gated.length > 0 && (
        <Section title={say.gates}>
          <ul className={styles.lines}>
            {gated.map((rollout) => (
              <li key={rollout.sequence_id} className={styles.notice}>
                <Gate rollout={rollout} />
              </li>
            ))}
          </ul>
        </Section>
      )}
      {stacks.length > 0 && (
        <Section title={say.prunes}>
          <ul className={styles.lines}>
            {stacks.map((stack) => (
              <Prune key={stack} stack={stack} />
            ))}
          </ul>
          {all > stacks.length && <p>{say.moreStacks(number(all - stacks.length))}</p>}
        </Section>
      )}
    </>
  );
}

function Gate({ rollout }: { rollout: Rollout }) {
  const { sequence_id: sequence, stack_name: stack, wave, waves, policy } = rollout;
  const gate = policy.waves?.[wave - 1]?.gate;
  return (
    <>
      <Link to="/rollouts/$sequence" params={{ sequence: String(sequence) }}>
        {words.rollouts.one(stack, versionsText(rollout))}
      </Link>
      <span>{say.gate(wave, waves)}</span>
      {gate && <span>{say.needs(number(gate.approvals ?? 1), gate.role ?? 'deployer')}</span>}
      {gate?.not_author && <span>{say.notAuthor}</span>}
      <span>
        {say.since} <Age at={rollout.created_at} />
      </span>
      <Commands rollout={rollout} only={['approve', 'deny']} />
    </>
  );
}

/** Shown until the approval has arrived at the agents: they report the prune until then. */
function Prune({ stack }: { stack: string }) {
  const pending = useQuery(pendingPrunesQuery(stack));
  const { data } = useQuery(stackQuery(stack));
  const version = data?.sequence_id;
  return (
    <li className={styles.notice}>
      <Link to="/stacks/$stack" params={{ stack }} search={{ error: PRUNE_REASON }}>
        {stack}
      </Link>
      <Loaded query={pending} lines={1}>
        {({ agents }) => <span>{words.acts.prune.notice(number(agents))}</span>}
      </Loaded>
      {version != null && (
        <ActButton name={words.acts.prune.name} label={words.acts.prune.label(stack)} needs="deployer">
          {(close) => <ApprovePrune stack={stack} version={version} onClose={close} />}
        </ActButton>
      )}
    </li>
  );
}
