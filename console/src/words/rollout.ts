// The words of a rollout. They are those of `crates/cli/src/view/course.rs` and `crates/api/src/rollouts.rs`.

const agents = (count: number) => (count === 1 ? '1 agent' : `${count} agents`);

export const rollout = {
  stop: {
    tooManyBad: (bad: number, allowed: number) =>
      `${bad} ${bad === 1 ? 'agent is' : 'agents are'} bad, ${allowed} allowed`,
    tooManyExcused: (excused: number) => `${excused} agents were bad before, and too few others are healthy`,
    denied: (by: string, reason: string) => `denied by ${by}: ${reason}`,
    gateTimedOut: (wave: number) => `the approvals for wave ${wave} were not there in time`,
    restored: "the broker's database was restored",
  },
  next: {
    ofTheAgents: (size: string) => `${size} of the agents`,
    completion: 'completion',
    nextWave: 'the next wave',
    inFlight: (limit: string) => `more agents, when fewer than ${limit} are in flight`,
    healthy: (wave: string, needed: string) =>
      `${wave}, when ${needed} ${needed === '1' ? 'agent is' : 'agents are'} healthy`,
    late: (count: number) => `more agents, when it is known whether ${agents(count)} without contact are offline`,
    soak: (wave: string, left: string) => `${wave}, when the agents stay healthy for ${left} more`,
    window: (count: number, opensAt: string) =>
      `${agents(count)}, when the maintenance window opens or the freeze ends${opensAt}`,
    opensAt: (time: string) => `, at ${time}`,
    gate: (wave: string, given: number, needed: number) =>
      `${wave}, when approved: ${given} of ${needed} approvals so far`,
  },
  counts: {
    healthy: 'healthy',
    in_flight: 'in flight',
    bad: 'bad',
    excused: 'bad before, too',
    waiting: 'waiting for approval',
    owed: 'not able to begin',
  },
  none: 'none',
  widens: (version: number) => `${version} to more agents`,
  deletion: (base: number, to: number) => `${base} → deletion ${to}`,
  versions: (base: number, to: number) => `${base} → ${to}`,
  bound: (total: string, allowed: string, inFlight: string) => `${total}: ${allowed} allowed, and ${inFlight} in flight`,
  size: (size: string, match: string | undefined, hasGate: boolean) =>
    `${size}${match === undefined ? '' : ` of ${match}`}${hasGate ? ' after approval' : ''}`,
  released: (released: string, members: string) => `released to ${released} of ${members} agents`,
  facts: { agents: 'Agents', badAtMost: 'Bad at most', next: 'Next', begun: 'Begun', ended: 'Ended', by: 'By' },
  decisions: 'Decisions',
  noDecisions: 'Nothing was decided yet.',
  seen: (counts: string) => `seen: ${counts}`,
  waves: 'Waves',
  wave: (wave: number) => `Wave ${wave}`,
  current: 'current',
} as const;
