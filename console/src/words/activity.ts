// Words of the activity, and of what waits for a person.

const count = (number: string, one: string, many: string) => `${number} ${number === '1' ? one : many}`;

export const activity = {
  title: 'Activity',
  empty: 'Nothing was reported in this time.',
  folded: 'Each line covers all agents that reported the same about a version.',
  time: (from: string, to: string) => (from === to ? to : `${from} – ${to}`),
  agents: 'Agents',
  submitted: 'submitted',
  deleted: 'deleted',
  by: (name: string, message: string) => (message === '' ? `by ${name}` : `by ${name}: ${message}`),
  all: 'Show each event',
  folds: 'Show folded',
  csv: 'Download CSV',
  csvName: 'brokkr-events.csv',
  head: ['time', 'project', 'stack', 'version', 'agent', 'event', 'reason', 'message'],
  loaded: (events: string) => `from ${count(events, 'event', 'events')}`,
  truncated: (most: string) => `Only the first ${most} events are in the file.`,
} as const;

export const approvals = {
  title: 'Approvals',
  gates: 'Gates of rollouts',
  prunes: 'Prunes',
  calm: 'Nothing waits for a person.',
  gate: (wave: number, waves: number) => `wave ${wave} of ${waves}`,
  needs: (approvals: string, role: string) => `needs ${count(approvals, 'approval', 'approvals')} of ${role}`,
  notAuthor: 'not by the author',
  since: 'begun',
  moreStacks: (stacks: string) => `Prunes of ${count(stacks, 'more stack', 'more stacks')} wait, which are shown on their pages.`,
} as const;
