import { environment } from './environment';
import { allRows, expect, expectAccessible, expectZoomable, firstRow, inCi, loaded, open, shown, test, words } from './console';

const { stack, state } = environment;
const say = words.activity;

for (const role of ['viewer', 'deployer', 'owner', 'admin'] as const) {
  test.describe(role, inCi(role, 'viewer'), () => {
    test.use({ role });

    test('the activity and the events have no findings', async ({ page }) => {
      for (const [path, title] of [
        ['activity', say.title],
        ['events', words.events.title],
      ] as const) {
        await open(page, `/${path}?stack=${stack}`);
        await shown(page, title);
        await expect(page.getByRole('grid', { name: title })).toContainText(stack);
        await expect(page.getByRole('alert')).toHaveCount(0);
        await expectAccessible(page);
        await expectZoomable(page);
      }
    });
  });
}

test.describe('as a viewer', () => {
  test.use({ role: 'viewer' });

  test('the activity is folded, filtered by its address, and opens the events of a line', async ({ page }) => {
    await open(page, `/activity?stack=${stack}`);
    await shown(page, say.title);
    await expect(page.getByRole('grid', { name: say.title })).toContainText(stack);
    await expectAccessible(page);
    await expectZoomable(page);
    await page.keyboard.press('/');
    await expect(page.getByLabel(words.events.filterStack)).toBeFocused();
    const others = allRows(page).filter({ hasNot: page.getByRole('gridcell', { name: state, exact: true }) });
    await expect(others, 'lines that the filter leaves out').not.toHaveCount(0);
    await page.getByLabel(words.events.filterEvent).selectOption(state);
    await expect(page).toHaveURL(new RegExp(`transition=${state}`));
    // The lines of before stay until the filtered ones are there.
    await expect(others).toHaveCount(0);
    await loaded(page);
    await expect(firstRow(page)).toBeVisible();
    await firstRow(page).focus();
    await page.keyboard.press('Enter');
    await shown(page, words.events.title);
    await expect(page).toHaveURL(/version=\d+/);
    await expect(firstRow(page)).toContainText(stack);
    await expectAccessible(page);
    await page.goBack();
    await shown(page, say.title);
  });

  test('the file has a line for each event', async ({ page }) => {
    await open(page, `/activity?stack=${stack}`);
    await shown(page, say.title);
    const file = page.waitForEvent('download');
    await page.getByRole('button', { name: say.csv }).click();
    const download = await file;
    expect(download.suggestedFilename()).toBe(say.csvName);
    const stream = await download.createReadStream();
    const parts: Buffer[] = [];
    for await (const part of stream) parts.push(part as Buffer);
    const [head, first] = Buffer.concat(parts).toString('utf8').split('\r\n');
    expect(head).toBe(say.head.join(','));
    expect(first).toContain(stack);
  });

  test('the palette finds the stack, and offers it again when it is empty', async ({ page }) => {
    await open(page, '/');
    await shown(page, words.fleet.title);
    await page.keyboard.press('ControlOrMeta+k');
    const results = page.getByRole('listbox', { name: words.palette.results });
    await expect(page.getByRole('combobox', { name: words.palette.placeholder })).toBeFocused();
    await page.keyboard.type(stack);
    // Until then, the results may be those of the first letters.
    await expect(results).toHaveAttribute('aria-busy', 'false');
    const found = results.getByRole('option').first();
    await expect(found.locator('span').nth(0)).toHaveText(stack);
    await expect(found.locator('span').nth(1)).toHaveText(words.palette.kinds.stack);
    await expect(found).toHaveAttribute('aria-selected', 'true');
    await expectAccessible(page);
    await page.keyboard.press('Enter');
    await shown(page, stack);
    await expect(page.getByRole('group', { name: words.acts.label })).toBeVisible();
    await page.keyboard.press('ControlOrMeta+k');
    await expect(results.getByRole('option').first()).toContainText(stack);
  });
});
