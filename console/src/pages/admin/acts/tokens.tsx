// API tokens: create, rotate, revoke.

import { useQuery } from '@tanstack/react-query';

import { api, body } from '../../../api/client';
import { project } from '../../../api/scope';
import { sessionQuery } from '../../../api/session';
import type { ApiToken, Role } from '../../../api/types';
import { useNow } from '../../../lib/now';
import { ActButton, ActDialog, Warning } from '../../../ui/Act';
import { Row, SelectField, TextField } from '../../../ui/Field';
import { words } from '../../../words';

const { tokens: say, name: nameLabel, ttl: ttlLabel, for: named } = words.adminActs;

const OF_A_PROJECT: readonly Role[] = ['viewer', 'deployer', 'owner'];
const ALL: readonly Role[] = [...OF_A_PROJECT, 'admin', 'auditor'];

export function CreateToken() {
  const { data: session } = useQuery(sessionQuery);
  const roles = session?.role === 'admin' ? ALL : OF_A_PROJECT;
  return (
    <ActButton name={say.create} needs="owner" kind="primary">
      {(close) => (
        <ActDialog
          title={say.create}
          submit={say.create}
          onClose={close}
          announced={say.created}
          run={async (values) =>
            body(
              api.POST('/api/v1/api-tokens', {
                body: {
                  name: values.text('name') ?? '',
                  role: values.text('role') as Role,
                  ttl_seconds: values.duration('ttl') ?? null,
                },
              }),
            )
          }
          secretOf={(done) => done.token}
        >
          <p>{say.reach(project() ?? session?.project ?? '')}</p>
          {roles === ALL && <p>{say.installation}</p>}
          <Row>
            <TextField label={nameLabel} name="name" required />
            <SelectField label={say.role} name="role" choices={roles.map((role) => [role, role] as const)} />
            <TextField label={ttlLabel} name="ttl" defaultValue="90d" placeholder={say.ttlHint} />
          </Row>
        </ActDialog>
      )}
    </ActButton>
  );
}

export function TokenRowActs({ token, isCurrent }: { token: ApiToken; isCurrent: boolean }) {
  const now = useNow();
  const { id, name } = token;
  const isOver = token.revoked_at != null || (token.expires_at != null && Date.parse(token.expires_at) < now);
  const shared = { needs: 'owner', isInCurrentRow: isCurrent, disabledReason: isOver ? say.over : undefined } as const;
  return (
    <>
      <ActButton name={say.rotate} label={named(say.rotate, name)} {...shared}>
        {(close) => (
          <ActDialog
            title={say.rotateTitle(name)}
            submit={say.rotate}
            onClose={close}
            announced={say.rotated}
            run={async (values) =>
              body(
                api.POST('/api/v1/api-tokens/{token}/rotate', {
                  params: { path: { token: id } },
                  body: { overlap_seconds: values.duration('overlap') ?? null },
                }),
              )
            }
            secretOf={(done) => done.token}
          >
            <Own token={token} />
            <p>{say.rotateEffect}</p>
            <TextField label={say.overlap} name="overlap" defaultValue="24h" placeholder={say.overlapHint} />
          </ActDialog>
        )}
      </ActButton>{' '}
      <ActButton name={say.revoke} label={named(say.revoke, name)} {...shared}>
        {(close) => (
          <ActDialog
            title={say.revokeTitle(name)}
            submit={say.revoke}
            onClose={close}
            announced={say.revoked}
            run={async () => {
              await api.DELETE('/api/v1/api-tokens/{token}', { params: { path: { token: id } } });
            }}
          >
            <Own token={token} />
            <p>{say.revokeEffect}</p>
          </ActDialog>
        )}
      </ActButton>
    </>
  );
}

function Own({ token }: { token: ApiToken }) {
  const { data: session } = useQuery(sessionQuery);
  return session?.token_id === token.id ? <Warning>{say.own}</Warning> : null;
}
