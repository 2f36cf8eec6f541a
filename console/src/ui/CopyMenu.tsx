// Copies the current view as a link, as a command, or as a request. It is loaded after the page, because its menu is
// larger than most pages.

import { Button as MenuButton, Menu, MenuItem, MenuTrigger, Popover } from 'react-aria-components';

import { curl, type View } from '../lib/views';
import { words } from '../words';
import { CopyMark, useCopy } from './Copy';
import styles from './CopyMenu.module.css';

export default function CopyMenu({ view }: { view: View }) {
  const [outcome, copy] = useCopy();
  const say = words.copy;
  const texts = {
    link: () => globalThis.location.href,
    cli: () => view.cli,
    curl: () => curl(view, globalThis.location.origin),
  };
  return (
    <MenuTrigger>
      <MenuButton className={styles.trigger ?? ''} aria-label={say.menu}>
        <CopyMark outcome={outcome} />
      </MenuButton>
      <Popover className={styles.popover ?? ''} placement="bottom end">
        <Menu className={styles.menu ?? ''} onAction={(key) => copy(texts[key as keyof typeof texts]())}>
          <MenuItem id="link" className={styles.item ?? ''}>
            {say.link}
          </MenuItem>
          <MenuItem id="cli" className={styles.item ?? ''} textValue={say.cli}>
            {say.cli} <code>{view.cli}</code>
          </MenuItem>
          <MenuItem id="curl" className={styles.item ?? ''} textValue={say.curl}>
            {say.curl} <code>{view.api}</code>
          </MenuItem>
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}
