import type { Locator } from '@playwright/test';

import { environment } from './environment';
import {
  expect,
  expectAccessible,
  expectFocusIn,
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

    test('the list of agents has no findings', async ({ page }) => {
      await open(page, '/agents');
      await shown(page, words.agents.title);
      await expect(page.getByRole('grid', { name: words.agents.title })).toContainText(agent);
      await expectAccessible(page);
      await expectZoomable(page);
    });

    test('an agent has no findings in any of its views, and acts need the role admin', async ({ page }) => {
      test.slow();
      const content = {
        stacks: page.getByRole('grid', { name: words.agent.tabs.stacks }).getByText(stack, { exact: true }),
        events: page.getByRole('grid', { name: words.agent.tabs.events }).getByText(stack, { exact: true }),
        details: page.getByRole('button', { name: say.retire, exact: true }),
      } satisfies Record<keyof typeof words.agent.tabs, Locator>;
      for (const [tab, expected] of Object.entries(content)) {
        await open(page, `/agents/${agent}?tab=${tab}`);
        await shown(page, agent);
        await expect(expected.first()).toBeVisible();
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
      await expectFocusIn(dialog);
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
    await expect(firstRow(page)).toBeFocused();
    await page.keyboard.press('Enter');
    await expect(page).toHaveURL(/\/ui\/agents\/[^?]+/);
    await expect(page.getByRole('grid')).toContainText(stack);
    await expectZoomable(page);
  });
});
