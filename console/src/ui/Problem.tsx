// An error with everything that is needed to act on it, and empty lists with the command that fills them.

import { asApiError } from '../api/problem';
import { useLeave } from '../app/leave';
import { words } from '../words';
import { Button } from './Button';
import { Command } from './Copy';
import styles from './Problem.module.css';

interface Props {
  error: unknown;
  onRetry?: (() => void) | undefined;
  /** Whether older data is shown below. */
  isStale?: boolean;
}

export function Problem({ error, onRetry, isStale = false }: Props) {
  const problem = asApiError(error);
  const say = words.errors;
  return (
    <div role="alert" className={styles.problem}>
      <p className={styles.title}>
        {problem.code && <code>{problem.code}</code>} {problem.message}
      </p>
      {problem.details.map((line) => (
        <p key={line}>{line}</p>
      ))}
      {problem.next && <p>{say.next(problem.next)}</p>}
      {isStale && <p>{say.stale}</p>}
      {problem.requestId && (
        <p className={styles.request}>
          <code>{say.request(problem.requestId)}</code>
        </p>
      )}
      {problem.code === 'BRK1014' && <SignInAgain />}
      {onRetry && <Button onPress={onRetry}>{say.retry}</Button>}
    </div>
  );
}

/** The broker asks for a recent sign-in before changes of admins. */
function SignInAgain() {
  const leave = useLeave();
  return <Button onPress={leave}>{words.errors.signInAgain}</Button>;
}

export function Empty({ text, command }: { text: string; command?: string | undefined }) {
  return (
    <div className={styles.empty}>
      <p>{text}</p>
      {command && <Command line={command} />}
    </div>
  );
}
