// What happened, folded: many agents that report the same about a version of a stack are one line.

import type { DeploymentObject, Event } from '../api/types';

export interface Submission {
  kind: 'submitted';
  key: string;
  stack: string;
  version: number;
  from: string;
  at: string;
  submission: DeploymentObject;
}

export interface Fold {
  kind: 'reported';
  key: string;
  stack: string;
  version: number;
  transition: string;
  /** The first and last report. */
  from: string;
  at: string;
  agents: ReadonlySet<string>;
  events: number;
  /** The newest report. */
  newest: Event;
}

export type Activity = Submission | Fold;

/** Reports with a longer pause between them are two lines. */
const PAUSE_MS = 3_600_000;

/** Folds events, which are sorted from new to old, by stack, version and transition. */
export function fold(events: readonly Event[]): Fold[] {
  const folds: Fold[] = [];
  const open = new Map<string, { fold: Fold; agents: Set<string> }>();
  for (const event of events) {
    const { stack_id: id, stack_name: stack, sequence_id: version, transition, at, agent_name: agent } = event;
    const key = `${id}/${version}/${transition}`;
    const known = open.get(key);
    if (known !== undefined && Date.parse(known.fold.from) - Date.parse(at) <= PAUSE_MS) {
      known.agents.add(agent);
      known.fold.from = at;
      known.fold.events += 1;
      continue;
    }
    const agents = new Set([agent]);
    const line: Fold = {
      kind: 'reported',
      key: `${key}/${event.id}`,
      stack,
      version,
      transition,
      from: at,
      at,
      agents,
      events: 1,
      newest: event,
    };
    open.set(key, { fold: line, agents });
    folds.push(line);
  }
  return folds;
}

/** What limits the submissions that belong to the events. */
export interface Span {
  /** Whether there are older events, or the filter excludes them. */
  hasStart: boolean;
  hasEnd: boolean;
}

/** Adds the versions of a stack that were submitted in the time of the events; sorted from new to old. */
export function withSubmissions(
  folds: readonly Fold[],
  stack: string,
  versions: readonly DeploymentObject[],
  { hasStart, hasEnd }: Span,
): Activity[] {
  const [newest] = folds;
  const start = folds.reduce((first, { from }) => (from < first ? from : first), newest?.from ?? '');
  const isWithin = (at: string) => (!hasStart || at >= start) && (!hasEnd || at <= (newest?.at ?? ''));
  const submissions = versions
    .filter((version) => isWithin(version.created_at))
    .map((submission): Submission => {
      const { sequence_id: version, created_at: at } = submission;
      return { kind: 'submitted', key: `submitted/${version}`, stack, version, at, from: at, submission };
    });
  return [...folds, ...submissions].toSorted((one, other) => Date.parse(other.at) - Date.parse(one.at));
}
