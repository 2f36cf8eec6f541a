// The words around an explanation. They are those of `crates/cli/src/view/why.rs`; a test compares both.

const agents = (count: number) => (count === 1 ? '1 agent' : `${count} agents`);

export const why = {
  pair: (stack: string, agent: string) => `${stack} on ${agent}`,
  title: (stack: string, agent: string, verdict: string) => `${stack} on ${agent}: ${verdict}`,
  verdict: {
    removed: (state: string) => `${state}, as intended`,
    atVersion: (state: string, version: string) => `${state} at version ${version}`,
    notTargeted: (state: string) => `${state}; not targeted`,
    nothingReported: (state: string, wanted: number) => `${state}; wants version ${wanted}, nothing reported yet`,
    other: (state: string, wanted: number, has: number) => `${state}; wants version ${wanted}, has version ${has}`,
  },
  reach: {
    object: 'this object',
    cluster: 'this cluster',
    agent: 'this agent',
    stack: (count: number) => `the stack on ${count === 1 ? 'its only agent' : `all ${count} agents`}`,
    grant: (count: number) => `the project's permissions on ${agents(count)}`,
    installation: 'all agents of the installation',
  },
  next: (text: string) => `next: ${text}`,
  changes: (text: string) => `changes: ${text}`,
  checkFirst: (text: string) => `check first: ${text}`,
  /** Only in the console. */
  page: 'Why',
  hops: 'Steps of the delivery',
  marks: { passed: 'passed', broken: 'not passed', open: 'not reached' },
  copyText: 'Copy as text',
  evidence: 'Evidence',
  nextStep: 'Next step',
  history: 'Last versions on this agent',
  sinceBefore: (text: string) => `+${text}`,
  total: (text: string) => `${text} in all`,
  close: 'Close',
  openPage: 'Open as a page',
  versionOf: (version: number) => `Version ${version}`,
} as const;
