// Projects and their quotas, and grants.

import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';

import { refuseExisting } from '../../../api/admin';
import { api, body } from '../../../api/client';
import { previewQuery } from '../../../api/queries';
import type { Grant, Project } from '../../../api/types';
import type { FormValues } from '../../../lib/formValues';
import { number } from '../../../lib/format';
import { useSettled } from '../../../lib/settled';
import { ActButton, ActDialog } from '../../../ui/Act';
import { Row, TextField } from '../../../ui/Field';
import { Loaded } from '../../../ui/Loaded';
import { Reached } from '../../../ui/Reach';
import { words } from '../../../words';

const { projects: say, grants, name: nameLabel, for: named } = words.adminActs;

type Quota = keyof typeof say.quotas;
const QUOTAS = Object.keys(say.quotas) as Quota[];

function allowed(values: FormValues): Partial<Record<Quota, number>> {
  const given = QUOTAS.map((quota) => [quota, values.whole(quota)] as const);
  return Object.fromEntries(given.filter(([, value]) => value !== undefined));
}

function Quotas({ project }: { project?: Project }) {
  return (
    <Row>
      {QUOTAS.map((quota) => (
        <TextField
          key={quota}
          label={say.quotas[quota]}
          name={quota}
          type="number"
          min={0}
          defaultValue={project?.allowed[quota]}
        />
      ))}
    </Row>
  );
}

const put = (project: string, values: FormValues, expect: number | undefined) =>
  body(
    api.PUT('/api/v1/projects/{project}', {
      params: { path: { project }, query: { expect } },
      body: { allowed: allowed(values) },
    }),
  );

export function CreateProject() {
  return (
    <ActButton name={say.create} needs="admin" kind="primary">
      {(close) => (
        <ActDialog
          title={say.create}
          submit={say.create}
          onClose={close}
          announced={say.created}
          run={async (values, expect) => {
            const project = values.text('name') ?? '';
            await refuseExisting(project, api.GET('/api/v1/projects/{project}', { params: { path: { project } } }));
            return put(project, values, expect);
          }}
        >
          <TextField label={nameLabel} name="name" required />
          <Quotas />
          <p>{say.empty}</p>
        </ActDialog>
      )}
    </ActButton>
  );
}

export function ProjectRowActs({ project, isCurrent }: { project: Project; isCurrent: boolean }) {
  const { name } = project;
  const shared = { needs: 'admin', isInCurrentRow: isCurrent } as const;
  return (
    <>
      <ActButton name={say.change} label={named(say.change, name)} {...shared}>
        {(close) => (
          <ActDialog
            title={say.changeTitle(name)}
            submit={say.change}
            onClose={close}
            announced={say.changed}
            run={async (values, expect) => put(name, values, expect)}
          >
            <Quotas project={project} />
            <p>{say.effect}</p>
          </ActDialog>
        )}
      </ActButton>{' '}
      <ActButton name={say.remove} label={named(say.remove, name)} {...shared}>
        {(close) => (
          <ActDialog
            title={say.removeTitle(name)}
            submit={say.remove}
            onClose={close}
            announced={say.removed}
            typed={name}
            run={async () => {
              await api.DELETE('/api/v1/projects/{project}', { params: { path: { project: name } } });
            }}
          >
            <p>{say.removeEffect}</p>
          </ActDialog>
        )}
      </ActButton>
    </>
  );
}

function Covered({ selector }: { selector: string }) {
  const preview = useQuery({ ...previewQuery(selector), enabled: selector !== '', retry: false });
  if (selector === '') return null;
  return (
    <Loaded query={preview} lines={1}>
      {({ agents, items }) => (
        <Reached text={grants.matches(number(agents))} count={agents} names={items.map((agent) => agent.name)} />
      )}
    </Loaded>
  );
}

function GrantDialog({ grant, onClose }: { grant?: Grant; onClose: () => void }) {
  const [selector, setSelector] = useState(grant?.selector ?? '');
  const settled = useSettled(selector.trim());
  return (
    <ActDialog
      title={grant ? grants.changeTitle(grant.name) : grants.create}
      submit={grant ? grants.change : grants.create}
      onClose={onClose}
      announced={grants.saved}
      run={async (values, expect) => {
        const path = { grant: grant?.name ?? values.text('name') ?? '' };
        if (grant === undefined) await refuseExisting(path.grant, api.GET('/api/v1/grants/{grant}', { params: { path } }));
        return body(
          api.PUT('/api/v1/grants/{grant}', {
            params: { path, query: { expect } },
            body: {
              project: values.text('project') ?? '',
              selector: values.text('selector') ?? '',
              namespaces: values.lines('namespaces', /[\n,\s]/),
              kinds: values.lines('kinds', /[\n,\s]/),
              account: values.text('account') ?? '',
            },
          }),
        );
      }}
    >
      <Covered selector={settled} />
      <Row>
        {grant === undefined && <TextField label={nameLabel} name="name" required />}
        <TextField label={words.columns.project} name="project" required defaultValue={grant?.project} />
        <TextField
          label={grants.selector}
          name="selector"
          required
          value={selector}
          placeholder={grants.selectorHint}
          onChange={(event) => setSelector(event.target.value)}
        />
        <TextField
          label={grants.namespaces}
          name="namespaces"
          required
          defaultValue={grant?.namespaces.join(', ')}
          placeholder={grants.namespacesHint}
        />
        <TextField
          label={grants.kinds}
          name="kinds"
          required
          defaultValue={grant?.kinds.join(', ')}
          placeholder={grants.kindsHint}
        />
        <TextField
          label={grants.account}
          name="account"
          required
          defaultValue={grant?.account}
          placeholder={grants.accountHint}
        />
      </Row>
      <p>{grants.effect}</p>
    </ActDialog>
  );
}

export function CreateGrant() {
  return (
    <ActButton name={grants.create} needs="admin" kind="primary">
      {(close) => <GrantDialog onClose={close} />}
    </ActButton>
  );
}

export function GrantRowActs({ grant, isCurrent }: { grant: Grant; isCurrent: boolean }) {
  const { name } = grant;
  const shared = { needs: 'admin', isInCurrentRow: isCurrent } as const;
  return (
    <>
      <ActButton name={grants.change} label={named(grants.change, name)} {...shared}>
        {(close) => <GrantDialog grant={grant} onClose={close} />}
      </ActButton>{' '}
      <ActButton name={grants.remove} label={named(grants.remove, name)} {...shared}>
        {(close) => (
          <ActDialog
            title={grants.removeTitle(name)}
            submit={grants.remove}
            onClose={close}
            announced={grants.removed}
            typed={name}
            run={async (_, expect) => {
              const params = { path: { grant: name }, query: { expect } };
              await api.DELETE('/api/v1/grants/{grant}', { params });
            }}
          >
            <Covered selector={grant.selector} />
            <p>{grants.removeEffect}</p>
          </ActDialog>
        )}
      </ActButton>
    </>
  );
}
