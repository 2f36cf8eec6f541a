import { environment } from './environment';
import {
  expect,
  expectAccessible,
  expectZoomable,
  inCi,
  firstRow,
  open,
  reasonOf,
  shown,
  test,
  words,
} from './console';

const { stack, agent } = environment;
const say = words.adminActs.agent;

for (const role of ['viewer', 'deployer', 'owner', 'admin'] as const) {
  test.describe(role, inCi(role, 'viewer'), () => {
    test.use({ role });

    test('an agent has no findings in any of its views, and acts need the role admin', async ({ page }) => {
      for (const tab of Object.keys(words.agent.tabs)) {
        await open(page, `/agents/${agent}?tab=${tab}`);
        await shown(page, agent);
        await expect(page.getByRole('alert')).toHaveCount(0);
        await expectAccessible(page);
      }
      await open(page, `/agents/${agent}?tab=details`);
      const retire = page.getByRole('button', { name: say.retire, exact: true });
      if (role !== 'admin') {
        expect(await reasonOf(page, retire)).toBe(words.roles.needs('admin'));
        return;
      }
      await retire.click();
      const dialog = page.getByRole('dialog', { name: say.retireTitle(agent) });
      await expect(dialog.getByText(/\d+ stacks? (is|are) removed/)).toBeVisible();
      await expect(dialog.getByRole('button', { name: say.retire, exact: true })).toHaveAttribute('aria-disabled', 'true');
      await expectAccessible(page);
      await page.keyboard.press('Escape');
      await expect(retire).toBeFocused();
    });
  });
}

test.describe('as a viewer', () => {
  test.use({ role: 'viewer' });

  test('the list of agents opens an agent with the keyboard', async ({ page }) => {
    await open(page, `/agents?name=${agent}`);
    await shown(page, words.agents.title);
    await expectAccessible(page);
    await expectZoomable(page);
    await expect(firstRow(page)).toBeVisible();
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await expect(page).toHaveURL(/\/ui\/agents\/[^?]+/);
    await expect(page.getByRole('grid')).toContainText(stack);
    await expectZoomable(page);
  });
});
