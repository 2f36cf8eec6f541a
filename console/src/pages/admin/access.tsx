// API tokens and join tokens. Their secrets were shown once, when they were created.

import { useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { joinTokensQuery, tokensQuery } from '../../api/admin';
import type { ApiToken, JoinToken } from '../../api/types';
import { labels, orDash } from '../../lib/format';
import { useNow } from '../../lib/now';
import { views } from '../../lib/views';
import { When } from '../../ui/Age';
import type { Column } from '../../ui/Grid';
import { List } from '../../ui/List';
import { Page } from '../../ui/Page';
import { Mark } from '../../ui/StateMark';
import { words } from '../../words';
import lists from '../lists.module.css';
import { CreateJoinToken, JoinCluster, JoinRowActs } from './acts/join';
import { CreateToken, TokenRowActs } from './acts/tokens';

const say = words.admin;

const tokenColumns: readonly Column<ApiToken>[] = [
  { name: words.columns.name, cell: ({ name }) => name },
  { name: say.role, cell: ({ role }) => role },
  { name: say.createdBy, cell: ({ created_by: by }) => orDash(by) },
  { name: words.columns.created, cell: ({ created_at: at }) => <When at={at} /> },
  { name: say.expires, cell: ({ expires_at: at }) => (at == null ? say.never : <When at={at} />) },
  { name: words.columns.state, cell: (token) => <TokenState revoked={token.revoked_at} expires={token.expires_at} /> },
  {
    name: words.adminActs.column,
    cell: (token, isCurrent) => <TokenRowActs token={token} isCurrent={isCurrent} />,
  },
];

export function Tokens() {
  const query = useInfiniteQuery(tokensQuery());
  const [text, command] = say.empty.tokens;
  return (
    <Page title={say.tabs.tokens} facts={<CreateToken />} view={views.tokens()}>
      <List
        query={query}
        label={say.tabs.tokens}
        className={lists.tokens}
        columns={tokenColumns}
        rowKey={(token) => token.id}
        empty={{ text, command }}
      />
    </Page>
  );
}

const joinColumns: readonly Column<JoinToken>[] = [
  { name: words.columns.agent, cell: ({ agent_name: agent, used_by: used }) => <Joined agent={agent} used={used} /> },
  { name: words.columns.labels, cell: (token) => orDash(labels(token.labels)) },
  { name: words.columns.created, cell: ({ created_at: at }) => <When at={at} /> },
  { name: say.expires, cell: ({ expires_at: at }) => <When at={at} /> },
  {
    name: words.columns.state,
    cell: ({ revoked_at: revoked, expires_at: expires, used_by: used }) =>
      used == null ? (
        <TokenState revoked={revoked} expires={expires} active={say.waiting} />
      ) : (
        <Mark tone="good" glyph="✔">
          {say.used}
        </Mark>
      ),
  },
  { name: words.adminActs.column, cell: (token, isCurrent) => <JoinRowActs token={token} isCurrent={isCurrent} /> },
];

export function JoinTokens() {
  const query = useInfiniteQuery(joinTokensQuery());
  const [text, command] = say.empty.join;
  return (
    <Page title={say.tabs.join} facts={<JoinActs />} view={views.joinTokens()}>
      <List
        query={query}
        label={say.tabs.join}
        className={lists.join}
        columns={joinColumns}
        rowKey={(token) => token.id}
        empty={{ text, command }}
      />
    </Page>
  );
}

function JoinActs() {
  return (
    <>
      <JoinCluster />
      <CreateJoinToken />
    </>
  );
}

function Joined({ agent, used }: { agent: string; used: string | null | undefined }) {
  if (used == null) return agent;
  return (
    <Link to="/agents/$agent" params={{ agent }}>
      {agent}
    </Link>
  );
}

interface TokenStateProps {
  revoked: string | null | undefined;
  expires: string | null | undefined;
  active?: string;
}

function TokenState({ revoked, expires, active = say.active }: TokenStateProps) {
  const now = useNow();
  if (revoked != null) return <Mark tone="quiet" glyph="–">{say.revoked}</Mark>;
  if (expires != null && Date.parse(expires) < now) return <Mark tone="quiet" glyph="–">{say.expired}</Mark>;
  return <Mark tone="busy" glyph="●">{active}</Mark>;
}
