// The versions of a stack, newest first, and how many agents have each.

import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { lazy } from 'react';

import { barredQuery } from '../../api/acts';
import { rolloutsQuery, versionsQuery } from '../../api/queries';
import type { DeploymentObject, StackSummary } from '../../api/types';
import { number, orDash, shortId } from '../../lib/format';
import { loading } from '../../lib/load';
import { rowsOf } from '../../lib/pages';
import { obstacle } from '../../lib/rollBack';
import { ActButton } from '../../ui/Act';
import { Age } from '../../ui/Age';
import type { Column } from '../../ui/Grid';
import { List } from '../../ui/List';
import { words } from '../../words';
import lists from '../lists.module.css';
import { Barred } from './Barred';

const RollBack = lazy(loading(() => import('./acts/RollBack')));

const say = words.stack;

type Before = (version: number) => number | undefined;

interface Context {
  stack: string;
  summary: StackSummary | undefined;
  before: Before;
  /** Returns why a version cannot be restored. */
  against: (version: DeploymentObject) => string | undefined;
}

const columnsOf = ({ stack, summary, before, against }: Context): Column<DeploymentObject>[] => [
  { name: words.columns.version, isNumber: true, cell: ({ sequence_id: version }) => version },
  { name: words.columns.created, cell: ({ created_at: at }) => <Age at={at} /> },
  { name: words.columns.by, cell: ({ submitted_by: by }) => by },
  { name: say.agentsAt, isNumber: true, cell: ({ sequence_id: version }) => agentsAt(summary, version) },
  { name: words.columns.message, cell: messageOf },
  { name: words.columns.checksum, cell: ({ checksum }) => <code title={checksum}>{shortId(checksum)}</code> },
  {
    name: say.tabs.diff,
    cell: ({ sequence_id: to }) => <Compare stack={stack} from={before(to)} to={to} />,
  },
  {
    name: words.adminActs.column,
    cell: (version, isCurrent) => (
      <ActButton
        name={words.acts.rollBack.name}
        label={words.acts.rollBack.label(version.sequence_id)}
        needs="deployer"
        isInCurrentRow={isCurrent}
        disabledReason={against(version)}
      >
        {(close) => <RollBack stack={stack} version={version.sequence_id} onClose={close} />}
      </ActButton>
    ),
  },
];

function Compare({ stack, from, to }: { stack: string; from: number | undefined; to: number }) {
  if (from === undefined) return orDash(from);
  return (
    <Link
      to="/stacks/$stack"
      params={{ stack }}
      search={{ tab: 'diff', from, to }}
      tabIndex={-1}
      aria-label={say.compare(from, to)}
    >
      {`${from}..${to}`}
    </Link>
  );
}

interface Props {
  stack: string;
  isDeleted: boolean;
  summary: StackSummary | undefined;
}

export function VersionsTab({ stack, isDeleted, summary }: Props) {
  const query = useInfiniteQuery(versionsQuery(stack));
  const { data: barred } = useQuery(barredQuery(stack));
  const { data: rollouts } = useInfiniteQuery(rolloutsQuery({ stack }));
  const navigate = useNavigate();
  const rows = rowsOf(query.data);
  const versions = rows.map((version) => version.sequence_id);
  const history = { versions: rows, barred: barred?.items ?? [], rollouts: rowsOf(rollouts) };
  const against = (version: DeploymentObject) => {
    if (isDeleted) return words.acts.deletedStack;
    const found = obstacle(version, history);
    return found && words.acts.rollBack.obstacles[found];
  };
  const before: Before = (version) => versions[versions.indexOf(version) + 1];
  return (
    <>
      <Barred stack={stack} />
      <List
        query={query}
        label={say.tabs.versions}
        className={lists.versions}
        columns={columnsOf({ stack, summary, before, against })}
        rowKey={(version) => String(version.sequence_id)}
        onOpen={({ sequence_id: to }) => {
          const from = before(to);
          if (from === undefined) return;
          void navigate({ to: '/stacks/$stack', params: { stack }, search: { tab: 'diff', from, to } });
        }}
        empty={{ text: say.emptyVersions, command: say.emptyVersionsCommand(stack) }}
      />
    </>
  );
}

/** The summary has the counts of at most this many versions. */
const MOST_COUNTED = 20;

/** Returns the number of agents with a last report about the version, if it is known. */
function agentsAt(summary: StackSummary | undefined, version: number): string {
  const counts = summary?.sequences.find((one) => one.sequence_id === version);
  if (summary === undefined || (counts === undefined && summary.sequences.length >= MOST_COUNTED)) return orDash(undefined);
  if (counts === undefined) return number(0);
  const { applied, healthy, degraded, failed, blocked, removed, unknown = 0 } = counts;
  return number(applied + healthy + degraded + failed + blocked + removed + unknown);
}

function messageOf({ message, commit, is_deletion_marker: isDeletion }: DeploymentObject): string {
  const parts = [isDeletion ? say.deletionMarker : '', message, commit && say.commit(shortId(commit))];
  return parts.filter(Boolean).join(' · ');
}
