// Whether all is well, and where not: the fleet in numbers and as a matrix, what fails now, and rollouts in progress.

import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useSearch } from '@tanstack/react-router';

import { fleetSummaryQuery } from '../api/fleet';
import { errorsQuery, rolloutsQuery } from '../api/queries';
import { rowsOf } from '../lib/pages';
import { views } from '../lib/views';
import { ErrorGroups } from '../ui/ErrorGroups';
import { Loaded } from '../ui/Loaded';
import { Page, Section } from '../ui/Page';
import { words } from '../words';
import { FleetCounts } from './fleet/FleetCounts';
import { FleetMatrix } from './fleet/FleetMatrix';
import { RolloutLines } from './RolloutLines';

const say = words.fleet;

export function Fleet() {
  const { by, selector } = useSearch({ from: '/shell/' });
  const summary = useQuery(fleetSummaryQuery());
  const errors = useInfiniteQuery(errorsQuery());
  const rollouts = useInfiniteQuery(rolloutsQuery({ active: true }));
  return (
    <Page title={say.title} view={views.fleet({ by, selector })}>
      <Loaded query={summary} lines={1}>
        {(data) => <FleetCounts summary={data} />}
      </Loaded>
      <FleetMatrix by={by} selector={selector} />
      <Section title={say.errors}>
        <Loaded query={errors} lines={3}>
          {(data) => {
            const groups = rowsOf(data);
            return groups.length === 0 ? <p>{say.calm}</p> : <ErrorGroups groups={groups} />;
          }}
        </Loaded>
      </Section>
      <Section title={say.rollouts}>
        <Loaded query={rollouts} lines={2}>
          {(data) => {
            const open = rowsOf(data);
            return open.length === 0 ? <p>{say.noRollouts}</p> : <RolloutLines rollouts={open} />;
          }}
        </Loaded>
      </Section>
    </Page>
  );
}
