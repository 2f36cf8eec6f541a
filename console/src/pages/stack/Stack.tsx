// A stack: what runs where, what fails, its versions and targets.

import { useQuery } from '@tanstack/react-query';
import { useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { useEffect } from 'react';

import { stackQuery, summaryQuery, type StatusFilter } from '../../api/queries';
import type { Stack as StackData } from '../../api/types';
import type { StackSearch } from '../../app/searches';
import { dateTime, labels } from '../../lib/format';
import { useShortcuts } from '../../lib/keys';
import { remember } from '../../lib/recents';
import { views, type View } from '../../lib/views';
import { Loaded } from '../../ui/Loaded';
import { Page } from '../../ui/Page';
import { Tabs } from '../../ui/Tabs';
import { words } from '../../words';
import { Counts } from './Counts';
import { DiffTab } from './DiffTab';
import { ErrorsTab } from './ErrorsTab';
import { Notices } from './Notices';
import { RolloutsTab } from './RolloutsTab';
import { StackActs } from './StackActs';
import { StatusTab } from './StatusTab';
import { TargetsTab } from './TargetsTab';
import { VersionsTab } from './VersionsTab';

const say = words.stack;

export function Stack() {
  const { stack } = useParams({ from: '/shell/stacks/$stack' });
  return <Body key={stack} stack={stack} />;
}

function Body({ stack }: { stack: string }) {
  const search = useSearch({ from: '/shell/stacks/$stack' });
  const tab = search.tab ?? 'agents';
  const query = useQuery(stackQuery(stack));
  const summary = useQuery(summaryQuery(stack));
  const navigate = useNavigate();
  const isKnown = query.data !== undefined;
  useEffect(() => {
    if (isKnown) remember('stack', stack);
  }, [isKnown, stack]);
  useShortcuts([
    {
      keys: 'd',
      label: words.keys.diff,
      run: () => void navigate({ to: '/stacks/$stack', params: { stack }, search: { tab: 'diff' } }),
    },
  ]);
  return (
    <Page title={stack} facts={query.data && <StackFacts stack={query.data} />} view={viewOf(stack, search)}>
      {query.data && <StackActs stack={query.data} />}
      {query.data && <Notices stack={query.data} summary={summary.data} />}
      <Loaded query={summary} lines={2}>
        {(data) => <Counts summary={data} state={search.state} />}
      </Loaded>
      <Tabs label={words.tabs} tabs={say.tabs} current={tab} />
      {tab === 'agents' && (
        <StatusTab stack={stack} targeted={summary.data?.targeted} filter={filterOf(search)} />
      )}
      {tab === 'versions' && <VersionsTab stack={stack} isDeleted={query.data?.deleted_at != null} summary={summary.data} />}
      {tab === 'errors' && <ErrorsTab stack={stack} />}
      {tab === 'diff' && <DiffTab stack={stack} from={search.from} to={search.to} />}
      {tab === 'targets' && <Loaded query={query}>{(data) => <TargetsTab stack={data} />}</Loaded>}
      {tab === 'rollouts' && <RolloutsTab stack={stack} />}
    </Page>
  );
}

function StackFacts({ stack }: { stack: StackData }) {
  return (
    <>
      {stack.sequence_id != null && <span>{say.version(stack.sequence_id)}</span>}
      {stack.deleted_at != null && <span>{say.deleted(dateTime(stack.deleted_at))}</span>}
      <span>{labels(stack.labels)}</span>
    </>
  );
}

/** Returns the same view for the command line and curl. */
function viewOf(stack: string, search: StackSearch): View {
  const { tab, from, to } = search;
  switch (tab) {
    case 'versions':
      return views.versions(stack);
    case 'errors':
      return views.stackErrors(stack);
    case 'diff':
      return from !== undefined && to !== undefined ? views.diff(stack, from, to) : views.stack(stack);
    case 'targets':
      return views.stack(stack);
    case 'rollouts':
      return views.rollouts(stack);
    default:
      return views.status(stack, filterOf(search));
  }
}

function filterOf({ state, selector, error, presence, behind, sort }: StackSearch): StatusFilter {
  return { state, selector, error, presence, behind, sort };
}
