// Letting clusters join: the command with a live check list, and join tokens for other ways to install.

import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';

import { joiningQuery } from '../../../api/admin';
import { api, body } from '../../../api/client';
import type { Agent, JoinToken } from '../../../api/types';
import { useNow } from '../../../lib/now';
import { quoted } from '../../../lib/views';
import { Overlay } from '../../../app/Overlay';
import { ActButton, ActDialog, Part, Warning } from '../../../ui/Act';
import styles from '../../../ui/Act.module.css';
import { Button } from '../../../ui/Button';
import { Command } from '../../../ui/Copy';
import { Row, TextField } from '../../../ui/Field';
import { Mark } from '../../../ui/StateMark';
import { words } from '../../../words';

const { join: say, ttl: ttlLabel, for: named } = words.adminActs;

interface Joining {
  agent: string;
  labels: Record<string, string>;
  /** Whether the agent existed before. */
  exists: boolean;
  /** When it registered its key, before it joins again. */
  keySince: string | undefined;
}

export function JoinCluster() {
  const [joining, setJoining] = useState<Joining>();
  return (
    <>
      <ActButton name={say.start} needs="admin" kind="primary">
        {(close) => (
          <ActDialog
            title={say.title}
            submit={say.submit}
            onClose={close}
            announced={say.title}
            run={async (values) => {
              const [agent, labels] = [values.text('agent') ?? '', values.labels('labels')];
              const known = await body(api.GET('/api/v1/agents', { params: { query: { name: agent, limit: 500 } } }));
              const found = known.items.find((one) => one.name === agent);
              setJoining({ agent, labels, exists: found !== undefined, keySince: found?.key_since ?? undefined });
            }}
          >
            <p>{say.reach}</p>
            <Row>
              <TextField label={say.agent} name="agent" required placeholder="shop-1" />
              <TextField label={say.labels} name="labels" placeholder={say.labelsHint} />
            </Row>
          </ActDialog>
        )}
      </ActButton>
      {joining && <Watch {...joining} onClose={() => setJoining(undefined)} />}
    </>
  );
}

export function joinCommand({ agent, labels, exists }: Omit<Joining, 'keySince'>): string {
  const flags = Object.entries(labels).flatMap(([key, value]) => ['--label', `${key}=${value}`]);
  return ['brokkr', 'agent', 'join', agent, ...(exists ? ['--rejoin'] : flags)].map(quoted).join(' ');
}

function Watch({ onClose, ...joining }: Joining & { onClose: () => void }) {
  const { agent, exists, keySince, labels } = joining;
  // An agent that joins again is connected with its former key until it has a new one.
  const hasNewKey = (found: Agent) => !exists || (found.key_since ?? undefined) !== keySince;
  const hasJoined = (found: Agent) => hasNewKey(found) && found.presence === 'fresh';
  const { data } = useQuery(joiningQuery(agent, hasJoined));
  const isConnected = data != null && hasJoined(data);
  const [label] = Object.entries(labels);
  const to = label === undefined ? ['--to-agent', agent] : ['--to', label.join('=')];
  const steps = [
    [say.steps.joined, data != null && hasNewKey(data)],
    [say.steps.contact, isConnected],
  ] as const;
  return (
    <Overlay title={say.title} onClose={onClose} mustClose>
      <div className={styles.form}>
        {exists && <Warning>{say.exists(agent)}</Warning>}
        <Part>
          <span>{say.run}</span>
          <Command line={joinCommand(joining)} />
        </Part>
        <ol aria-label={say.watch(agent)} aria-live="polite">
          {steps.map(([text, isDone]) => (
            <li key={text}>
              <Mark tone={isDone ? 'good' : 'busy'} glyph={isDone ? '✔' : '…'}>
                {`${text}: ${isDone ? say.done : say.waiting}`}
              </Mark>
            </li>
          ))}
        </ol>
        {isConnected && (
          <Part>
            <Link to="/agents/$agent" params={{ agent }}>
              {say.open(agent)}
            </Link>
            <span>{say.deploy}</span>
            <Command line={['brokkr apply hello -f examples/hello', ...to.map(quoted), '--wait'].join(' ')} />
          </Part>
        )}
        {!isConnected && <span className={styles.soft}>{say.keepOpen}</span>}
        <div className={styles.buttons}>
          <Button kind="primary" onPress={onClose}>
            {words.acts.close}
          </Button>
        </div>
      </div>
    </Overlay>
  );
}

export function CreateJoinToken() {
  return (
    <ActButton name={say.token} needs="admin">
      {(close) => (
        <ActDialog
          title={say.tokenTitle}
          submit={say.token}
          onClose={close}
          announced={say.tokenCreated}
          run={async (values) =>
            body(
              api.POST('/api/v1/join-tokens', {
                body: {
                  agent_name: values.text('agent') ?? '',
                  labels: values.labels('labels'),
                  ttl_seconds: values.duration('ttl') ?? null,
                },
              }),
            )
          }
          secretOf={(done) => done.token}
        >
          <p>{say.reach}</p>
          <p>{say.tokenEffect}</p>
          <Row>
            <TextField label={say.agent} name="agent" required />
            <TextField label={say.labels} name="labels" placeholder={say.labelsHint} />
            <TextField label={ttlLabel} name="ttl" defaultValue="1h" placeholder={say.ttlHint} />
          </Row>
        </ActDialog>
      )}
    </ActButton>
  );
}

export function JoinRowActs({ token, isCurrent }: { token: JoinToken; isCurrent: boolean }) {
  const now = useNow();
  const { id, agent_name: agent } = token;
  const isOver = token.used_by != null || token.revoked_at != null || Date.parse(token.expires_at) < now;
  return (
    <ActButton
      name={say.revoke}
      label={named(say.revoke, agent)}
      needs="admin"
      isInCurrentRow={isCurrent}
      disabledReason={isOver ? say.over : undefined}
    >
      {(close) => (
        <ActDialog
          title={say.revokeTitle(agent)}
          submit={say.revoke}
          onClose={close}
          announced={say.revoked}
          run={async () => {
            await api.DELETE('/api/v1/join-tokens/{token}', { params: { path: { token: id } } });
          }}
        >
          <p>{say.revokeEffect}</p>
        </ActDialog>
      )}
    </ActButton>
  );
}
