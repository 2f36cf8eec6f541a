// Identity, presence and keys of an agent.

import type { Agent, AgentWhy } from '../../api/types';
import { labels, number, orDash } from '../../lib/format';
import { Age, When } from '../../ui/Age';
import { Facts, Section } from '../../ui/Page';
import { words } from '../../words';

const say = words.agent;

export function AgentDetails({ agent, why }: { agent: Agent; why: AgentWhy | undefined }) {
  const sessions = agent.session_duplicated ? say.duplicated : number(agent.session_count);
  return (
    <>
      <Facts
        items={[
          [words.columns.status, agent.status],
          [say.agentVersion, orDash(agent.version)],
          [words.columns.created, <When key="created" at={agent.created_at} />],
          [words.columns.lastSeen, <When key="seen" at={agent.last_seen_at} />],
          [say.keySince, <When key="key" at={agent.key_since} />],
          [say.sessions, sessions],
          [words.columns.labels, orDash(labels(agent.labels))],
          [say.annotations, orDash(labels(agent.annotations))],
          ...(agent.revoked_at == null ? [] : [[say.retired, <When key="retired" at={agent.revoked_at} />] as const]),
        ]}
      />
      {why !== undefined && why.events.length > 0 && (
        <Section title={say.presence}>
          <ul>
            {why.events.map(({ kind, at }) => (
              <li key={at + kind}>
                {kind === 'silent' ? say.silentEvent : say.backEvent} <Age at={at} />
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}
