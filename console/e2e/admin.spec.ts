import { expect, expectAccessible, expectZoomable, inCi, open, reasonOf, shown, test, words } from './console';

const { tokens, join } = words.adminActs;
const ROLES = ['viewer', 'deployer', 'owner', 'admin'] as const;

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
      await open(page, '/admin');
      await expect(page.getByRole('navigation', { name: words.admin.title })).toBeVisible();
      for (const [path, needed] of Object.entries(PAGES)) {
        const name = words.admin.tabs[path as keyof typeof PAGES];
        if (ROLES.indexOf(role) < ROLES.indexOf(needed)) {
          expect(await reasonOf(page, page.getByRole('button', { name, exact: true }))).toBe(words.roles.needs(needed));
          continue;
        }
        await open(page, `/admin/${path}`);
        await shown(page, name);
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
