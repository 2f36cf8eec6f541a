// The filters of events, which the activity shares, and the download.

import { useMutation } from '@tanstack/react-query';

import { MOST_ROWS } from '../api/list';
import { readEvents, type EventFilter } from '../api/queries';
import { csv, download } from '../lib/csv';
import { number } from '../lib/format';
import { Button } from '../ui/Button';
import { Filters } from '../ui/Filters';
import { Problem } from '../ui/Problem';
import { words } from '../words';

const say = words.events;

export function EventFilters({ filter }: { filter: EventFilter }) {
  return (
    <Filters
      filters={[
        { kind: 'text', name: 'stack', label: say.filterStack, value: filter.stack },
        { kind: 'text', name: 'agent', label: say.filterAgent, value: filter.agent },
        { kind: 'text', name: 'version', label: say.filterVersion, value: filter.version?.toString() },
        {
          kind: 'choice',
          name: 'transition',
          label: say.filterEvent,
          choices: say.transitions,
          value: filter.transition,
        },
        { kind: 'text', name: 'since', label: say.since, hint: say.timeHint, value: filter.since },
        { kind: 'text', name: 'until', label: say.until, hint: say.timeHint, value: filter.until },
      ]}
    />
  );
}

/** Downloads the events that the filter selects, each in a line. */
export function Download({ filter }: { filter: EventFilter }) {
  const what = words.activity;
  const { mutate, data, error, isPending } = useMutation({
    mutationFn: () => readEvents(filter),
    onSuccess: ({ events }) => {
      const rows = events.map((event) => [
        event.at,
        event.project,
        event.stack_name,
        event.sequence_id,
        event.agent_name,
        event.transition,
        event.reason ?? '',
        event.message,
      ]);
      download(what.csvName, csv(what.head, rows));
    },
  });
  return (
    <>
      <Button onPress={() => mutate()} disabledReason={isPending ? words.loading : undefined}>
        {what.csv}
      </Button>
      <span role="status">{data?.hasMore && what.truncated(number(MOST_ROWS))}</span>
      {error !== null && <Problem error={error} onRetry={() => mutate()} />}
    </>
  );
}
