// The matrix with the choice of its columns and agents.

import { useQuery } from '@tanstack/react-query';

import { labelsQuery } from '../../api/fleet';
import type { MatrixFilter } from '../../api/types';
import { Filters } from '../../ui/Filters';
import { Loaded } from '../../ui/Loaded';
import { Empty } from '../../ui/Problem';
import { words } from '../../words';
import { Matrix } from './Matrix';
import { useMatrix } from './useMatrix';

const say = words.matrix;

export function FleetMatrix({ by, selector }: MatrixFilter) {
  const query = useMatrix({ by, selector });
  const labels = useQuery(labelsQuery());
  const keys = new Set(labels.data?.items.map(({ key }) => key));
  // The label of the address can be chosen, whether it was read yet or not.
  if (by !== undefined) keys.add(by);
  const choices = Object.fromEntries([...keys].map((key) => [key, key]));
  return (
    <>
      <Filters
        filters={[
          { kind: 'choice', name: 'by', label: say.by, choices, none: say.allAgents, value: by },
          { kind: 'text', name: 'selector', label: words.filters.selector, hint: words.filters.selectorHint, value: selector },
        ]}
      />
      <Loaded query={query}>
        {(matrix) => {
          if (matrix.rows.length > 0) return <Matrix matrix={matrix} by={by} selector={selector} />;
          if (selector !== undefined) return <Empty text={say.emptyFiltered} />;
          return <Empty text={say.empty} command={say.emptyCommand} />;
        }}
      </Loaded>
    </>
  );
}
