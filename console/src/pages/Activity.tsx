// Who did what, and what came of it: submissions of a stack, and what agents reported, folded.

import { keepPreviousData, useInfiniteQuery } from '@tanstack/react-query';
import { Link, useNavigate, useSearch } from '@tanstack/react-router';

import { eventsQuery, versionsQuery } from '../api/queries';
import type { State } from '../api/types';
import type { EventsSearch } from '../app/searches';
import { useWhyPanel } from '../app/useWhyPanel';
import { fold, withSubmissions, type Activity as Line } from '../lib/activity';
import { dateTime, explained, number, timeBeside } from '../lib/format';
import { rowsOf } from '../lib/pages';
import { views } from '../lib/views';
import { Grid, type Column } from '../ui/Grid';
import { Foot } from '../ui/List';
import { Loaded } from '../ui/Loaded';
import { Page } from '../ui/Page';
import { Empty } from '../ui/Problem';
import { Mark, StateMark } from '../ui/StateMark';
import { words } from '../words';
import { Download, EventFilters } from './EventFilters';
import lists from './lists.module.css';

const say = words.activity;

const columns: readonly Column<Line>[] = [
  { name: words.columns.time, cell: ({ from, at }) => say.time(dateTime(from), from === at ? dateTime(at) : timeBeside(at, from)) },
  {
    name: words.columns.stack,
    cell: ({ stack }) => (
      <Link to="/stacks/$stack" params={{ stack }} tabIndex={-1}>
        {stack}
      </Link>
    ),
  },
  { name: words.columns.version, isNumber: true, cell: ({ version }) => version },
  { name: words.columns.event, cell: whatHappened },
  { name: say.agents, isNumber: true, cell: (line) => (line.kind === 'submitted' ? '' : number(line.agents.size)) },
  { name: words.columns.message, cell: messageOf },
];

function whatHappened(line: Line) {
  if (line.kind === 'submitted') {
    return (
      <Mark tone="busy" glyph="▲">
        {line.submission.is_deletion_marker ? say.deleted : say.submitted}
      </Mark>
    );
  }
  const { transition } = line;
  return transition in words.states ? <StateMark state={transition as State} /> : transition;
}

function messageOf(line: Line): string {
  if (line.kind === 'submitted') return say.by(line.submission.submitted_by, line.submission.message ?? '');
  return explained(line.newest.reason, line.newest.message);
}

export function Activity() {
  const { stack, agent, version, transition, since, until } = useSearch({ from: '/shell/activity' });
  const filter = { stack, agent, version, transition, since, until };
  const query = useInfiniteQuery({ ...eventsQuery(filter), placeholderData: keepPreviousData });
  // Only the history of one stack can be read, and an agent or an event submits nothing.
  const hasSubmissions = stack !== undefined && agent === undefined && transition === undefined;
  const versions = useInfiniteQuery({ ...versionsQuery(stack ?? ''), enabled: hasSubmissions });
  const facts = (
    <>
      <span>{say.folded}</span>
      <Link to="/events" search={filter}>
        {say.all}
      </Link>
      <Download filter={filter} />
    </>
  );
  return (
    <Page title={say.title} facts={facts} view={views.events(filter)}>
      <EventFilters filter={filter} />
      <Loaded query={query}>
        {(data) => {
          const events = rowsOf(data);
          const submitted = hasSubmissions ? rowsOf(versions.data) : [];
          const wanted = submitted.filter((one) => version === undefined || one.sequence_id === version);
          const span = { hasStart: query.hasNextPage || since !== undefined, hasEnd: until !== undefined };
          const lines = withSubmissions(fold(events), stack ?? '', wanted, span);
          if (lines.length === 0) return <Empty text={say.empty} />;
          return (
            <>
              <Lines lines={lines} filter={filter} isOld={query.isPlaceholderData} />
              <span>{say.loaded(number(events.length))}</span>
              <Foot query={query} shown={lines.length} total={query.hasNextPage ? undefined : lines.length} />
            </>
          );
        }}
      </Loaded>
    </Page>
  );
}

interface LinesProps {
  lines: readonly Line[];
  filter: EventsSearch;
  isOld: boolean;
}

/** A line opens its events, or the changes of a submission; `y` explains the newest report. */
function Lines({ lines, filter, isOld }: LinesProps) {
  const navigate = useNavigate();
  const panel = useWhyPanel();
  const open = (line: Line) => {
    const { stack, version } = line;
    if (line.kind === 'submitted') {
      void navigate({ to: '/stacks/$stack', params: { stack }, search: { tab: 'versions' } });
      return;
    }
    const transition = line.transition as EventsSearch['transition'];
    void navigate({ to: '/events', search: { ...filter, stack, version, transition } });
  };
  return (
    <Grid
      label={say.title}
      className={lists.activity}
      columns={columns}
      rows={lines}
      isOld={isOld}
      rowKey={(line) => line.key}
      onOpen={open}
      onWhy={(line) => line.kind === 'reported' && panel.open(line.stack, line.newest.agent_name)}
    />
  );
}
