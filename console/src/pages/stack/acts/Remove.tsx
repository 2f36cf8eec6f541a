// Deleting a stack: the name is typed, because its resources are deleted on every agent.

import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';

import { ifMatch, suspensionsQuery, taggedStackQuery, untaggedReason } from '../../../api/acts';
import { api, body } from '../../../api/client';
import { number } from '../../../lib/format';
import { ActDialog, Warning } from '../../../ui/Act';
import { CheckField, TextField } from '../../../ui/Field';
import { Loaded } from '../../../ui/Loaded';
import { StackReach } from '../../../ui/Reach';
import { words } from '../../../words';

const say = words.acts.remove;

export default function Remove({ stack, onClose }: { stack: string; onClose: () => void }) {
  const [isKept, setKept] = useState(false);
  const suspensions = useQuery(suspensionsQuery(stack));
  const tagged = useQuery(taggedStackQuery(stack));
  return (
    <ActDialog
      title={say.title(stack)}
      submit={say.name}
      onClose={onClose}
      announced={say.done(stack)}
      typed={stack}
      disabledReason={untaggedReason(tagged)}
      run={async (values) =>
        body(
          api.DELETE('/api/v1/stacks/{stack}', {
            params: {
              path: { stack },
              query: {
                keep_resources: isKept,
                force: values.isChecked('force'),
                ...(values.text('waves') !== undefined && { waves: values.text('waves') as string }),
              },
              ...ifMatch(tagged),
            },
          }),
        )
      }
    >
      <Loaded query={tagged} lines={1}>
        {() => <StackReach stack={stack} count="holding" />}
      </Loaded>
      {!isKept && <Warning>{say.deleted}</Warning>}
      <CheckField label={say.keep} name="keep" checked={isKept} onChange={(event) => setKept(event.target.checked)} />
      {suspensions.data !== undefined && suspensions.data.length > 0 && (
        <CheckField label={say.force(number(suspensions.data.length))} name="force" />
      )}
      <TextField label={say.waves} name="waves" placeholder={say.wavesHint} />
    </ActDialog>
  );
}
