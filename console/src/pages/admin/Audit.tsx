// The audit log, and the verification of its chain.

import { useInfiniteQuery, useMutation } from '@tanstack/react-query';

import { auditQuery, verifyAudit } from '../../api/admin';
import type { AuditEntry } from '../../api/types';
import { number } from '../../lib/format';
import { views } from '../../lib/views';
import { When } from '../../ui/Age';
import { Button } from '../../ui/Button';
import type { Column } from '../../ui/Grid';
import { List } from '../../ui/List';
import { Page } from '../../ui/Page';
import { Problem } from '../../ui/Problem';
import { Mark } from '../../ui/StateMark';
import { words } from '../../words';
import lists from '../lists.module.css';

const say = words.admin;

const columns: readonly Column<AuditEntry>[] = [
  { name: words.columns.time, cell: ({ at }) => <When at={at} /> },
  { name: say.who, cell: ({ name, principal }) => <span title={principal}>{name}</span> },
  { name: say.what, cell: ({ kind }) => kind },
  { name: say.path, cell: ({ method, path }) => <code>{`${method} ${path}`}</code> },
  { name: say.result, isNumber: true, cell: ({ status }) => status },
  { name: say.reason, cell: ({ reason, refusal }) => reason ?? refusal ?? '' },
  { name: say.address, cell: ({ address }) => address },
];

export function Audit() {
  const query = useInfiniteQuery(auditQuery());
  const [text, command] = say.empty.audit;
  return (
    <Page title={say.tabs.audit} facts={<Verification />} view={views.audit()}>
      <List
        query={query}
        label={say.tabs.audit}
        className={lists.audit}
        columns={columns}
        rowKey={(entry) => String(entry.id)}
        empty={{ text, command }}
      />
    </Page>
  );
}

function Verification() {
  const { mutate, data, error, isPending } = useMutation({ mutationFn: verifyAudit });
  return (
    <>
      <Button onPress={() => mutate()} disabledReason={isPending ? say.verifying : undefined}>
        {say.verify}
      </Button>
      <span role="status">
        {data && (
          <Mark tone={data.broken == null ? 'good' : 'bad'} glyph={data.broken == null ? '✔' : '✖'}>
            {data.broken == null ? say.verified(number(data.links)) : say.brokenAt(data.broken.number, data.broken.why)}
          </Mark>
        )}
      </span>
      {error && <Problem error={error} onRetry={() => mutate()} />}
    </>
  );
}
