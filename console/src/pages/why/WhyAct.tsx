// Does what the next step says, if the console can. The dialog shows what it reaches, and names the role.

import { Link } from '@tanstack/react-router';
import { lazy } from 'react';

import type { Broken, StackWhy } from '../../api/types';
import { loading } from '../../lib/load';
import { ActButton } from '../../ui/Act';
import { words } from '../../words';

const RollBack = lazy(loading(() => import('../stack/acts/RollBack')));
const ApprovePrune = lazy(loading(() => import('../stack/acts/ApprovePrune')));

const { rollBack, prune } = words.acts;

export function WhyAct({ why, broken }: { why: StackWhy; broken: Broken }) {
  const { stack_name: stack, agent_name: agent, wanted_sequence_id: wanted } = why;
  const [, verb] = broken.command?.line.split(' ') ?? [];
  if (verb === 'rollback') {
    return (
      <ActButton name={rollBack.name} needs="deployer">
        {(close) => <RollBack stack={stack} onClose={close} />}
      </ActButton>
    );
  }
  switch (broken.cause) {
    case 'awaits_approval':
      if (wanted == null) return null;
      return (
        <ActButton name={prune.name} label={prune.label(stack)} needs="deployer">
          {(close) => <ApprovePrune stack={stack} version={wanted} agent={agent} onClose={close} />}
        </ActButton>
      );
    case 'suspended':
      return (
        <Link to="/stacks/$stack" params={{ stack }}>
          {words.acts.resume.list}
        </Link>
      );
    case 'gate_closed':
    case 'rollout_paused':
    case 'rollout_stopped':
      return (
        <Link to="/stacks/$stack" params={{ stack }} search={{ tab: 'rollouts' }}>
          {words.stack.tabs.rollouts}
        </Link>
      );
    default:
      return null;
  }
}
