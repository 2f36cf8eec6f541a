// What agents reported, newest first.

import { keepPreviousData, useInfiniteQuery } from '@tanstack/react-query';
import { Link, useSearch } from '@tanstack/react-router';

import { eventsQuery } from '../api/queries';
import { views } from '../lib/views';
import { Page } from '../ui/Page';
import { words } from '../words';
import { Download, EventFilters } from './EventFilters';
import { EventList } from './EventList';

const say = words.events;

export function Events() {
  const { stack, agent, version, transition, since, until } = useSearch({ from: '/shell/events' });
  const filter = { stack, agent, version, transition, since, until };
  const query = useInfiniteQuery({ ...eventsQuery(filter), placeholderData: keepPreviousData });
  const facts = (
    <>
      <Link to="/activity" search={filter}>
        {words.activity.folds}
      </Link>
      <Download filter={filter} />
    </>
  );
  return (
    <Page title={say.title} facts={facts} view={views.events(filter)}>
      <EventFilters filter={filter} />
      <EventList query={query} label={say.title} empty={say.empty} />
    </Page>
  );
}
