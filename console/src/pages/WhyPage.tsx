// The explanation of a stack on an agent as a page of its own.

import { Link, useParams } from '@tanstack/react-router';

import { views } from '../lib/views';
import { Page } from '../ui/Page';
import { words } from '../words';
import { Why } from './why/Why';

export function WhyPage() {
  const { stack, agent } = useParams({ from: '/shell/stacks/$stack/agents/$agent' });
  const facts = (
    <>
      <Link to="/stacks/$stack" params={{ stack }}>
        {words.columns.stack} {stack}
      </Link>
      <Link to="/agents/$agent" params={{ agent }}>
        {words.columns.agent} {agent}
      </Link>
    </>
  );
  return (
    <Page title={words.why.pair(stack, agent)} facts={facts} view={views.why(stack, agent)}>
      <Why key={`${stack}/${agent}`} stack={stack} agent={agent} />
    </Page>
  );
}
