// Two versions of a stack, compared resource by resource and field by field.

import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';

import { diffQuery, versionsQuery } from '../../api/queries';
import type { Diff } from '../../api/types';
import { number, objectName } from '../../lib/format';
import { rowsOf } from '../../lib/pages';
import { views } from '../../lib/views';
import { Loaded } from '../../ui/Loaded';
import { Empty } from '../../ui/Problem';
import { words } from '../../words';
import styles from './DiffTab.module.css';

const say = words.diff;

interface Props {
  stack: string;
  from: number | undefined;
  to: number | undefined;
}

/** Without versions, compares the newest with the one before, as the command line does. */
export function DiffTab({ stack, from, to }: Props) {
  const query = useInfiniteQuery(versionsQuery(stack));
  return (
    <Loaded query={query}>
      {(data) => {
        const versions = rowsOf(data).map((version) => version.sequence_id);
        const [newest, before] = versions;
        const pair = { from: from ?? before, to: to ?? newest };
        if (pair.from === undefined || pair.to === undefined) return <Empty text={say.one} />;
        return (
          <>
            <Choice stack={stack} versions={versions} from={pair.from} to={pair.to} />
            <Comparison stack={stack} from={pair.from} to={pair.to} />
          </>
        );
      }}
    </Loaded>
  );
}

function Choice({ stack, versions, from, to }: { stack: string; versions: number[]; from: number; to: number }) {
  const navigate = useNavigate();
  const choose = (pair: { from: number; to: number }) =>
    void navigate({ to: '/stacks/$stack', params: { stack }, search: { tab: 'diff', ...pair } });
  const all = [...new Set([...versions, from, to])].toSorted((one, other) => other - one);
  const select = (label: string, value: number, onChange: (version: number) => void) => (
    <label className={styles.field}>
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(Number(event.target.value))}>
        {all.map((version) => (
          <option key={version}>{version}</option>
        ))}
      </select>
    </label>
  );
  return (
    <div className={styles.choice}>
      {select(say.from, from, (version) => choose({ from: version, to }))}
      {select(say.to, to, (version) => choose({ from, to: version }))}
    </div>
  );
}

function Comparison({ stack, from, to }: { stack: string; from: number; to: number }) {
  const query = useQuery(diffQuery(stack, from, to));
  return (
    <Loaded query={query}>
      {(diff) => (
        <>
          <p role="status">
            {diff.resources.length === 0
              ? say.same
              : say.summary(number(diff.added), number(diff.changed), number(diff.removed), number(diff.unchanged))}
          </p>
          {diff.truncated && <Empty text={say.truncated} command={views.diff(stack, from, to).cli} />}
          <ul className={styles.resources}>
            {removedFirst(diff).map((resource) => (
              <li key={`${resource.group}/${objectName(resource)}`}>
                <Resource resource={resource} />
              </li>
            ))}
          </ul>
        </>
      )}
    </Loaded>
  );
}

type ResourceDiff = Diff['resources'][number];

const ORDER = { removed: 0, changed: 1, added: 2 } as const;
const GLYPHS = { removed: '−', changed: '~', added: '+' } as const;

function removedFirst({ resources }: Diff): ResourceDiff[] {
  return resources.toSorted((one, other) => ORDER[one.change] - ORDER[other.change]);
}

function Resource({ resource }: { resource: ResourceDiff }) {
  const { change, fields = [] } = resource;
  const name = objectName(resource);
  return (
    <>
      <h2 className={`${styles.name} ${styles[change]}`}>
        <span aria-hidden="true">{GLYPHS[change]}</span> {name} <span className={styles.change}>{say.change[change]}</span>
      </h2>
      {fields.length > 0 && (
        <table className={styles.fields} aria-label={say.fields(name)}>
          <thead>
            <tr>
              <th scope="col">{say.field}</th>
              <th scope="col">{say.before}</th>
              <th scope="col">{say.after}</th>
            </tr>
          </thead>
          <tbody>
            {fields.map(({ path, before, after }) => (
              <tr key={path}>
                <th scope="row">
                  <code>{path}</code>
                </th>
                <td className={styles.removed}>
                  <pre>{shown(before)}</pre>
                </td>
                <td className={styles.added}>
                  <pre>{shown(after)}</pre>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function shown(value: unknown): string {
  if (value === undefined) return say.absent;
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}
