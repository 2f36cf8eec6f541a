// Running Jobs of a stack again.

import { api, body } from '../../../api/client';
import { ActDialog } from '../../../ui/Act';
import { TextField } from '../../../ui/Field';
import { StackReach } from '../../../ui/Reach';
import { words } from '../../../words';

const say = words.acts.rerun;

export default function Rerun({ stack, onClose }: { stack: string; onClose: () => void }) {
  return (
    <ActDialog
      title={say.title(stack)}
      submit={say.name}
      onClose={onClose}
      announced={say.done}
      run={async (values) =>
        body(
          api.POST('/api/v1/stacks/{stack}/rerun', {
            params: { path: { stack } },
            body: { job: values.text('job') ?? null },
          }),
        )
      }
    >
      <StackReach stack={stack} />
      <p>{say.effect}</p>
      <TextField label={say.job} name="job" placeholder={say.jobHint} />
    </ActDialog>
  );
}
