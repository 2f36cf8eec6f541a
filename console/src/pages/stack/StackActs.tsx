// What a person can do with a stack. The dialogs are loaded when they are opened.

import { lazy } from 'react';

import type { Stack } from '../../api/types';
import { loading } from '../../lib/load';
import { ActButton } from '../../ui/Act';
import { words } from '../../words';
import styles from '../../ui/ActBar.module.css';

const RollBack = lazy(loading(() => import('./acts/RollBack')));
const Retarget = lazy(loading(() => import('./acts/Retarget')));
const Suspend = lazy(loading(() => import('./acts/Suspend')));
const Rerun = lazy(loading(() => import('./acts/Rerun')));
const Remove = lazy(loading(() => import('./acts/Remove')));

const say = words.acts;

export function StackActs({ stack }: { stack: Stack }) {
  const { name } = stack;
  const deleted = stack.deleted_at == null ? undefined : say.deletedStack;
  const empty = stack.sequence_id == null ? say.noVersion : undefined;
  return (
    <div role="group" aria-label={say.label} className={styles.acts}>
      <ActButton name={say.rollBack.name} needs="deployer" disabledReason={deleted ?? empty}>
        {(close) => <RollBack stack={name} onClose={close} />}
      </ActButton>
      <ActButton name={say.retarget.name} needs="deployer" disabledReason={deleted}>
        {(close) => <Retarget stack={name} onClose={close} />}
      </ActButton>
      <ActButton name={say.suspend.name} needs="deployer" disabledReason={deleted}>
        {(close) => <Suspend stack={name} onClose={close} />}
      </ActButton>
      <ActButton name={say.rerun.name} needs="deployer" disabledReason={deleted ?? empty}>
        {(close) => <Rerun stack={name} onClose={close} />}
      </ActButton>
      <ActButton name={say.remove.name} needs="deployer" disabledReason={deleted}>
        {(close) => <Remove stack={name} onClose={close} />}
      </ActButton>
    </div>
  );
}
