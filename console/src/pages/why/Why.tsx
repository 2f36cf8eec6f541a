// Why a stack is in its state on an agent: the first step that is not passed, evidence, and what to do next.

import { useQuery } from '@tanstack/react-query';

import { hopsQuery, whyQuery } from '../../api/queries';
import type { Broken, StackWhy } from '../../api/types';
import { useNow } from '../../lib/now';
import { chain, reach, verdict, whyText } from '../../lib/why';
import { Command, CopyButton } from '../../ui/Copy';
import { Loaded } from '../../ui/Loaded';
import { words } from '../../words';
import { Waterfall } from './Waterfall';
import { WhyAct } from './WhyAct';
import styles from './Why.module.css';

interface Props {
  stack: string;
  agent: string;
}

export function Why({ stack, agent }: Props) {
  const why = useQuery(whyQuery(stack, agent));
  const hops = useQuery(hopsQuery(stack, agent));
  return (
    <div className={styles.why}>
      <Loaded query={why}>{(data) => <Explanation why={data} />}</Loaded>
      <section className={styles.section}>
        <h3>{words.why.history}</h3>
        <Loaded query={hops}>
          {({ items }) => (
            <ol className={styles.section}>
              {items.map((version) => (
                <li key={version.sequence_id}>
                  <Waterfall version={version} />
                </li>
              ))}
            </ol>
          )}
        </Loaded>
      </section>
    </div>
  );
}

const GLYPHS = { passed: '✔', broken: '✖', open: '–' } as const;

function Explanation({ why }: { why: StackWhy }) {
  const now = useNow();
  const say = words.why;
  return (
    <>
      <h2 className={styles.title}>{say.title(why.stack_name, why.agent_name, verdict(why))}</h2>
      <ol aria-label={say.hops} className={styles.hops}>
        {chain(why.hops, why.broken, now).map(({ hop, mark, text }) => (
          <li key={hop} className={`${styles.hop} ${styles[mark]}`}>
            <span aria-hidden="true">{GLYPHS[mark]}</span>
            <span className="visually-hidden">{say.marks[mark]}: </span>
            <span className={styles.name}>{hop}</span>
            <span>{text}</span>
          </li>
        ))}
      </ol>
      {why.evidence.length > 0 && (
        <section className={styles.section}>
          <h3>{say.evidence}</h3>
          <ul>
            {why.evidence.map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </section>
      )}
      {why.broken?.next && <NextStep why={why} broken={why.broken} />}
      <CopyButton label={say.copyText} text={() => whyText(why, now)} />
    </>
  );
}

function NextStep({ why, broken }: { why: StackWhy; broken: Broken }) {
  const say = words.why;
  const { command } = broken;
  const changes = command && reach(command);
  return (
    <section className={styles.section}>
      <h3>{say.nextStep}</h3>
      <p>{say.next(broken.next)}</p>
      {changes && <p>{say.changes(changes)}</p>}
      {command?.check_first && <p>{say.checkFirst(command.check_first)}</p>}
      {command && <Command line={command.line} />}
      <WhyAct why={why} broken={broken} />
    </section>
  );
}
