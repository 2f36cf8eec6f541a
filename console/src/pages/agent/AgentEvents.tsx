// What the agent reported, newest first.

import { useInfiniteQuery } from '@tanstack/react-query';

import { eventsQuery } from '../../api/queries';
import { words } from '../../words';
import { EventList } from '../EventList';

export function AgentEvents({ agent }: { agent: string }) {
  const query = useInfiniteQuery(eventsQuery({ agent }));
  return <EventList query={query} label={words.agent.tabs.events} empty={words.agent.noEvents} />;
}
