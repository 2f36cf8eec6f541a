// What keeps agents from applying a stack although nothing is wrong: suspensions, and prunes that wait for approval.

import { useQuery } from '@tanstack/react-query';
import { lazy } from 'react';

import { pendingPrunesQuery, suspensionsQuery } from '../../api/acts';
import { api, body } from '../../api/client';
import type { Stack, StackSummary, Suspension } from '../../api/types';
import { left } from '../../lib/duration';
import { number, objectName } from '../../lib/format';
import { loading } from '../../lib/load';
import { ActButton, ActDialog } from '../../ui/Act';
import { ScopeReach, StackReach } from '../../ui/Reach';
import { words } from '../../words';
import styles from '../../ui/ActBar.module.css';

const ApprovePrune = lazy(loading(() => import('./acts/ApprovePrune')));

const say = words.acts;

export function Notices({ stack, summary }: { stack: Stack; summary: StackSummary | undefined }) {
  return (
    <>
      <Suspensions stack={stack.name} />
      {summary !== undefined && summary.blocked > 0 && <PendingPrune stack={stack} />}
    </>
  );
}

function PendingPrune({ stack }: { stack: Stack }) {
  const { data } = useQuery(pendingPrunesQuery(stack.name));
  if (data === undefined || data.agents === 0 || stack.sequence_id == null) return null;
  const version = stack.sequence_id;
  return (
    <div className={styles.notice}>
      <span>{say.prune.notice(number(data.agents))}</span>
      <ActButton name={say.prune.name} label={say.prune.label(stack.name)} needs="deployer">
        {(close) => <ApprovePrune stack={stack.name} version={version} onClose={close} />}
      </ActButton>
    </div>
  );
}

function Suspensions({ stack }: { stack: string }) {
  const { data: suspensions = [] } = useQuery(suspensionsQuery(stack));
  if (suspensions.length === 0) return null;
  const what = say.resume;
  return (
    <div className={styles.notice}>
      <ul aria-label={what.list} className={styles.lines}>
        {suspensions.map((one) => (
          <li key={one.id} className={styles.line}>
            <strong>{scopeOf(one)}</strong>
            <span>{what.line(left(one.left_seconds), one.created_by, one.reason)}</span>
            <ActButton name={what.name} label={what.label(scopeOf(one))} needs="deployer">
              {(close) => <Resume stack={stack} suspensions={[one]} onClose={close} />}
            </ActButton>
          </li>
        ))}
      </ul>
      {suspensions.length > 1 && (
        <ActButton name={what.all} needs="deployer">
          {(close) => <Resume stack={stack} suspensions={suspensions} onClose={close} />}
        </ActButton>
      )}
    </div>
  );
}

interface ResumeProps {
  stack: string;
  suspensions: readonly Suspension[];
  onClose: () => void;
}

function Resume({ stack, suspensions, onClose }: ResumeProps) {
  const what = say.resume;
  const [only] = suspensions;
  const isOne = suspensions.length === 1;
  return (
    <ActDialog
      title={isOne ? what.title : what.titleAll(number(suspensions.length))}
      submit={isOne ? what.name : what.all}
      onClose={onClose}
      announced={what.done}
      run={async () =>
        body(
          api.POST('/api/v1/stacks/{stack}/resume', {
            params: { path: { stack } },
            body: isOne && only ? { id: only.id } : {},
          }),
        )
      }
    >
      {isOne && only ? (
        <ScopeReach stack={stack} agent={only.agent ?? undefined} selector={only.selector ?? undefined} />
      ) : (
        <StackReach stack={stack} />
      )}
      <ul>
        {suspensions.map((one) => (
          <li key={one.id}>{scopeOf(one)}</li>
        ))}
      </ul>
      <p>{what.effect}</p>
    </ActDialog>
  );
}

/** Returns `Deployment web on eu-1`. */
function scopeOf({ agent, selector, object }: Suspension): string {
  const what = object == null ? say.resume.everything : objectName(object);
  return say.resume.on(what, agent ?? selector ?? say.resume.everywhere);
}
