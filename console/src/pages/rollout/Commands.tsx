// What a person can do with a rollout. Each command says what it does, and is confirmed.

import { useQuery } from '@tanstack/react-query';

import { reachQuery } from '../../api/acts';
import { api, body } from '../../api/client';
import type { Rollout } from '../../api/types';
import { number } from '../../lib/format';
import { versionsText } from '../../lib/rollout';
import { commandsOf, needsReason, roleFor, type RolloutCommand } from '../../lib/rolloutCommands';
import { ActButton, ActDialog } from '../../ui/Act';
import styles from '../../ui/ActBar.module.css';
import { TextField } from '../../ui/Field';
import { Reached } from '../../ui/Reach';
import { words } from '../../words';

const say = words.rolloutCommands;

interface CommandsProps {
  rollout: Rollout;
  /** Only these, if they are possible. */
  only?: readonly RolloutCommand[];
}

export function Commands({ rollout, only }: CommandsProps) {
  const commands = commandsOf(rollout).filter((command) => only?.includes(command) ?? true);
  if (commands.length === 0) return null;
  return (
    <div role="group" aria-label={say.label} className={styles.acts}>
      {commands.map((command) => (
        <ActButton key={command} name={say.names[command]} needs={roleFor(command, rollout)}>
          {(close) => <Confirmation rollout={rollout} command={command} onClose={close} />}
        </ActButton>
      ))}
    </div>
  );
}

interface ConfirmationProps {
  rollout: Rollout;
  command: RolloutCommand;
  onClose: () => void;
}

function Confirmation({ rollout, command, onClose }: ConfirmationProps) {
  const { sequence_id: sequence, wave, figures, widens } = rollout;
  const subject = words.rollouts.one(rollout.stack_name, versionsText(rollout));
  // Which of the agents a widening is for is not known here.
  const reach = useQuery({ ...reachQuery(rollout.stack_name, {}), enabled: widens == null });
  const title = say.title(say.names[command], subject);
  return (
    <ActDialog
      title={title}
      submit={say.names[command]}
      onClose={onClose}
      announced={say.done(title)}
      run={async (values) =>
        body(
          api.POST('/api/v1/rollouts/{sequence_id}/{command}', {
            params: { path: { sequence_id: sequence, command } },
            // The command is meant for the wave that is shown, not for one that has begun since.
            body: { wave, ...(values.text('reason') !== undefined && { reason: values.text('reason') as string }) },
          }),
        )
      }
    >
      <Reached
        text={words.acts.reach.all(number(figures.members))}
        count={figures.members}
        names={reach.data?.targeted ?? []}
      />
      <p>{words.rollout.released(number(figures.released), number(figures.members))}</p>
      <p>{say.effects[command]}</p>
      <TextField label={say.reason} name="reason" required={needsReason(command)} placeholder={say.reasonHint} />
    </ActDialog>
  );
}
