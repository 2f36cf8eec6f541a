import { request } from '@playwright/test';

import { control } from './control';
import { environment } from './environment';
import { expect, expectAccessible, open, shown, signIn, test, token, words } from './console';

const { stack, url } = environment;
const { live } = words;

test.skip(environment.control === undefined, 'BROKKR_CONSOLE_CONTROL is not set');
test.setTimeout(180_000);

/** The broker needs a moment to notice, and to come back. */
const SOON = { timeout: 60_000 };

test.describe('while a stack is shown', () => {
  test.use({ role: 'viewer' });

  test('a stream that is cut is continued, and the page says so meanwhile', async ({ page }) => {
    await open(page, `/stacks/${stack}`);
    const pill = page.getByRole('banner').getByRole('status');
    await expect(pill).toHaveText(live.live, SOON);
    const states: string[] = [];
    await page.exposeFunction('noteState', (state: string) => states.push(state));
    await pill.evaluate((element) => {
      const note = (globalThis as unknown as { noteState: (state: string) => void }).noteState;
      new MutationObserver(() => note(element.textContent ?? '')).observe(element, {
        childList: true,
        characterData: true,
        subtree: true,
      });
    });
    await control('cut');
    await expect.poll(() => states, SOON).toContain(live.reconnecting);
    await expect(pill).toHaveText(live.live, SOON);
    await expect(page.getByRole('alert')).toHaveCount(0);
  });

  test('a broker that is killed and comes back: older data stays, and the page recovers by itself', async ({ page }) => {
    await open(page, `/stacks/${stack}`);
    const pill = page.getByRole('banner').getByRole('status');
    await expect(pill).toHaveText(live.live, SOON);
    const address = page.url();
    try {
      await control('kill');
      await expect(pill).toHaveText(/^(Stale since \d\d:\d\d|Reconnecting)$/, SOON);
      await expect(pill).toHaveText(/^Stale since \d\d:\d\d$/, SOON);
      await expect(page.getByRole('grid').first(), 'older data').toBeVisible();
    } finally {
      await control('start');
    }
    await expect(pill).toHaveText(live.live, SOON);
    await expect(page.getByRole('alert')).toHaveCount(0, SOON);
    expect(page.url()).toBe(address);
  });

  test('a page that is loaded while the broker is away shows what is wrong, and a way to try again', async ({ page }) => {
    await open(page, '/stacks');
    await shown(page, words.stacks.title);
    try {
      await control('kill');
      await page.getByRole('link', { name: words.nav.agents }).click();
      await expect(page.getByRole('alert').first()).toContainText(words.errors.unreachable, SOON);
    } finally {
      await control('start');
    }
    await page.getByRole('button', { name: words.errors.retry }).first().click();
    await expect(page.getByRole('grid', { name: words.agents.title })).toBeVisible(SOON);
  });
});

test('a token that is revoked ends the session, and nothing stays on the screen', async ({ page }) => {
  const api = await request.newContext({
    baseURL: url,
    ignoreHTTPSErrors: true,
    extraHTTPHeaders: { authorization: `Bearer ${token('owner')}` },
  });
  const body = { name: `console-test-${Date.now()}`, role: 'viewer', ttl_seconds: 3600 };
  const created = await api.post('/api/v1/api-tokens', { data: body });
  expect(created.status()).toBe(201);
  const { id, token: secret } = (await created.json()) as { id: string; token: string };
  await signIn(page, secret, `/stacks/${stack}?tab=versions`);
  await shown(page, stack);
  await control('revoke', { body: { token: id } });
  await expect(page.getByRole('heading', { level: 1, name: words.login.title })).toBeVisible(SOON);
  await expect(page.getByRole('grid')).toHaveCount(0);
  expect(await page.evaluate(() => localStorage.getItem('brokkr-recents'))).toBeNull();
  await page.getByLabel(words.login.token).fill(token('viewer'));
  await page.getByRole('button', { name: words.login.submit }).click();
  await shown(page, stack);
  expect(new URL(page.url()).search).toBe('?tab=versions');
});

// The last test: what happened since the backup is lost.
test('after a restore, every page says that the broker is on hold, and recovers when the hold ends', async ({ page }) => {
  test.setTimeout(400_000);
  const hold = page.getByRole('status', { name: words.hold.label });
  await signIn(page, token('deployer'), `/stacks/${stack}`);
  await shown(page, stack);
  await control('back-up');
  await control('restore');
  await expect(hold).toContainText(words.hold.effect, SOON);
  await expectAccessible(page);
  // What is read is still shown, and a change is refused with the reason.
  await expect(page.getByRole('grid').first()).toBeVisible();
  await page.getByRole('button', { name: words.acts.suspend.name, exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel(words.acts.reason, { exact: true }).fill('a test of the console');
  await dialog.getByRole('button', { name: words.acts.suspend.name, exact: true }).click();
  await expect(dialog.getByRole('alert')).toContainText('BRK3005', SOON);
  await page.keyboard.press('Escape');
  await control('raise');
  await expect(hold).toHaveCount(0, SOON);
  await expect(page.getByRole('banner').getByRole('status').first()).toHaveText(live.live, SOON);
  await expect(page.getByRole('alert')).toHaveCount(0, SOON);
});
