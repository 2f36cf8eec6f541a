import { environment } from './environment';
import { expect, expectAccessible, expectZoomable, inCi, open, shown, test, words } from './console';

const { stack } = environment;

for (const role of ['viewer', 'deployer', 'owner', 'admin'] as const) {
  test.describe(role, inCi(role, 'viewer'), () => {
    test.use({ role });

    test('the fleet shows its matrix and what needs attention', async ({ page }) => {
      await open(page, '/');
      await shown(page, words.fleet.title);
      await expect(page.getByRole('grid', { name: words.matrix.label })).toContainText(stack);
      await expect(page.getByRole('heading', { name: words.fleet.errors })).toBeVisible();
      await expectAccessible(page);
      await expectZoomable(page);
      await expectAccessible(page);
    });
  });
}

test.describe('as a viewer', () => {
  test.use({ role: 'viewer' });

  test('arrow keys walk through the matrix, and the page is left with Tab', async ({ page }) => {
    await open(page, '/');
    const matrix = page.getByRole('grid', { name: words.matrix.label });
    await matrix.getByRole('gridcell').first().focus();
    const name = () => page.evaluate(() => document.activeElement?.getAttribute('aria-label'));
    const before = await name();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowUp');
    expect(await name()).toBe(before);
    await page.keyboard.press('Tab');
    expect(await matrix.evaluate((grid) => grid.contains(document.activeElement))).toBe(false);
  });

  test('keys go to each page, and each page is announced', async ({ page }) => {
    test.slow();
    await open(page, '/');
    await shown(page, words.fleet.title);
    for (const [key, title] of [
      ['s', words.stacks.title],
      ['a', words.agents.title],
      ['r', words.rollouts.title],
      ['p', words.approvals.title],
      ['e', words.activity.title],
      ['f', words.fleet.title],
    ] as const) {
      // On a busy machine, the second key may come too late for a sequence.
      await expect(async () => {
        await page.keyboard.press('g');
        await page.keyboard.press(key);
        await expect(page.getByRole('heading', { level: 1, name: title })).toBeFocused({ timeout: 3_000 });
      }).toPass({ timeout: 15_000 });
      await expect(page.locator('#announcements')).toHaveText(title);
    }
  });

  test('colours of the system are kept', async ({ page }) => {
    await page.emulateMedia({ forcedColors: 'active' });
    await open(page, '/');
    await shown(page, words.fleet.title);
    await expectAccessible(page);
  });
});
