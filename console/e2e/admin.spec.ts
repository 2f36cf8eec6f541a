import type { Locator, Page } from '@playwright/test';

import { expect, expectAccessible, expectZoomable, firstRow, inCi, open, reasonOf, shown, test, words } from './console';

const { tokens, join, webhooks } = words.adminActs;
const ROLES = ['viewer', 'deployer', 'owner', 'admin'] as const;

type Tab = keyof typeof words.admin.tabs;

/** Lists that can be empty. */
const CAN_BE_EMPTY = new Set<Tab>(['join', 'grants', 'webhooks']);

/** What a page is about. */
function content(page: Page, tab: Tab): Locator {
  if (tab === 'system') return page.getByText(words.admin.system.installation, { exact: true });
  const row = firstRow(page);
  return CAN_BE_EMPTY.has(tab) ? row.or(page.getByText(words.admin.empty[tab][0])) : row;
}

/** Each page, and the role that reads it. */
const PAGES = {
  tokens: 'owner',
  join: 'admin',
  projects: 'viewer',
  grants: 'admin',
  webhooks: 'viewer',
  audit: 'owner',
  system: 'admin',
} as const;

for (const role of ROLES) {
  test.describe(role, inCi(role, 'admin'), () => {
    test.use({ role });

    test('the pages of the administration have no findings, or name the role that reads them', async ({ page }) => {
      test.slow();
      await open(page, '/admin');
      await expect(page.getByRole('navigation', { name: words.admin.title })).toBeVisible();
      for (const [path, needed] of Object.entries(PAGES)) {
        const tab = path as keyof typeof PAGES;
        const name = words.admin.tabs[tab];
        if (ROLES.indexOf(role) < ROLES.indexOf(needed)) {
          expect(await reasonOf(page, page.getByRole('button', { name, exact: true }))).toBe(words.roles.needs(needed));
          continue;
        }
        await open(page, `/admin/${path}`);
        await shown(page, name);
        await expect(content(page, tab)).toBeVisible();
        await expect(page.getByRole('alert')).toHaveCount(0);
        await expectAccessible(page);
        await expectZoomable(page);
      }
    });
  });
}

test.describe('as an owner', () => {
  test.use({ role: 'owner' });

  test('a token is created, shown once, and revoked', async ({ page }) => {
    const name = `console-test-${Date.now()}`;
    await open(page, '/admin/tokens');
    await shown(page, words.admin.tabs.tokens);
    await page.getByRole('button', { name: tokens.create }).click();
    const dialog = page.getByRole('dialog', { name: tokens.create });
    await dialog.getByLabel(words.adminActs.name).fill(name);
    await dialog.getByLabel(words.adminActs.ttl).fill('1h');
    await expectAccessible(page);
    await dialog.getByRole('button', { name: tokens.create }).click();
    const secret = dialog.getByText(/^brk_/);
    await expect(secret).toBeVisible();
    const text = await secret.innerText();
    await expectAccessible(page);
    await page.keyboard.press('Escape');
    await expect(secret, 'only the button closes it').toBeVisible();
    await dialog.getByRole('button', { name: words.acts.close }).click();
    expect(await page.content()).not.toContain(text);
    await page.getByRole('button', { name: words.adminActs.for(tokens.revoke, name) }).click();
    const revoke = page.getByRole('dialog', { name: tokens.revokeTitle(name) });
    await revoke.getByRole('button', { name: tokens.revoke }).click();
    await expect(revoke).toHaveCount(0);
    await expect(page.getByRole('row', { name: new RegExp(name) })).toContainText(words.admin.revoked);
  });

  test('a webhook is created, its deliveries are shown, and it is deleted', { tag: '@nightly' }, async ({ page }) => {
    test.slow();
    const name = `console-test-${Date.now()}`;
    await open(page, '/admin/webhooks');
    await shown(page, words.admin.tabs.webhooks);
    await page.getByRole('button', { name: webhooks.create }).click();
    const dialog = page.getByRole('dialog', { name: webhooks.create });
    await dialog.getByLabel(words.adminActs.name).fill(name);
    await dialog.getByLabel(webhooks.url).fill('https://hooks.example.com/console-test');
    // Nothing is sent: no rollout here has a gate.
    await dialog.getByLabel(webhooks.events).fill('rollout.gate_opened');
    await expectAccessible(page);
    await dialog.getByRole('button', { name: webhooks.create }).click();
    await dialog.getByRole('button', { name: words.acts.close }).click();
    await open(page, `/admin/webhooks/${name}`);
    await shown(page, words.admin.deliveries(name));
    await expect(page.getByText(words.admin.empty.deliveries[0])).toBeVisible();
    await expect(page.getByRole('alert')).toHaveCount(0);
    await expectAccessible(page);
    await expectZoomable(page);
    await open(page, '/admin/webhooks');
    await page.getByRole('button', { name: words.adminActs.for(webhooks.remove, name) }).click();
    const remove = page.getByRole('dialog', { name: webhooks.removeTitle(name) });
    await remove.getByLabel(words.acts.type(name)).fill(name);
    await remove.getByRole('button', { name: webhooks.remove }).click();
    await expect(remove).toHaveCount(0);
  });
});

test.describe('as an admin', () => {
  test.use({ role: 'admin' });

  test('a cluster that joins gets a command, and the check list waits for it', async ({ page }) => {
    const name = `console-test-${Date.now()}`;
    await open(page, '/admin/join');
    await shown(page, words.admin.tabs.join);
    await page.getByRole('button', { name: join.start }).click();
    const dialog = page.getByRole('dialog', { name: join.title });
    await dialog.getByLabel(join.agent).fill(name);
    await dialog.getByLabel(join.labels).fill('env=dev');
    await dialog.getByRole('button', { name: join.submit }).click();
    await expect(dialog.getByText(`brokkr agent join ${name} --label env=dev`)).toBeVisible();
    const steps = dialog.getByRole('list', { name: join.watch(name) });
    await expect(steps.getByRole('listitem')).toHaveCount(2);
    await expect(steps).toContainText(join.waiting);
    await expectAccessible(page);
    await dialog.getByRole('button', { name: words.acts.close }).click();
    await expect(dialog).toHaveCount(0);
  });
});
