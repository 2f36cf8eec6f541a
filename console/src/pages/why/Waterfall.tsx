// When each step of a delivery happened, as bars on one time axis.

import type { SequenceHops } from '../../api/types';
import { duration } from '../../lib/format';
import { waterfall } from '../../lib/waterfall';
import { words } from '../../words';
import styles from './Waterfall.module.css';

export function Waterfall({ version }: { version: SequenceHops }) {
  const { steps, total } = waterfall(version.hops);
  const last = version.reports.at(-1);
  return (
    <figure className={styles.figure}>
      <figcaption className={styles.caption}>
        {words.why.versionOf(version.sequence_id)}
        {last && ` · ${last.transition}`}
        {` · ${words.why.total(duration(total))}`}
      </figcaption>
      <ol className={styles.steps}>
        {steps.map(({ hop, start, end, took }) => (
          <li key={hop} className={styles.step}>
            <span>{hop}</span>
            <span className={styles.track}>
              <span className={styles.bar} style={{ left: `${start * 100}%`, width: `${(end - start) * 100}%` }} />
            </span>
            <span className={styles.time}>{words.why.sinceBefore(duration(took))}</span>
          </li>
        ))}
      </ol>
    </figure>
  );
}
