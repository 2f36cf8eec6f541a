// The stack on each agent.

import { keepPreviousData, useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';

import { statusQuery, type StatusFilter } from '../../api/queries';
import type { StackStatus } from '../../api/types';
import { useStream } from '../../app/liveState';
import { useWhyPanel } from '../../app/useWhyPanel';
import { conditions } from '../../lib/conditions';
import { explained, orDash } from '../../lib/format';
import { apiPath } from '../../lib/views';
import { Filters } from '../../ui/Filters';
import type { Column } from '../../ui/Grid';
import { List } from '../../ui/List';
import { StateMark } from '../../ui/StateMark';
import { words } from '../../words';
import lists from '../lists.module.css';
import { applyStatus } from './applyStatus';

const say = words.stack;

const columns: readonly Column<StackStatus>[] = [
  {
    name: words.columns.agent,
    cell: ({ agent_name: agent }) => (
      <Link to="/agents/$agent" params={{ agent }} tabIndex={-1}>
        {agent}
      </Link>
    ),
  },
  { name: words.columns.state, cell: ({ state }) => <StateMark state={state} /> },
  {
    name: words.columns.hasWants,
    isNumber: true,
    cell: ({ sequence_id: has, wanted_sequence_id: wants }) => `${orDash(has)} / ${orDash(wants)}`,
  },
  { name: words.columns.ready, isNumber: true, cell: ({ ready, total }) => `${ready}/${total}` },
  { name: words.columns.conditions, cell: (row) => conditions(row).join(', ') },
  { name: words.columns.message, cell: ({ reason, message }) => explained(reason, message) },
];

/** Above this, a stream of rows is more than a person can follow; the list is read again from time to time. */
const MOST_STREAMED = 1_000;

interface Props {
  stack: string;
  /** The number of targeted agents, once known. */
  targeted: number | undefined;
  filter: StatusFilter;
}

export function StatusTab({ stack, targeted, filter }: Props) {
  const query = useInfiniteQuery({ ...statusQuery(stack, filter), placeholderData: keepPreviousData });
  const queries = useQueryClient();
  const navigate = useNavigate();
  const panel = useWhyPanel();
  const isStreamed = targeted !== undefined && targeted < MOST_STREAMED;
  const stream = isStreamed ? apiPath('/api/v1/stacks/{stack}/status/stream', { stack }) : undefined;
  useStream(stream, (message) => applyStatus(queries, stack, message));
  const { state, selector, error, presence, behind, sort } = filter;
  const isFiltered = [state, selector, error, presence, behind].some((value) => value !== undefined);
  const labels = words.filters;
  return (
    <>
      <Filters
        filters={[
          { kind: 'choice', name: 'state', label: labels.state, choices: words.states, value: state },
          { kind: 'text', name: 'selector', label: labels.selector, hint: labels.selectorHint, value: selector },
          { kind: 'text', name: 'error', label: labels.error, hint: labels.errorHint, value: error },
          { kind: 'choice', name: 'presence', label: labels.presence, choices: words.presences, value: presence },
          { kind: 'choice', name: 'behind', label: labels.behind, choices: labels.behindChoices, value: behind && 'true' },
          { kind: 'choice', name: 'sort', label: labels.sort, choices: labels.sorts, none: labels.byName, value: sort },
        ]}
      />
      <List
        query={query}
        label={say.tabs.agents}
        className={lists.status}
        columns={columns}
        rowKey={(row) => row.agent_id}
        onOpen={({ agent_name: agent }) =>
          void navigate({ to: '/stacks/$stack/agents/$agent', params: { stack, agent } })
        }
        onWhy={(row) => panel.open(stack, row.agent_name)}
        empty={
          isFiltered
            ? { text: say.emptyFiltered }
            : { text: say.emptyStatus, command: say.emptyStatusCommand(stack) }
        }
      />
    </>
  );
}
