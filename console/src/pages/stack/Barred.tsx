// The content that was rolled back, and can be allowed again.

import { useQuery } from '@tanstack/react-query';

import { barredQuery } from '../../api/acts';
import { api } from '../../api/client';
import { shortId } from '../../lib/format';
import { ActButton, ActDialog } from '../../ui/Act';
import { Section } from '../../ui/Page';
import { words } from '../../words';
import styles from '../../ui/ActBar.module.css';

const say = words.acts.unbar;

export function Barred({ stack }: { stack: string }) {
  const { data } = useQuery(barredQuery(stack));
  if (data === undefined || data.items.length === 0) return null;
  return (
    <Section title={say.list}>
      <ul className={styles.lines}>
        {data.items.map(({ checksum, sequence_id: version, barred_by: by, reason }) => (
          <li key={checksum} className={styles.line}>
            <strong>{words.stack.version(version)}</strong>
            <code title={checksum}>{shortId(checksum)}</code>
            <span>{say.because(by, reason)}</span>
            <ActButton name={say.name} label={say.title(version)} needs="deployer">
              {(close) => (
                <ActDialog
                  title={say.title(version)}
                  submit={say.name}
                  onClose={close}
                  announced={say.done}
                  run={async () => {
                    const path = { stack, checksum };
                    await api.DELETE('/api/v1/stacks/{stack}/barred-contents/{checksum}', { params: { path } });
                  }}
                >
                  <p>{say.effect}</p>
                </ActDialog>
              )}
            </ActButton>
          </li>
        ))}
      </ul>
    </Section>
  );
}
