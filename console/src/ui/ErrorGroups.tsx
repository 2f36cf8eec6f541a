// Errors grouped by cause, failures first. `j` and `k` move between the groups, `y` explains the first agent of a group.

import { Link } from '@tanstack/react-router';
import { useRef } from 'react';

import { PRUNE_REASON } from '../api/acts';
import type { ErrorGroup } from '../api/types';
import { useWhyPanel } from '../app/useWhyPanel';
import { explained, number, objectName } from '../lib/format';
import { useShortcuts } from '../lib/keys';
import { words } from '../words';
import { Button } from './Button';
import styles from './ErrorGroups.module.css';

const say = words.errorsList;
/** Returns whether the group waits for an approval, and is not a failure. */
const isWaiting = ({ reason }: ErrorGroup) => reason === PRUNE_REASON;

export function ErrorGroups({ groups: all }: { groups: readonly ErrorGroup[] }) {
  const groups = all.toSorted((one, other) => Number(isWaiting(one)) - Number(isWaiting(other)));
  const list = useRef<HTMLOListElement>(null);
  const panel = useWhyPanel();
  const why = (group: ErrorGroup | undefined) => {
    const example = group?.examples[0];
    if (example) panel.open(example.stack_name, example.agent_name);
  };
  const items = () => [...(list.current?.children ?? [])] as HTMLElement[];
  /** Returns the group that has the focus; -1 if none has. */
  const chosen = () => items().findIndex((item) => item.contains(document.activeElement));
  const move = (by: number) => items()[Math.max(0, Math.min(chosen() + by, groups.length - 1))]?.focus();
  useShortcuts(
    [
      { keys: 'j', label: words.keys.down, run: () => move(1) },
      { keys: 'k', label: words.keys.up, run: () => move(-1) },
      // The first group has the most failing agents, so `y` alone explains the largest problem.
      { keys: 'y', label: words.keys.why, run: () => why(groups[Math.max(chosen(), 0)]) },
    ],
    list,
  );
  return (
    <ol ref={list} className={styles.groups}>
      {groups.map((group) => (
        <li key={groupKey(group)} tabIndex={-1} className={`${styles.group} ${isWaiting(group) ? styles.waiting : ''}`}>
          <div className={styles.head}>
            <strong className={styles.count}>{say.count(number(group.count))}</strong>
            <span className={styles.reason}>{explained(group.reason, group.message) || say.noReason}</span>
            <Button onPress={() => why(group)}>
              {say.why} <kbd aria-hidden="true">y</kbd>
            </Button>
          </div>
          <ul aria-label={say.examples} className={styles.examples}>
            {group.examples.map((example) => (
              <li key={`${example.stack_id}/${example.agent_id}`}>
                <Example example={example} />
              </li>
            ))}
          </ul>
          <Agents group={group} />
        </li>
      ))}
    </ol>
  );
}

/** Links to all agents with the error, stack by stack: the stacks of the examples. */
function Agents({ group: { reason, count, stacks, examples } }: { group: ErrorGroup }) {
  if (!reason) return null;
  const names = [...new Set(examples.map((example) => example.stack_name))];
  return (
    <p className={styles.all}>
      {names.map((stack) => (
        <Link key={stack} to="/stacks/$stack" params={{ stack }} search={{ error: reason }}>
          {stacks === 1 ? say.all(number(count)) : say.allOf(stack)}
        </Link>
      ))}
    </p>
  );
}

function groupKey({ reason, message, examples }: ErrorGroup): string {
  return [reason, message, examples[0]?.stack_id, examples[0]?.agent_id].join('\n');
}

function Example({ example }: { example: ErrorGroup['examples'][number] }) {
  const { stack_name: stack, agent_name: agent, objects, message } = example;
  const details = objects.map((note) => `${objectName(note.object)}: ${explained(note.reason, note.message)}`);
  return (
    <>
      <Link to="/stacks/$stack/agents/$agent" params={{ stack, agent }}>
        {words.why.pair(stack, agent)}
      </Link>{' '}
      <span className={styles.details}>{details.length > 0 ? details.join('; ') : message}</span>
    </>
  );
}
