import { environment } from './environment';
import { expect, expectAccessible, expectFocusIn, expectZoomable, inCi, open, reasonOf, shown, test, words } from './console';

const { stack, rollout } = environment;

for (const role of ['viewer', 'deployer', 'owner', 'admin'] as const) {
  test.describe(role, inCi(role, 'deployer'), () => {
    test.use({ role });

    test('rollouts have no findings, and their commands name the role', async ({ page }) => {
      await open(page, '/rollouts');
      await shown(page, words.rollouts.title);
      await expect(page.getByRole('main').getByRole('listitem').filter({ hasText: stack }).first()).toBeVisible();
      await expectAccessible(page);
      await expectZoomable(page);
      test.skip(rollout === undefined, 'BROKKR_CONSOLE_ROLLOUT is not set');
      await open(page, `/rollouts/${rollout}`);
      await shown(page, new RegExp(stack));
      await expect(page.getByRole('heading', { level: 2, name: words.rollout.waves })).toBeVisible();
      await expectAccessible(page);
      await expectZoomable(page);
      const commands = page.getByRole('group', { name: words.rolloutCommands.label }).getByRole('button');
      // A rollout that has ended has no commands.
      if ((await commands.count()) === 0) return;
      if (role === 'viewer') {
        expect(await reasonOf(page, commands.first())).toMatch(/^Needs the role /);
        return;
      }
      await commands.first().focus();
      await page.keyboard.press('Enter');
      await expectFocusIn(page.getByRole('dialog'));
      await expect(page.getByRole('dialog')).toBeVisible();
      await expectAccessible(page);
      await page.keyboard.press('Escape');
      await expect(commands.first()).toBeFocused();
    });

    test('what waits for a person has no findings', async ({ page }) => {
      await open(page, '/approvals');
      await shown(page, words.approvals.title);
      const waiting = page.getByRole('heading', { level: 2, name: new RegExp(`^(${words.approvals.gates}|${words.approvals.prunes})$`) });
      await expect(waiting.or(page.getByText(words.approvals.calm)).first()).toBeVisible();
      await expect(page.getByRole('alert')).toHaveCount(0);
      await expectAccessible(page);
      await expectZoomable(page);
    });
  });
}
