// The keyboard shortcuts of the current page.

import { useState } from 'react';

import { currentShortcuts, useSingleKeys } from '../lib/keys';
import { words } from '../words';
import styles from './Help.module.css';
import { Overlay } from './Overlay';

export default function Help({ onClose }: { onClose: () => void }) {
  const [shortcuts] = useState(currentShortcuts);
  const [isEnabled, setEnabled] = useSingleKeys();
  return (
    <Overlay title={words.keys.title} onClose={onClose}>
      <label className={styles.setting}>
        <input type="checkbox" checked={isEnabled} onChange={(event) => setEnabled(event.target.checked)} />
        {words.keys.enabled}
      </label>
      <dl className={styles.list}>
        {shortcuts.map(({ keys, label }) => (
          <div key={keys} className={styles.shortcut}>
            <dt>
              <kbd className={styles.keys}>{keys}</kbd>
            </dt>
            <dd>{label}</dd>
          </div>
        ))}
      </dl>
    </Overlay>
  );
}
