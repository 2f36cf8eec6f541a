// An agent: what it has and should have, whether it is there, and what it reported.

import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useParams, useSearch } from '@tanstack/react-router';
import { useEffect, useState } from 'react';

import { agentStacksKey } from '../../api/fleet';
import { agentQuery, agentWhyKey, agentWhyQuery, eventsKey } from '../../api/queries';
import type { Agent as AgentData, AgentWhy } from '../../api/types';
import { useStream } from '../../app/liveState';
import { dateTime, labels, number } from '../../lib/format';
import { remember } from '../../lib/recents';
import { throttle } from '../../lib/throttle';
import { apiPath, views } from '../../lib/views';
import { Age } from '../../ui/Age';
import { Command } from '../../ui/Copy';
import { lazyPart } from '../../ui/lazyPart';
import { Loaded } from '../../ui/Loaded';
import { Page } from '../../ui/Page';
import { PresenceMark } from '../../ui/StateMark';
import { Tabs } from '../../ui/Tabs';
import { words } from '../../words';
import { AgentDetails } from './AgentDetails';
import { AgentEvents } from './AgentEvents';
import { AgentStacks } from './AgentStacks';
import styles from './Agent.module.css';

const AgentActs = lazyPart(() => import('./AgentActs'));

const say = words.agent;
/** An agent can report many changes at once. */
const READ_MS = 2_000;

export function Agent() {
  const { agent } = useParams({ from: '/shell/agents/$agent' });
  return <Body key={agent} agent={agent} />;
}

function Body({ agent }: { agent: string }) {
  const { tab = 'stacks' } = useSearch({ from: '/shell/agents/$agent' });
  const query = useQuery(agentQuery(agent));
  const why = useQuery(agentWhyQuery(agent));
  const queries = useQueryClient();
  const isKnown = query.data !== undefined;
  useEffect(() => {
    if (isKnown) remember('agent', agent);
  }, [isKnown, agent]);
  const [readAgain] = useState(() =>
    throttle(() => {
      for (const queryKey of [eventsKey({ agent }), agentStacksKey(agent), agentWhyKey(agent)]) {
        void queries.invalidateQueries({ queryKey }, { cancelRefetch: false });
      }
    }, READ_MS),
  );
  // A message only says that there is something to read.
  useStream(apiPath('/api/v1/events/stream', {}, { agent }), readAgain);
  const isSilent = query.data?.presence === 'silent';
  return (
    <Page title={agent} facts={query.data && <AgentFacts agent={query.data} />} view={views.agent(agent)}>
      <div className={isSilent ? styles.silent : styles.body}>
        <Loaded query={query} lines={1}>
          {(data) => <Notice agent={data} />}
        </Loaded>
        <Loaded query={why} lines={2}>
          {(data) => <Verdict why={data} />}
        </Loaded>
        <Tabs label={words.tabs} tabs={say.tabs} current={tab} />
        {tab === 'stacks' && <AgentStacks agent={agent} />}
        {tab === 'events' && <AgentEvents agent={agent} />}
        {tab === 'details' && (
          <Loaded query={query}>
            {(data) => (
              <>
                <AgentActs agent={data} />
                <AgentDetails agent={data} why={why.data} />
              </>
            )}
          </Loaded>
        )}
      </div>
    </Page>
  );
}

function AgentFacts({ agent }: { agent: AgentData }) {
  return (
    <>
      <PresenceMark presence={agent.presence} />
      {agent.last_seen_at != null && <Age at={agent.last_seen_at} />}
      <span>{agent.status}</span>
      {agent.version != null && <span>{agent.version}</span>}
      <span>{labels(agent.labels)}</span>
    </>
  );
}

/** Says what the data is worth: from a silent agent it is old, from one that never connected there is none. */
function Notice({ agent }: { agent: AgentData }) {
  if (agent.presence === 'silent' && agent.last_seen_at != null) {
    return <p className={styles.notice}>{say.asOf(dateTime(agent.last_seen_at))}</p>;
  }
  if (agent.presence !== 'never') return null;
  return (
    <div className={styles.notice}>
      <p>{say.neverSeen}</p>
      <Command line={say.neverSeenCommand} />
    </div>
  );
}

/** The problem of the agent itself, then how many of its stacks are not in sync. */
function Verdict({ why }: { why: AgentWhy }) {
  const { broken, stacks, affected_stacks: all } = why;
  return (
    <>
      {broken != null && (
        <div className={styles.broken}>
          <p>
            <strong>{broken.message}</strong>
          </p>
          {broken.next && <p>{words.why.next(broken.next)}</p>}
          {broken.command && <Command line={broken.command.line} />}
        </div>
      )}
      {all > 0 && <p>{say.problems(number(stacks.length), number(all))}</p>}
    </>
  );
}
