// Suspending a stack, or one object of it: where, for how long, and why.

import { useState } from 'react';

import { api, body } from '../../../api/client';
import { notSent } from '../../../api/problem';
import type { FormValues } from '../../../lib/formValues';
import { useSettled } from '../../../lib/settled';
import { ActDialog } from '../../../ui/Act';
import { Row, SelectField, TextField } from '../../../ui/Field';
import { Reached, ScopeReach } from '../../../ui/Reach';
import { words } from '../../../words';

const say = words.acts.suspend;

type Scope = keyof typeof say.scopes;

export default function Suspend({ stack, onClose }: { stack: string; onClose: () => void }) {
  const [scope, setScope] = useState<Scope>('all');
  const [typed, setTyped] = useState('');
  const where = useSettled(typed.trim());
  return (
    <ActDialog
      title={say.title(stack)}
      submit={say.name}
      onClose={onClose}
      announced={say.done(stack)}
      run={async (values) =>
        body(
          api.POST('/api/v1/stacks/{stack}/suspensions', {
            params: { path: { stack } },
            body: {
              ...(scope !== 'all' && { [scope]: required(values, 'where', say.noWhere) }),
              ...objectOf(values),
              seconds: values.duration('for') ?? 0,
              reason: values.text('reason') ?? '',
            },
          }),
        )
      }
    >
      <Reach stack={stack} scope={scope} where={where} />
      <Row>
        <SelectField
          label={say.scope}
          name="scope"
          choices={say.scopes}
          value={scope}
          onChange={(event) => setScope(event.target.value as Scope)}
        />
        {scope !== 'all' && (
          <TextField
            label={scope === 'agent' ? say.agent : say.selector}
            name="where"
            required
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
          />
        )}
      </Row>
      <fieldset>
        <legend>{say.only}</legend>
        <Row>
          <TextField label={say.kind} name="kind" placeholder="Deployment" />
          <TextField label={say.object} name="name" />
          <TextField label={say.namespace} name="namespace" />
        </Row>
      </fieldset>
      <Row>
        <TextField label={say.for} name="for" required defaultValue="2h" placeholder={say.forHint} />
        <TextField label={words.acts.reason} name="reason" required placeholder={say.reasonHint} />
      </Row>
      <p>{say.effect}</p>
    </ActDialog>
  );
}

/** Returns a text; throws if it is blank, because without it the suspension would be for more than the form says. */
function required(values: FormValues, name: string, message: string): string {
  const text = values.text(name);
  if (text === undefined) throw notSent(message);
  return text;
}

function objectOf(values: FormValues) {
  const namespace = values.text('namespace') ?? null;
  if (namespace === null && values.text('kind') === undefined && values.text('name') === undefined) return {};
  const [kind, name] = [required(values, 'kind', say.noObject), required(values, 'name', say.noObject)];
  return { object: { kind, name, namespace } };
}

function Reach({ stack, scope, where }: { stack: string; scope: Scope; where: string }) {
  if (scope === 'all') return <ScopeReach stack={stack} />;
  if (where === '') return <Reached text={words.acts.reach.all('0')} count={0} names={[]} />;
  return <ScopeReach stack={stack} {...{ [scope]: where }} />;
}
