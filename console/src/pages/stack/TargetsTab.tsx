// Which agents a stack targets, and how many each selector matches.

import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { previewQuery } from '../../api/queries';
import type { Stack } from '../../api/types';
import { number } from '../../lib/format';
import { Loaded } from '../../ui/Loaded';
import { Section } from '../../ui/Page';
import { Empty } from '../../ui/Problem';
import { words } from '../../words';

const say = words.targets;

export function TargetsTab({ stack }: { stack: Stack }) {
  const { selectors = [], agents = [] } = stack.targets;
  if (selectors.length + agents.length === 0) {
    return <Empty text={say.empty} command={words.stack.emptyStatusCommand(stack.name)} />;
  }
  return (
    <>
      {selectors.length > 0 && (
        <Section title={say.selectors}>
          <ul>
            {selectors.map((selector) => (
              <li key={selector}>
                <Selector selector={selector} />
              </li>
            ))}
          </ul>
        </Section>
      )}
      {agents.length > 0 && (
        <Section title={say.agents}>
          <ul>
            {agents.map((agent) => (
              <li key={agent}>
                <Link to="/agents/$agent" params={{ agent }}>
                  {agent}
                </Link>
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}

function Selector({ selector }: { selector: string }) {
  const query = useQuery(previewQuery(selector));
  return (
    <>
      <Link to="/agents" search={{ selector }}>
        <code>{selector}</code>
      </Link>{' '}
      <Loaded query={query} lines={1}>
        {({ agents }) => say.matches(number(agents))}
      </Loaded>
    </>
  );
}
