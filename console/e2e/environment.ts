// What the tests need to know about the broker. See README.md.

export type Role = 'viewer' | 'deployer' | 'owner' | 'admin';

const read = (name: string) => process.env[`BROKKR_CONSOLE_${name}`] || undefined;

export const environment = {
  /** The address of the broker, without `/ui/`. */
  url: read('URL') ?? 'http://localhost:4400',
  /** The browser; without, the one that Playwright has installed. */
  chromium: read('CHROMIUM'),
  tokens: {
    viewer: read('TOKEN_VIEWER'),
    deployer: read('TOKEN_DEPLOYER'),
    owner: read('TOKEN_OWNER'),
    admin: read('TOKEN_ADMIN'),
  } satisfies Record<Role, string | undefined>,
  /** A stack that fails on an agent. */
  stack: read('STACK') ?? 'web',
  agent: read('AGENT') ?? 'eu-1',
  /** The state of the stack on the agent. */
  state: read('STATE') ?? 'failed',
  /** A rollout of the stack, in any state. */
  rollout: read('ROLLOUT'),
  /** The address of the harness that stops and starts the broker. */
  control: read('CONTROL'),
  /** How long a page is kept open to be measured. */
  liveSeconds: Number(read('LIVE_SECONDS')) || undefined,
  /** The file for what is measured. */
  figures: read('FIGURES'),
  /** The folder for the pictures of the documentation. */
  pictures: read('PICTURES'),
};
