// All agents.

import { keepPreviousData, useInfiniteQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';

import { agentsQuery } from '../api/queries';
import type { Agent } from '../api/types';
import { labels, orDash } from '../lib/format';
import { views } from '../lib/views';
import { Age } from '../ui/Age';
import { Filters } from '../ui/Filters';
import type { Column } from '../ui/Grid';
import { List } from '../ui/List';
import { Page } from '../ui/Page';
import { PresenceMark } from '../ui/StateMark';
import { words } from '../words';
import styles from './lists.module.css';

const say = words.agents;

const columns: readonly Column<Agent>[] = [
  {
    name: words.columns.agent,
    cell: ({ name }) => (
      <Link to="/agents/$agent" params={{ agent: name }} tabIndex={-1}>
        {name}
      </Link>
    ),
  },
  { name: words.columns.presence, cell: ({ presence }) => <PresenceMark presence={presence} /> },
  { name: words.columns.status, cell: ({ status }) => status },
  { name: words.columns.labels, cell: (agent) => orDash(labels(agent.labels)) },
  { name: words.columns.lastSeen, cell: ({ last_seen_at: at }) => (at == null ? say.never : <Age at={at} />) },
  { name: words.columns.version, cell: ({ version }) => orDash(version) },
];

export function Agents() {
  const { name, selector, presence } = useSearch({ from: '/shell/agents' });
  const filter = { name, selector, presence };
  const query = useInfiniteQuery({ ...agentsQuery(filter), placeholderData: keepPreviousData });
  const navigate = useNavigate();
  const isFiltered = Object.values(filter).some((value) => value !== undefined);
  return (
    <Page title={say.title} view={views.agents(filter)}>
      <Filters
        filters={[
          { kind: 'text', name: 'name', label: words.filters.name, value: name },
          { kind: 'text', name: 'selector', label: words.filters.selector, hint: words.filters.selectorHint, value: selector },
          { kind: 'choice', name: 'presence', label: words.filters.presence, choices: words.presences, value: presence },
        ]}
      />
      <List
        query={query}
        label={say.title}
        className={styles.agents}
        columns={columns}
        rowKey={(agent) => agent.id}
        onOpen={(agent) => void navigate({ to: '/agents/$agent', params: { agent: agent.name } })}
        empty={isFiltered ? { text: say.emptyFiltered } : { text: say.empty, command: say.emptyCommand }}
      />
    </Page>
  );
}
