// What an admin can do with an agent. Acts that cannot be undone name the stacks that they reach, and are typed.

import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';

import { agentTargetsQuery, EXAMPLES } from '../../api/acts';
import { api, body } from '../../api/client';
import type { Agent } from '../../api/types';
import { number } from '../../lib/format';
import { ActButton, ActDialog, Part } from '../../ui/Act';
import { AreaField, TextField } from '../../ui/Field';
import { Loaded } from '../../ui/Loaded';
import { Reached } from '../../ui/Reach';
import { words } from '../../words';
import styles from '../../ui/ActBar.module.css';

const say = words.adminActs.agent;

interface Props {
  agent: Agent;
}

export default function AgentActs({ agent }: Props) {
  return (
    <div role="group" aria-label={words.acts.label} className={styles.acts}>
      <Pause agent={agent} />
      <Labels agent={agent} />
      <Rotate agent={agent} />
      <Revoke agent={agent} />
      <Rejoin agent={agent} />
      <Retire agent={agent} />
      <Abandon agent={agent} />
      <Remove agent={agent} />
    </div>
  );
}

const goneReason = ({ revoked_at: revoked }: Agent) => (revoked == null ? undefined : say.gone);

function Pause({ agent }: Props) {
  const { id, name } = agent;
  const isActive = agent.status === 'ACTIVE';
  const submit = isActive ? say.pause : say.resume;
  return (
    <ActButton name={submit} needs="admin">
      {(close) => (
        <ActDialog
          title={isActive ? say.pauseTitle(name) : say.resumeTitle(name)}
          submit={submit}
          onClose={close}
          announced={say.changed}
          run={async () =>
            body(
              api.PATCH('/api/v1/agents/{agent}', {
                params: { path: { agent: id } },
                body: { status: isActive ? 'INACTIVE' : 'ACTIVE' },
              }),
            )
          }
        >
          <Stacks agent={agent} />
          <p>{isActive ? say.pauseEffect : say.resumeEffect}</p>
        </ActDialog>
      )}
    </ActButton>
  );
}

function Labels({ agent }: Props) {
  const { id, name, labels } = agent;
  const lines = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  return (
    <ActButton name={say.labels} needs="admin">
      {(close) => (
        <ActDialog
          title={say.labelsTitle(name)}
          submit={say.labels}
          onClose={close}
          announced={say.changed}
          run={async (values, expect) =>
            body(
              api.PATCH('/api/v1/agents/{agent}', {
                params: { path: { agent: id }, query: { expect } },
                body: { labels: values.labels('labels') },
              }),
            )
          }
        >
          <Stacks agent={agent} />
          <AreaField label={say.labelsField} name="labels" defaultValue={lines.join('\n')} />
          <p>{say.labelsEffect}</p>
          <p>{words.acts.retarget.asked}</p>
        </ActDialog>
      )}
    </ActButton>
  );
}

function Rotate({ agent }: Props) {
  const { id, name } = agent;
  return (
    <ActButton name={say.rotate} needs="admin" disabledReason={goneReason(agent)}>
      {(close) => (
        <ActDialog
          title={say.rotateTitle(name)}
          submit={say.rotate}
          onClose={close}
          announced={say.rotated}
          run={async () => body(api.POST('/api/v1/agents/{agent}/rotation', { params: { path: { agent: id } } }))}
        >
          <strong>{say.reach}</strong>
          <p>{say.rotateEffect}</p>
        </ActDialog>
      )}
    </ActButton>
  );
}

function Revoke({ agent }: Props) {
  const { id, name } = agent;
  return (
    <ActButton name={say.revoke} needs="admin" disabledReason={goneReason(agent)}>
      {(close) => (
        <ActDialog
          title={say.revokeTitle(name)}
          submit={say.revoke}
          onClose={close}
          announced={say.revoked}
          typed={name}
          run={async () => {
            await api.DELETE('/api/v1/agents/{agent}/keys', { params: { path: { agent: id } } });
          }}
        >
          <Stacks agent={agent} />
          <p>{say.revokeEffect}</p>
        </ActDialog>
      )}
    </ActButton>
  );
}

function Rejoin({ agent: { id, name } }: Props) {
  const { join, ttl } = words.adminActs;
  return (
    <ActButton name={say.rejoin} needs="admin">
      {(close) => (
        <ActDialog
          title={say.rejoinTitle(name)}
          submit={say.rejoin}
          onClose={close}
          announced={join.tokenCreated}
          run={async (values) =>
            body(
              api.POST('/api/v1/agents/{agent}/join-tokens', {
                params: { path: { agent: id } },
                body: { ttl_seconds: values.duration('ttl') ?? null },
              }),
            )
          }
          secretOf={(done) => done.token}
        >
          <strong>{say.reach}</strong>
          <p>{say.rejoinEffect}</p>
          <TextField label={ttl} name="ttl" defaultValue="1h" placeholder={join.ttlHint} />
        </ActDialog>
      )}
    </ActButton>
  );
}

function Retire({ agent }: Props) {
  const { id, name } = agent;
  return (
    <ActButton name={say.retire} needs="admin" disabledReason={goneReason(agent)}>
      {(close) => (
        <ActDialog
          title={say.retireTitle(name)}
          submit={say.retire}
          onClose={close}
          announced={say.retired}
          typed={name}
          run={async () => body(api.POST('/api/v1/agents/{agent}/retirement', { params: { path: { agent: id } } }))}
        >
          <Stacks agent={agent} text={say.retireReach} />
          <p>{say.retireEffect}</p>
        </ActDialog>
      )}
    </ActButton>
  );
}

function Abandon({ agent }: Props) {
  const { id, name } = agent;
  return (
    <ActButton name={say.abandon} needs="admin">
      {(close) => (
        <ActDialog
          title={say.abandonTitle(name)}
          submit={say.abandon}
          onClose={close}
          announced={say.abandoned}
          typed={name}
          run={async (values) =>
            body(
              api.POST('/api/v1/agents/{agent}/abandonment', {
                params: { path: { agent: id } },
                body: { reason: values.text('reason') ?? '' },
              }),
            )
          }
        >
          <Stacks agent={agent} text={say.abandonReach} />
          <p>{say.abandonEffect}</p>
          <TextField label={words.acts.reason} name="reason" required placeholder={words.acts.reasonHint} />
        </ActDialog>
      )}
    </ActButton>
  );
}

function Remove({ agent: { id, name, revoked_at: revoked } }: Props) {
  const navigate = useNavigate();
  return (
    <ActButton name={say.remove} needs="admin" disabledReason={revoked == null ? say.stillThere : undefined}>
      {(close) => (
        <ActDialog
          title={say.removeTitle(name)}
          submit={say.remove}
          onClose={close}
          announced={say.removed}
          typed={name}
          run={async () => {
            await api.DELETE('/api/v1/agents/{agent}', { params: { path: { agent: id } } });
            void navigate({ to: '/agents' });
          }}
        >
          <p>{say.removeEffect}</p>
        </ActDialog>
      )}
    </ActButton>
  );
}

/** The stacks that target the agent, which an act changes there: their number, and the names of some. */
function Stacks({ agent, text = words.matrix.stacks }: Props & { text?: (stacks: string) => string }) {
  const targets = useQuery(agentTargetsQuery(agent.id));
  return (
    <Part>
      <strong>{say.reach}</strong>
      <Loaded query={targets} lines={1}>
        {(stacks) => <Reached text={text(number(stacks.length))} count={stacks.length} names={stacks.slice(0, EXAMPLES)} />}
      </Loaded>
    </Part>
  );
}
