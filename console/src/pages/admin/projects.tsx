// Projects with their quotas, and the grants that let them use agents.

import { useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';

import { grantsQuery, projectsQuery } from '../../api/admin';
import type { Grant, Project } from '../../api/types';
import { bytes, number } from '../../lib/format';
import { views } from '../../lib/views';
import type { Column } from '../../ui/Grid';
import { List } from '../../ui/List';
import { Page } from '../../ui/Page';
import { words } from '../../words';
import lists from '../lists.module.css';
import { CreateGrant, CreateProject, GrantRowActs, ProjectRowActs } from './acts/projects';

const say = words.admin;

const projectColumns: readonly Column<Project>[] = [
  {
    name: words.columns.project,
    cell: ({ name }) => (
      <Link to="/stacks" search={{ project: name }} tabIndex={-1}>
        {name}
      </Link>
    ),
  },
  { name: say.restricted, cell: ({ restricted }) => (restricted ? say.yes : say.no) },
  { name: words.nav.stacks, isNumber: true, cell: quota('stacks', number) },
  { name: say.perHour, isNumber: true, cell: quota('submissions_per_hour', number) },
  { name: say.stored, isNumber: true, cell: quota('stored_bytes', bytes) },
  { name: say.tokens, isNumber: true, cell: quota('tokens', number) },
  { name: say.webhooks, isNumber: true, cell: quota('webhooks', number) },
  {
    name: words.adminActs.column,
    cell: (project, isCurrent) => <ProjectRowActs project={project} isCurrent={isCurrent} />,
  },
];

function quota(name: keyof Project['used'], format: (value: number) => string) {
  return ({ used, allowed }: Project) => say.quota(format(used[name]), format(allowed[name]));
}

export function Projects() {
  const query = useInfiniteQuery(projectsQuery());
  const [text, command] = say.empty.projects;
  return (
    <Page title={say.tabs.projects} facts={<CreateProject />} view={views.projects()}>
      <List
        query={query}
        label={say.tabs.projects}
        className={lists.projects}
        columns={projectColumns}
        rowKey={(project) => project.name}
        empty={{ text, command }}
      />
    </Page>
  );
}

const all = (values: readonly string[]) => (values.includes('*') ? say.all : values.join(', '));

const grantColumns: readonly Column<Grant>[] = [
  { name: words.columns.name, cell: ({ name }) => name },
  { name: words.columns.project, cell: ({ project }) => project },
  { name: say.selector, cell: ({ selector }) => <code>{selector}</code> },
  { name: say.namespaces, cell: ({ namespaces }) => all(namespaces) },
  { name: say.kinds, cell: ({ kinds }) => all(kinds) },
  { name: say.account, cell: ({ account }) => account },
  { name: words.adminActs.column, cell: (grant, isCurrent) => <GrantRowActs grant={grant} isCurrent={isCurrent} /> },
];

export function Grants() {
  const query = useInfiniteQuery(grantsQuery());
  const [text, command] = say.empty.grants;
  return (
    <Page title={say.tabs.grants} facts={<CreateGrant />} view={views.grants()}>
      <List
        query={query}
        label={say.tabs.grants}
        className={lists.grants}
        columns={grantColumns}
        rowKey={(grant) => grant.id}
        empty={{ text, command }}
      />
    </Page>
  );
}
