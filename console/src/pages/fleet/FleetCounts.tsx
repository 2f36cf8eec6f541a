// Whether the fleet is well, in numbers; and how recent they are.

import type { FleetSummary } from '../../api/types';
import { clockTime, number } from '../../lib/format';
import { Mark } from '../../ui/StateMark';
import { words } from '../../words';
import styles from './FleetCounts.module.css';

const say = words.matrix;

export function FleetCounts({ summary }: { summary: FleetSummary }) {
  const { agents, on_intent: onIntent, failing, blocked, pending, unknown, silent, as_of: asOf, complete } = summary;
  return (
    <>
      <ul className={styles.counts}>
        <li>
          <strong>{say.onIntent(number(onIntent), number(agents))}</strong>
        </li>
        {failing > 0 && (
          <li>
            <Mark tone="bad" glyph="✖">{`${number(failing)} ${say.counts.failing}`}</Mark>
          </li>
        )}
        {blocked > 0 && (
          <li>
            <Mark tone="warn" glyph="■">{`${number(blocked)} ${say.counts.blocked}`}</Mark>
          </li>
        )}
        {pending > 0 && (
          <li>
            <Mark tone="busy" glyph="…">{`${number(pending)} ${say.counts.pending}`}</Mark>
          </li>
        )}
        {unknown > 0 && (
          <li>
            <Mark tone="quiet" glyph="?">{`${number(unknown)} ${say.counts.unknown}`}</Mark>
          </li>
        )}
        {silent > 0 && (
          <li>
            <Mark tone="warn" glyph="○">{`${number(silent)} ${say.counts.silent}`}</Mark>
          </li>
        )}
        <li className={styles.soft}>{say.stacks(number(summary.stacks))}</li>
        {asOf != null && <li className={styles.soft}>{say.asOf(clockTime(Date.parse(asOf)))}</li>}
      </ul>
      {!complete && <p role="status">{say.loading}</p>}
    </>
  );
}
