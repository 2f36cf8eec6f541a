// Approving a prune that waits. The approval is for the number of objects that is shown; a larger prune waits again.

import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { EXAMPLES, pendingPrunesQuery } from '../../../api/acts';
import { api, body } from '../../../api/client';
import { number } from '../../../lib/format';
import { ActDialog, Part } from '../../../ui/Act';
import { SelectField } from '../../../ui/Field';
import { Loaded } from '../../../ui/Loaded';
import { words } from '../../../words';

const say = words.acts.prune;
/** More deletions than this are typed. */
export const MOST_CLICKED = 100;

interface Props {
  stack: string;
  /** The newest version: the approval is only for it. */
  version: number;
  /** The agent that is chosen at first; absent: all. */
  agent?: string;
  onClose: () => void;
}

export default function ApprovePrune({ stack, version, agent: first = '', onClose }: Props) {
  const [agent, setAgent] = useState(first);
  const pending = useQuery(pendingPrunesQuery(stack));
  const [shown, setShown] = useState(pending.data);
  // What is approved is what was shown at first: a larger prune that is reported meanwhile waits again.
  if (shown === undefined && pending.data !== undefined) setShown(pending.data);
  const prunes = shown?.prunes ?? [];
  const chosen = agent === '' ? prunes : prunes.filter((one) => one.agent === agent);
  const limit = Math.max(0, ...chosen.map((one) => one.objects));
  const agents = agent === '' ? (shown?.agents ?? 0) : chosen.length;
  const none = shown !== undefined && chosen.length === 0 ? say.none : undefined;
  const names = [...new Set([...prunes.map((one) => one.agent), ...(first === '' ? [] : [first])])];
  return (
    <ActDialog
      title={say.title(stack, version)}
      submit={`${say.name} ${number(limit)}`}
      onClose={onClose}
      announced={say.done}
      typed={limit * agents > MOST_CLICKED ? String(limit) : undefined}
      disabledReason={none ?? (shown === undefined ? words.loading : undefined)}
      run={async () =>
        body(
          api.POST('/api/v1/stacks/{stack}/prune-approvals', {
            params: { path: { stack } },
            body: { sequence_id: version, objects: limit, agent: agent === '' ? null : agent },
          }),
        )
      }
    >
      {shown === undefined ? (
        <Loaded query={pending} lines={2}>
          {() => null}
        </Loaded>
      ) : (
        <>
          <Part>
            <strong>{say.notice(number(shown.agents))}</strong>
            <ul>
              {prunes.slice(0, EXAMPLES).map((one) => (
                <li key={one.agent}>{say.waits(one.agent, number(one.objects), number(one.total))}</li>
              ))}
            </ul>
            {shown.agents > EXAMPLES && <span>{words.acts.rollBack.more(number(shown.agents - EXAMPLES))}</span>}
          </Part>
          <SelectField
            label={say.where}
            name="agent"
            value={agent}
            onChange={(event) => setAgent(event.target.value)}
            choices={[
              ['', say.everywhere(number(shown.agents))],
              ...names.map((name) => [name, say.on(name)] as const),
            ]}
          />
        </>
      )}
      <p>{say.limit(number(limit))}</p>
      <Link to="/stacks/$stack" params={{ stack }} search={{ tab: 'diff' }} target="_blank">
        {say.see}
      </Link>
    </ActDialog>
  );
}
