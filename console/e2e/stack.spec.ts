import type { Locator } from '@playwright/test';

import { environment } from './environment';
import {
  allRows,
  expect,
  expectAccessible,
  expectFocusIn,
  expectZoomable,
  inCi,
  firstRow,
  open,
  reasonOf,
  shown,
  tabTo,
  test,
  words,
} from './console';

const { stack, agent, state } = environment;
const { acts } = words;

for (const role of ['viewer', 'deployer', 'owner', 'admin'] as const) {
  test.describe(role, () => {
    test.use({ role });

    test('the list of stacks has no findings', inCi(role, 'viewer'), async ({ page }) => {
      await open(page, '/stacks');
      await shown(page, words.stacks.title);
      await expect(page.getByRole('grid', { name: words.stacks.title })).toContainText(stack);
      await expectAccessible(page);
      await expectZoomable(page);
    });

    test('a stack has no findings in any of its views', inCi(role, 'viewer'), async ({ page }) => {
      test.slow();
      const { tabs } = words.stack;
      const content = {
        agents: page.getByRole('grid', { name: tabs.agents }).getByText(agent, { exact: true }),
        versions: allRows(page).nth(1),
        errors: page.getByRole('button', { name: words.errorsList.why }),
        diff: page.getByText(/^\d+ added, \d+ changed, /),
        targets: page.getByRole('heading', { level: 2, name: new RegExp(`^(${words.targets.selectors}|${words.targets.agents})$`) }),
        rollouts: page.getByRole('main').getByRole('listitem').filter({ hasText: stack }),
      } satisfies Record<keyof typeof tabs, Locator>;
      for (const [tab, expected] of Object.entries(content)) {
        await open(page, `/stacks/${stack}?tab=${tab}`);
        await shown(page, stack);
        await expect(expected.first()).toBeVisible();
        await expect(page.getByRole('alert')).toHaveCount(0);
        await expectAccessible(page);
      }
      await expectZoomable(page);
    });

    test('acts show their reach first, or name the role that they need', inCi(role, 'viewer', 'deployer'), async ({ page }) => {
      test.slow();
      await open(page, `/stacks/${stack}`);
      await shown(page, stack);
      for (const [name, title] of [
        [acts.rollBack.name, acts.rollBack.title(stack)],
        [acts.retarget.name, acts.retarget.title(stack)],
        [acts.suspend.name, acts.suspend.title(stack)],
        [acts.remove.name, acts.remove.title(stack)],
      ] as const) {
        const button = page.getByRole('button', { name, exact: true });
        if (role === 'viewer') {
          expect(await reasonOf(page, button)).toBe(words.roles.needs('deployer'));
          continue;
        }
        await button.click();
        const dialog = page.getByRole('dialog', { name: title });
        await expect(dialog.getByText(/\d+ agents?/).first()).toBeVisible();
        await expectFocusIn(dialog);
        await expectAccessible(page);
        await page.keyboard.press('Escape');
        await expect(dialog).toHaveCount(0);
        await expect(button).toBeFocused();
      }
    });
  });
}

test.describe('as a viewer', () => {
  test.use({ role: 'viewer' });

  test('the list of stacks opens a stack with the keyboard', async ({ page }) => {
    await open(page, '/stacks');
    await shown(page, words.stacks.title);
    await expectAccessible(page);
    await expectZoomable(page);
    await page.keyboard.press('/');
    await page.keyboard.type(stack);
    await page.keyboard.press('Enter');
    await expect(page).toHaveURL(/name=/);
    await expect(firstRow(page)).toContainText(stack);
    await firstRow(page).focus();
    await page.keyboard.press('Enter');
    await shown(page, stack);
  });

  test('from an error to all its agents', async ({ page }) => {
    await open(page, `/stacks/${stack}?tab=errors`);
    await page.getByRole('link', { name: /^Show (the agent|all)/ }).first().click();
    await expect(page).toHaveURL(/error=/);
    await expect(page.getByRole('grid')).toContainText(agent);
    await expectAccessible(page);
  });
});

test.describe('as a deployer', () => {
  test.use({ role: 'deployer' });

  test('a stack is suspended on one agent and resumed, with the keyboard only', async ({ page }) => {
    test.slow();
    await open(page, `/stacks/${stack}`);
    await shown(page, stack);
    await tabTo(page, page.getByRole('button', { name: acts.suspend.name, exact: true }));
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog', { name: acts.suspend.title(stack) });
    await expect(dialog).toBeVisible();
    await tabTo(page, dialog.getByLabel(acts.suspend.scope));
    await page.keyboard.press('ArrowDown');
    await tabTo(page, dialog.getByLabel(acts.suspend.agent, { exact: true }));
    await page.keyboard.type(agent);
    await tabTo(page, dialog.getByLabel(acts.suspend.for, { exact: true }));
    await page.keyboard.press('ControlOrMeta+a');
    await page.keyboard.type('5m');
    await tabTo(page, dialog.getByLabel(acts.reason, { exact: true }));
    await page.keyboard.type('a test of the console');
    await page.keyboard.press('Enter');
    await expect(dialog).toHaveCount(0);
    await expect(page.getByText('a test of the console').first()).toBeVisible();
    await expectAccessible(page);
    const on = acts.resume.on(acts.resume.everything, agent);
    await tabTo(page, page.getByRole('button', { name: acts.resume.label(on) }).first());
    await page.keyboard.press('Enter');
    const end = page.getByRole('dialog', { name: acts.resume.title });
    await tabTo(page, end.getByRole('button', { name: acts.resume.name, exact: true }));
    await page.keyboard.press('Enter');
    await expect(end).toHaveCount(0);
    // The agent applies the stack again, which the next tests must not see halfway.
    await open(page, `/stacks/${stack}?state=${state}`);
    await expect(page.getByRole('grid')).toContainText(agent, { timeout: 60_000 });
  });
});
