import { render, screen } from '@testing-library/react';
import { userEvent } from '@testing-library/user-event';
import { expect, test, vi } from 'vitest';

import { CopyButton } from './Copy';

test('a copy that the browser refuses says so', async () => {
  const user = userEvent.setup();
  const write = vi.spyOn(navigator.clipboard, 'writeText').mockRejectedValueOnce(new DOMException('', 'NotAllowedError'));
  render(<CopyButton label="Copy as text" text={() => 'text'} />);
  await user.click(screen.getByRole('button', { name: 'Copy as text' }));
  await user.click(await screen.findByRole('button', { name: /^The browser did not allow to copy/ }));
  await screen.findByRole('button', { name: 'Copied' });
  expect(write).toHaveBeenCalledTimes(2);
});
