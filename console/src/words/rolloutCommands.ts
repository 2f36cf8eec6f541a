// Words of what a person can do with a rollout.

export const rolloutCommands = {
  label: 'Commands',
  names: {
    pause: 'Pause',
    resume: 'Resume',
    promote: 'Promote',
    skip: 'Skip the wait',
    approve: 'Approve',
    deny: 'Deny',
    stop: 'Stop',
    abort: 'Abort',
  },
  effects: {
    pause: 'Agents that have the version keep it, and no other agent gets it.',
    resume: 'The rollout goes on. After a stop, the bad agents so far are accepted.',
    promote: 'The next wave begins now.',
    skip: 'The rollout does not wait for the rest of the soak time, or for approvals.',
    approve: 'Approves the wave that waits for it.',
    deny: 'Stops the rollout at this wave.',
    stop: 'Withdraws the version. Agents that have begun it keep it; no other agent begins it.',
    abort: 'Withdraws the version for good: the rollout cannot be resumed.',
  },
  title: (name: string, rollout: string) => `${name}: ${rollout}`,
  reason: 'Reason',
  reasonHint: 'Recorded in the audit log',
  done: (title: string) => `${title}: done`,
} as const;
