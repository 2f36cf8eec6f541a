// What the agent has and should have, and why. Stacks with problems come first.

import { useInfiniteQuery } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';

import { agentStacksQuery } from '../../api/fleet';
import type { AgentStack } from '../../api/types';
import { useWhyPanel } from '../../app/useWhyPanel';
import { conditions } from '../../lib/conditions';
import { explained, orDash } from '../../lib/format';
import { rowsOf } from '../../lib/pages';
import { Grid, type Column } from '../../ui/Grid';
import { Loaded } from '../../ui/Loaded';
import { Empty } from '../../ui/Problem';
import { StateMark } from '../../ui/StateMark';
import { words } from '../../words';
import lists from '../lists.module.css';

const say = words.agent;

const columns: readonly Column<AgentStack>[] = [
  {
    name: words.columns.stack,
    cell: ({ status: { stack_name: stack } }) => (
      <Link to="/stacks/$stack" params={{ stack }} tabIndex={-1}>
        {stack}
      </Link>
    ),
  },
  { name: words.columns.state, cell: ({ status }) => <StateMark state={status.state} /> },
  {
    name: words.columns.hasWants,
    isNumber: true,
    cell: ({ status: { sequence_id: has, wanted_sequence_id: wants } }) => `${orDash(has)} / ${orDash(wants)}`,
  },
  { name: words.columns.because, cell: because },
  { name: words.columns.conditions, cell: ({ status }) => conditions(status).join(', ') },
  { name: words.columns.message, cell: ({ status }) => explained(status.reason, status.message) },
];

const CALM = new Set(['healthy', 'removed']);

export function AgentStacks({ agent }: { agent: string }) {
  const query = useInfiniteQuery(agentStacksQuery(agent));
  const navigate = useNavigate();
  const panel = useWhyPanel();
  return (
    <Loaded query={query}>
      {(data) => {
        const isWrong = ({ status }: AgentStack) => Number(!CALM.has(status.state));
        const rows = rowsOf(data).toSorted((one, other) => isWrong(other) - isWrong(one));
        if (rows.length === 0) return <Empty text={say.noStacks} command={say.noStacksCommand(agent)} />;
        return (
          <Grid
            label={say.tabs.stacks}
            className={lists.agentStacks}
            columns={columns}
            rows={rows}
            rowKey={({ status }) => status.stack_id}
            onOpen={({ status: { stack_name: stack } }) =>
              void navigate({ to: '/stacks/$stack/agents/$agent', params: { stack, agent } })
            }
            onWhy={({ status }) => panel.open(status.stack_name, agent)}
          />
        );
      }}
    </Loaded>
  );
}

function because({ because: reasons }: AgentStack): string {
  if (reasons.length === 0) return say.notTargeted;
  return reasons.map((why) => (why.kind === 'selector' ? say.selector(why.selector) : say.explicit)).join('; ');
}
