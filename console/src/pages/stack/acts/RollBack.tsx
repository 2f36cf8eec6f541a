// Rolling back: what changes, on how many agents, and which content is barred.

import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { barredQuery, ifMatch, suspensionsQuery, taggedStackQuery, untaggedReason } from '../../../api/acts';
import { api, body } from '../../../api/client';
import { diffQuery, rolloutsQuery, versionsQuery } from '../../../api/queries';
import type { DeploymentObject } from '../../../api/types';
import { age, number, objectName, shortId } from '../../../lib/format';
import { useNow } from '../../../lib/now';
import { rowsOf } from '../../../lib/pages';
import { candidates, lastGood, obstacle, type History } from '../../../lib/rollBack';
import { ActDialog, Part, Warning } from '../../../ui/Act';
import styles from '../../../ui/Act.module.css';
import { CheckField, SelectField, TextField } from '../../../ui/Field';
import { Loaded } from '../../../ui/Loaded';
import { StackReach } from '../../../ui/Reach';
import { words } from '../../../words';

const say = words.acts.rollBack;

interface Props {
  stack: string;
  /** The version that was chosen before; by default, the last good one. */
  version?: number | undefined;
  onClose: () => void;
}

export default function RollBack({ stack, version, onClose }: Props) {
  const now = useNow();
  const [chosen, setChosen] = useState(version);
  const versions = useInfiniteQuery(versionsQuery(stack));
  const barred = useQuery(barredQuery(stack));
  const rollouts = useInfiniteQuery(rolloutsQuery({ stack }));
  const suspensions = useQuery(suspensionsQuery(stack));
  const tagged = useQuery(taggedStackQuery(stack));
  const all = rowsOf(versions.data);
  const [newest] = all;
  const others = candidates(all);
  const isRead = [versions, barred, rollouts, tagged].every((query) => !query.isPending);
  const history = { versions: all, barred: barred.data?.items ?? [], rollouts: rowsOf(rollouts.data) };
  const byDefault = isRead ? lastGood(history) : undefined;
  const to = chosen ?? byDefault?.sequence_id;
  const target = others.find((one) => one.sequence_id === to);
  const against = target && obstacle(target, history);
  const isOnlyOne = isRead && others.length === 0;
  const unchosen = isRead ? say.choose : words.loading;
  const refused = against && say.obstacles[against];
  const reason = isOnlyOne ? words.acts.oneVersion : to === undefined ? unchosen : refused;
  return (
    <ActDialog
      title={say.title(stack)}
      submit={say.name}
      onClose={onClose}
      announced={say.done(stack)}
      disabledReason={untaggedReason(tagged) ?? reason}
      run={async (values) =>
        body(
          api.POST('/api/v1/stacks/{stack}/roll-back', {
            params: { path: { stack }, ...ifMatch(tagged) },
            body: {
              to: to ?? null,
              keep_open: values.isChecked('keepOpen'),
              force: values.isChecked('force'),
              ...(values.text('reason') !== undefined && { reason: values.text('reason') as string }),
            },
          }),
        )
      }
    >
      <Loaded query={tagged} lines={1}>
        {() => <StackReach stack={stack} />}
      </Loaded>
      <Loaded query={versions} lines={1}>
        {() =>
          isOnlyOne ? (
            <p>{words.acts.oneVersion}</p>
          ) : (
            <SelectField
              label={say.to}
              name="to"
              value={to ?? ''}
              onChange={(event) => setChosen(Number(event.target.value) || undefined)}
              choices={[
                // No version is chosen for a person if none is known to be good.
                ...(byDefault === undefined ? [['', say.choose] as const] : []),
                ...others.map((one) => choiceOf(one, history, now)),
              ]}
            />
          )
        }
      </Loaded>
      <p>{say.effect}</p>
      {newest && to !== undefined && <Changes stack={stack} from={newest.sequence_id} to={to} />}
      {newest && !newest.is_deletion_marker && (
        <>
          <Warning>{say.barred(newest.sequence_id, shortId(newest.checksum))}</Warning>
          <CheckField label={say.keepOpen} name="keepOpen" />
        </>
      )}
      {suspensions.data !== undefined && suspensions.data.length > 0 && (
        <CheckField label={say.force(number(suspensions.data.length))} name="force" />
      )}
      <TextField label={words.acts.reason} name="reason" placeholder={words.acts.reasonHint} />
    </ActDialog>
  );
}

function choiceOf(version: DeploymentObject, history: History, now: number) {
  const { sequence_id: sequence, created_at: at, submitted_by: by, message } = version;
  const against = obstacle(version, history);
  const text = [say.version(sequence, age(at, now), by), against && say.marks[against], message];
  return [String(sequence), text.filter(Boolean).join(': '), against !== undefined] as const;
}

const GLYPHS = { removed: '−', changed: '~', added: '+' } as const;
const SHOWN = 8;

function Changes({ stack, from, to }: { stack: string; from: number; to: number }) {
  const diff = useQuery(diffQuery(stack, from, to));
  const diffWords = words.diff;
  return (
    <Loaded query={diff} lines={2}>
      {({ added, changed, removed, unchanged, resources }) => (
        <Part>
          <span>
            {resources.length === 0
              ? diffWords.same
              : diffWords.summary(number(added), number(changed), number(removed), number(unchanged))}
          </span>
          <ul className={styles.objects}>
            {resources.slice(0, SHOWN).map((one) => (
              <li key={`${one.group}/${objectName(one)}`}>
                <span aria-hidden="true">{GLYPHS[one.change]}</span> {objectName(one)}{' '}
                <span className={styles.soft}>{diffWords.change[one.change]}</span>
              </li>
            ))}
            {resources.length > SHOWN && <li>{say.more(number(resources.length - SHOWN))}</li>}
          </ul>
          <Link to="/stacks/$stack" params={{ stack }} search={{ tab: 'diff', from, to }} target="_blank">
            {say.compare}
          </Link>
        </Part>
      )}
    </Loaded>
  );
}
