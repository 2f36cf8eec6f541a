// The errors of a stack, grouped by cause.

import { useInfiniteQuery } from '@tanstack/react-query';

import { stackErrorsQuery } from '../../api/queries';
import { rowsOf } from '../../lib/pages';
import { ErrorGroups } from '../../ui/ErrorGroups';
import { Loaded } from '../../ui/Loaded';
import { Empty } from '../../ui/Problem';
import { words } from '../../words';

export function ErrorsTab({ stack }: { stack: string }) {
  const query = useInfiniteQuery(stackErrorsQuery(stack));
  return (
    <Loaded query={query}>
      {(data) => {
        const groups = rowsOf(data);
        return groups.length === 0 ? <Empty text={words.stack.emptyErrors} /> : <ErrorGroups groups={groups} />;
      }}
    </Loaded>
  );
}
