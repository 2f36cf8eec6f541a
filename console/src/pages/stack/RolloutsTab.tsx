// The rollouts of a stack, newest first.

import { useInfiniteQuery } from '@tanstack/react-query';

import { rolloutsQuery } from '../../api/queries';
import { rowsOf } from '../../lib/pages';
import { Loaded } from '../../ui/Loaded';
import { Empty } from '../../ui/Problem';
import { words } from '../../words';
import { RolloutLines } from '../RolloutLines';

export function RolloutsTab({ stack }: { stack: string }) {
  const query = useInfiniteQuery(rolloutsQuery({ stack }));
  return (
    <Loaded query={query}>
      {(data) => {
        const rollouts = rowsOf(data);
        if (rollouts.length > 0) return <RolloutLines rollouts={rollouts} />;
        return <Empty text={words.rollouts.empty} command={words.stack.emptyVersionsCommand(stack)} />;
      }}
    </Loaded>
  );
}
