// All rollouts, newest first.

import { useInfiniteQuery } from '@tanstack/react-query';

import { rolloutsQuery } from '../api/queries';
import { rowsOf } from '../lib/pages';
import { views } from '../lib/views';
import { Loaded } from '../ui/Loaded';
import { Page } from '../ui/Page';
import { Empty } from '../ui/Problem';
import { words } from '../words';
import { RolloutLines } from './RolloutLines';

const say = words.rollouts;

export function Rollouts() {
  const query = useInfiniteQuery(rolloutsQuery({}));
  return (
    <Page title={say.title} view={views.rollouts()}>
      <Loaded query={query}>
        {(data) => {
          const rollouts = rowsOf(data);
          if (rollouts.length === 0) return <Empty text={say.empty} command={say.emptyCommand} />;
          return <RolloutLines rollouts={rollouts} />;
        }}
      </Loaded>
    </Page>
  );
}
