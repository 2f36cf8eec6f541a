// How many agents an act reaches, and which: the number, and the names of some.

import { useQuery } from '@tanstack/react-query';

import { agentReachQuery, reachQuery, type ReachFilter } from '../api/acts';
import { summaryQuery } from '../api/queries';
import { number } from '../lib/format';
import { words } from '../words';
import styles from './Act.module.css';
import { Part } from './Act';
import { Loaded } from './Loaded';

const say = words.acts.reach;

/** The agents that a stack targets, or that have it. */
export function StackReach({ stack, count = 'targeted' }: { stack: string; count?: 'targeted' | 'holding' }) {
  const summary = useQuery(summaryQuery(stack));
  const reach = useQuery(reachQuery(stack, {}));
  return (
    <Loaded query={summary} lines={1}>
      {(data) => (
        <Reached
          text={(count === 'holding' ? say.holding : say.all)(number(data[count]))}
          count={data[count]}
          names={reach.data?.[count] ?? []}
        />
      )}
    </Loaded>
  );
}

interface ScopeProps {
  stack: string;
  /** Only this agent; without it and a selector, all agents of the stack. */
  agent?: string | undefined;
  selector?: string | undefined;
}

/** The agents that a suspension is for. */
export function ScopeReach({ stack, agent, selector }: ScopeProps) {
  if (agent !== undefined) return <AgentReach stack={stack} agent={agent} />;
  if (selector !== undefined) return <FilteredReach stack={stack} filter={{ selector }} />;
  return <StackReach stack={stack} />;
}

function AgentReach({ stack, agent }: { stack: string; agent: string }) {
  const reach = useQuery(agentReachQuery(stack, agent));
  return (
    <Loaded query={reach} lines={1}>
      {(names) => <Reached text={say.all(number(names.length))} count={names.length} names={names} />}
    </Loaded>
  );
}

/** The agents of a stack that a filter selects. */
function FilteredReach({ stack, filter }: { stack: string; filter: ReachFilter }) {
  const reach = useQuery(reachQuery(stack, filter));
  return (
    <Loaded query={reach} lines={1}>
      {({ agents, names }) => <Reached text={say.all(number(agents))} count={agents} names={names} />}
    </Loaded>
  );
}

/** The number of what is reached, and the names of some. */
export function Reached({ text, count, names }: { text: string; count: number; names: readonly string[] }) {
  const shown = names.slice(0, count);
  const more = count > shown.length && shown.length > 0 ? number(count - shown.length) : undefined;
  return (
    <Part>
      <strong>{text}</strong>
      {shown.length > 0 && <span className={styles.soft}>{say.names(shown.join(', '), more)}</span>}
    </Part>
  );
}
