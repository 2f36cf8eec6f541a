// Events that agents reported.

import type { InfiniteData, UseInfiniteQueryResult } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';

import type { Event, Page, State } from '../api/types';
import { useWhyPanel } from '../app/useWhyPanel';
import { explained } from '../lib/format';
import { Age } from '../ui/Age';
import type { Column } from '../ui/Grid';
import { List } from '../ui/List';
import { StateMark } from '../ui/StateMark';
import { words } from '../words';
import lists from './lists.module.css';

const columns: readonly Column<Event>[] = [
  { name: words.columns.time, cell: ({ at }) => <Age at={at} /> },
  {
    name: words.columns.stack,
    cell: ({ stack_name: stack }) => (
      <Link to="/stacks/$stack" params={{ stack }} tabIndex={-1}>
        {stack}
      </Link>
    ),
  },
  {
    name: words.columns.agent,
    cell: ({ agent_name: agent }) => (
      <Link to="/agents/$agent" params={{ agent }} tabIndex={-1}>
        {agent}
      </Link>
    ),
  },
  { name: words.columns.version, isNumber: true, cell: ({ sequence_id: version }) => version },
  { name: words.columns.event, cell: transition },
  { name: words.columns.message, cell: ({ reason, message }) => explained(reason, message) },
];

interface Props {
  query: UseInfiniteQueryResult<InfiniteData<Page<Event>>>;
  label: string;
  empty: string;
}

export function EventList({ query, label, empty }: Props) {
  const navigate = useNavigate();
  const panel = useWhyPanel();
  return (
    <List
      query={query}
      label={label}
      className={lists.events}
      columns={columns}
      rowKey={(event) => event.id}
      onOpen={({ stack_name: stack, agent_name: agent }) =>
        void navigate({ to: '/stacks/$stack/agents/$agent', params: { stack, agent } })
      }
      onWhy={(event) => panel.open(event.stack_name, event.agent_name)}
      empty={{ text: empty }}
    />
  );
}

/** Most transitions lead to a state of the same name; others, such as `repaired`, have no mark. */
function transition({ transition: name }: Event) {
  return name in words.states ? <StateMark state={name as State} /> : name;
}
