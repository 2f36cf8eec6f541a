// Changing the targets of a stack, with a preview of what each selector matches.

import { useQuery } from '@tanstack/react-query';
import { useState, type FormEvent } from 'react';

import { EXAMPLES, ifMatch, retargetQuery, taggedStackQuery, untaggedReason } from '../../../api/acts';
import { api, body } from '../../../api/client';
import { number } from '../../../lib/format';
import { FormValues } from '../../../lib/formValues';
import { useSettled } from '../../../lib/settled';
import { ActDialog, Part, Warning } from '../../../ui/Act';
import { AreaField } from '../../../ui/Field';
import { Loaded } from '../../../ui/Loaded';
import { Reached, StackReach } from '../../../ui/Reach';
import { words } from '../../../words';

const say = words.acts.retarget;

interface Targets {
  selectors: string[];
  agents: string[];
}

const NONE: Targets = { selectors: [], agents: [] };

export default function Retarget({ stack, onClose }: { stack: string; onClose: () => void }) {
  const tagged = useQuery(taggedStackQuery(stack));
  const { selectors = [], agents = [] } = tagged.data?.stack.targets ?? NONE;
  const [typed, setTyped] = useState<Targets>();
  const targets = typed ?? { selectors, agents };
  const dropped = agents.filter((agent) => !targets.agents.includes(agent));
  const onInput = (event: FormEvent<HTMLTextAreaElement>) => {
    if (event.currentTarget.form) setTyped(targetsOf(new FormValues(event.currentTarget.form)));
  };
  return (
    <ActDialog
      title={say.title(stack)}
      submit={say.name}
      onClose={onClose}
      announced={say.done(stack)}
      // The broker asks to confirm what selectors remove, but not what the names of agents do.
      typed={dropped.length > 0 ? stack : undefined}
      disabledReason={untaggedReason(tagged)}
      run={async (values, expect) =>
        body(
          api.PUT('/api/v1/stacks/{stack}/targets', {
            params: { path: { stack }, query: { expect }, ...ifMatch(tagged) },
            body: targetsOf(values),
          }),
        )
      }
    >
      <StackReach stack={stack} />
      <Loaded query={tagged}>
        {() => (
          <>
            <AreaField
              label={say.selectors}
              name="selectors"
              defaultValue={selectors.join('\n')}
              placeholder={words.filters.selectorHint}
              onInput={onInput}
            />
            <AreaField label={say.agents} name="agents" rows={2} defaultValue={agents.join('\n')} onInput={onInput} />
            <p>{say.effect}</p>
            {dropped.length > 0 && <Dropped agents={dropped} />}
            <section aria-label={say.preview}>
              <Preview stack={stack} targets={targets} keepsAgents={isSame(targets.agents, agents)} />
            </section>
          </>
        )}
      </Loaded>
    </ActDialog>
  );
}

function targetsOf(values: FormValues): Targets {
  return { selectors: values.lines('selectors'), agents: values.lines('agents', /[\n,\s]/) };
}

const isSame = (some: readonly string[], others: readonly string[]) =>
  some.every((one) => others.includes(one)) && others.every((one) => some.includes(one));

function Dropped({ agents }: { agents: readonly string[] }) {
  return (
    <Warning>
      {say.dropped(number(agents.length))} {agents.join(', ')}. {say.droppedEffect}
    </Warning>
  );
}

interface PreviewProps {
  stack: string;
  targets: Targets;
  /** Whether the named agents stay: the broker counts the change of a selector with the agents that are named now. */
  keepsAgents: boolean;
}

function Preview({ stack, targets, keepsAgents }: PreviewProps) {
  const { selectors, agents } = useSettled(targets);
  if (selectors.length + agents.length === 0) return <Warning>{say.none}</Warning>;
  const hasChange = selectors.length === 1 && keepsAgents;
  return (
    <Part>
      {selectors.map((selector) => (
        <Selector key={selector} stack={stack} selector={selector} hasChange={hasChange} />
      ))}
      {agents.length > 0 && (
        <Reached
          text={words.acts.reach.all(number(agents.length))}
          count={agents.length}
          names={agents.slice(0, EXAMPLES)}
        />
      )}
      <span>{say.asked}</span>
    </Part>
  );
}

function Selector({ stack, selector, hasChange }: { stack: string; selector: string; hasChange: boolean }) {
  const preview = useQuery(retargetQuery(stack, selector));
  return (
    <Loaded query={preview} lines={1}>
      {({ agents, items, stack: change }) => (
        <>
          <Reached
            text={say.matches(selector, number(agents))}
            count={agents}
            names={items.map((agent) => agent.name)}
          />
          {hasChange && change != null && (
            <span>{say.change(number(change.gained), number(change.kept), number(change.lost))}</span>
          )}
        </>
      )}
    </Loaded>
  );
}
