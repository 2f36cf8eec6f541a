// All stacks.

import { keepPreviousData, useInfiniteQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';

import { stacksQuery } from '../api/queries';
import type { Stack } from '../api/types';
import { labels, orDash } from '../lib/format';
import { views } from '../lib/views';
import { Age } from '../ui/Age';
import { Filters } from '../ui/Filters';
import type { Column } from '../ui/Grid';
import { List } from '../ui/List';
import { Page } from '../ui/Page';
import { words } from '../words';
import styles from './lists.module.css';

const say = words.stacks;

const columns: readonly Column<Stack>[] = [
  {
    name: words.columns.stack,
    cell: ({ name }) => (
      <Link to="/stacks/$stack" params={{ stack: name }} tabIndex={-1}>
        {name}
      </Link>
    ),
  },
  { name: words.columns.version, isNumber: true, cell: ({ sequence_id: version }) => orDash(version) },
  { name: words.columns.targets, cell: targets },
  { name: words.columns.labels, cell: (stack) => orDash(labels(stack.labels)) },
  { name: words.columns.created, cell: ({ created_at: at }) => <Age at={at} /> },
];

export function Stacks() {
  const { name, selector } = useSearch({ from: '/shell/stacks' });
  const query = useInfiniteQuery({ ...stacksQuery({ name, selector }), placeholderData: keepPreviousData });
  const navigate = useNavigate();
  const isFiltered = name !== undefined || selector !== undefined;
  return (
    <Page title={say.title} view={views.stacks({ name, selector })}>
      <Filters
        filters={[
          { kind: 'text', name: 'name', label: words.filters.name, value: name },
          { kind: 'text', name: 'selector', label: words.filters.selector, hint: words.filters.selectorHint, value: selector },
        ]}
      />
      <List
        query={query}
        label={say.title}
        className={styles.stacks}
        columns={columns}
        rowKey={(stack) => stack.id}
        onOpen={(stack) => void navigate({ to: '/stacks/$stack', params: { stack: stack.name } })}
        empty={isFiltered ? { text: say.emptyFiltered } : { text: say.empty, command: say.emptyCommand }}
      />
    </Page>
  );
}

function targets({ targets: { selectors = [], agents = [] } }: Stack): string {
  return [...selectors, ...agents].join('; ') || say.noTargets;
}
