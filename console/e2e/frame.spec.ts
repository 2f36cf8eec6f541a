// What belongs to no page: the help, the menus, and an address without a page.

import { expect, expectAccessible, expectFocusIn, expectZoomable, inCi, open, shown, test, words } from './console';

for (const role of ['viewer', 'deployer', 'owner', 'admin'] as const) {
  test.describe(role, inCi(role, 'viewer'), () => {
    test.use({ role });

    test('the help and the menus have no findings', async ({ page }) => {
      await open(page, '/stacks');
      await shown(page, words.stacks.title);

      await page.keyboard.press('?');
      const help = page.getByRole('dialog', { name: words.keys.title });
      await expect(help.getByText(words.keys.go(words.stacks.title), { exact: true })).toBeVisible();
      await expectFocusIn(help);
      await expectAccessible(page);
      await page.keyboard.press('Escape');
      await expect(help).toHaveCount(0);

      const copy = page.getByRole('button', { name: words.copy.menu });
      await copy.focus();
      await page.keyboard.press('Enter');
      const menu = page.getByRole('menu');
      await expect(menu.getByRole('menuitem')).toHaveCount(3);
      await expectAccessible(page);
      await page.keyboard.press('Escape');
      await expect(menu).toHaveCount(0);
      await expect(copy).toBeFocused();

      const account = page.getByRole('banner').locator('summary');
      await account.focus();
      await page.keyboard.press('Enter');
      const signOut = page.getByRole('button', { name: words.account.signOut });
      await expect(signOut).toBeVisible();
      await expectAccessible(page);
      await page.keyboard.press('Escape');
      await expect(signOut).toBeHidden();
    });

    test('an address without a page says so', async ({ page }) => {
      await open(page, '/nowhere');
      await shown(page, words.errors.notFound);
      await expect(page.getByText(words.errors.notFoundDetail)).toBeVisible();
      await expectAccessible(page);
      await expectZoomable(page);
    });
  });
}
